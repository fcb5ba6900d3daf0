#include "GpuWork.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <iterator>
#include <tuple>

using namespace mlir;

namespace zorse::pipelines {

namespace {

/// Kernels that multiply on tensor cores belong to attention. Its smaller kernels move bytes like
/// all others.
bool isTensorAttention(const bundle::KernelLaunch &kernel) {
  return kernel.matmul_flops().fixed() > 0 || kernel.matmul_flops().per_row() > 0;
}

void add(bundle::AffineSize &to, const bundle::AffineSize &more) {
  to.set_fixed(to.fixed() + more.fixed());
  to.set_per_row(to.per_row() + more.per_row());
}

auto key(const bundle::FunctionCost::Matmul &p) {
  auto pair = [](const bundle::AffineSize &extent) {
    return std::pair(extent.fixed(), extent.per_row());
  };
  return std::tuple(pair(p.m()), pair(p.n()), pair(p.k()), pair(p.batch()), p.operands(),
                    p.result());
}

void add(bundle::FunctionCost &work, const bundle::Matmul &launched) {
  bundle::FunctionCost::Matmul product;
  *product.mutable_m() = launched.m();
  *product.mutable_n() = launched.n();
  *product.mutable_k() = launched.k();
  *product.mutable_batch() = launched.batch();
  product.set_operands(launched.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED
                           ? launched.type()
                           : launched.operand_type());
  product.set_result(launched.type());
  auto &all = *work.mutable_matmuls();
  auto same = std::find_if(all.begin(), all.end(),
                           [&](const auto &other) { return key(other) == key(product); });
  if (same == all.end()) {
    *work.add_matmuls() = product;
    same = std::prev(all.end());
  }
  same->set_count(same->count() + 1);
}

/// Returns the FLOPs of one row in all attentions of a function.
double attentionFlops(func::FuncOp function) {
  double flops = 0;
  function.walk([&](Operation *op) {
    if (isa<AttentionOp, AttentionGradOp>(op))
      flops += cast<CostOpInterface>(op).getCost().flopsPerRow;
  });
  return flops;
}

} // namespace

bundle::FunctionCost workOf(const bundle::CompiledFunction &compiled) {
  bundle::FunctionCost work;
  work.set_launches(static_cast<uint32_t>(compiled.launches_size()));
  work.mutable_bytes();
  for (const bundle::Launch &launch : compiled.launches()) {
    if (launch.has_matmul())
      add(work, launch.matmul());
    else if (launch.has_kernel() && !isTensorAttention(launch.kernel()))
      add(*work.mutable_bytes(), launch.kernel().cost());
  }
  return work;
}

void addGpuWork(ModuleOp module, bundle::ModelSummary &summary,
                const codegen::CompiledFunctions &functions) {
  summary.add_gpu_targets(functions.library.arch());
  auto fill = [&](bundle::FunctionCost &work, func::FuncOp function) {
    if (!function)
      return;
    auto compiled = std::find_if(functions.library.functions().begin(),
                                 functions.library.functions().end(),
                                 [&](const bundle::CompiledFunction &candidate) {
                                   return candidate.name() == compiledFunctionName(function);
                                 });
    if (compiled == functions.library.functions().end())
      return;
    work = workOf(*compiled);
    bool tensors = std::any_of(compiled->launches().begin(), compiled->launches().end(),
                               [](const bundle::Launch &launch) {
                                 return launch.has_kernel() && isTensorAttention(launch.kernel());
                               });
    if (tensors)
      work.set_attention_flops_per_row(attentionFlops(function));
  };
  for (bundle::UnitClass &unitClass : *summary.mutable_classes())
    for (bundle::UnitFunction &function : *unitClass.mutable_functions())
      fill(*function.add_costs(), units::functionOp(module, unitClass, function.task()));
}

} // namespace zorse::pipelines
