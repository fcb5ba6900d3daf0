// Compiled functions that are not model functions: sums of gradients and losses, the clip/skip
// decision, and low-precision copies of parameters.
#include "zorse/Codegen/Codegen.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Summary/Summary.h"

#include "KernelSet.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

std::string zorse::codegen::sumName(bundle::ElementType type, uint32_t terms) {
  return std::string("sum.") + elementTypeName(type) + "." + std::to_string(terms);
}

std::string zorse::codegen::roundedSumName(uint32_t terms, bool continues) {
  return (continues ? "sum.f32.more_bf16." : "sum.f32.of_bf16.") + std::to_string(terms);
}

namespace {

/// Builds a compiled function with one call of a library routine. The operands are all arguments,
/// in order.
class FunctionBuilder {
public:
  FunctionBuilder(bundle::FunctionLibrary &library, const std::string &name)
      : compiled(*library.add_functions()) {
    compiled.set_name(name);
  }

  /// Adds an argument with one element per row.
  FunctionBuilder &rows(bundle::ArgumentKind kind, uint32_t index, bundle::AccessMode mode,
                        bundle::ElementType type, const std::string &name) {
    bundle::FunctionArgument &argument = add(kind, index, mode, type, name);
    argument.mutable_bytes()->set_per_row(int64_t(elementBytes(type)));
    return *this;
  }
  /// Adds an argument with a fixed size in bytes.
  FunctionBuilder &fixed(bundle::ArgumentKind kind, bundle::AccessMode mode, int64_t bytes,
                         const std::string &name) {
    bundle::FunctionArgument &argument = add(kind, 0, mode, bundle::F64, name);
    argument.mutable_bytes()->set_fixed(bytes);
    return *this;
  }
  bundle::LibraryCall &call(const std::string &routine, bundle::ElementType type) {
    bundle::LibraryCall &call = *compiled.add_launches()->mutable_library();
    call.set_name(routine);
    call.set_type(type);
    for (int i = 0; i < compiled.arguments_size(); ++i)
      call.add_operands()->set_argument(i);
    return call;
  }

private:
  bundle::FunctionArgument &add(bundle::ArgumentKind kind, uint32_t index, bundle::AccessMode mode,
                                bundle::ElementType type, const std::string &name) {
    bundle::FunctionArgument &argument = *compiled.add_arguments();
    argument.set_kind(kind);
    argument.set_index(index);
    argument.set_mode(mode);
    argument.mutable_bytes();
    argument.set_type(type);
    argument.set_name(name);
    return argument;
  }
  bundle::CompiledFunction &compiled;
};

void addStepFunctions(bundle::FunctionLibrary &library, const bundle::ModelSummary &summary) {
  const bundle::ElementType wide = accumulationType(summary.compute_type());
  FunctionBuilder(library, "norm")
      .rows(bundle::STATE, 1, bundle::READ, wide, "gradients")
      .fixed(bundle::LOCAL_METRICS, bundle::ACCUMULATE, kSumsBytes, "sums")
      .call("squared_norm", wide);

  FunctionBuilder sum(library, "sum_loss");
  for (int term = 0; term < summary.loss_size(); ++term)
    sum.rows(bundle::LOSS, uint32_t(term), bundle::READ, wide, "numerator" + std::to_string(term));
  sum.fixed(bundle::LOCAL_METRICS, bundle::ACCUMULATE, kSumsBytes, "sums").call("sum_loss", wide);

  bundle::LibraryCall &decision =
      FunctionBuilder(library, "decide")
          .fixed(bundle::LOCAL_METRICS, bundle::READ, kSumsBytes, "sums")
          .fixed(bundle::SCALARS, bundle::UPDATE, kScalarsBytes, "scalars")
          .fixed(bundle::OPTIMIZER_STEP, bundle::UPDATE, int64_t(optimizerStepBytes(summary)),
                 "optimizer_step")
          .call("decide", bundle::F64);
  if (scalesLoss(summary))
    (*decision.mutable_integers())["scale_interval"] = summary.training().loss_scale_interval();

  bundle::ElementType copies = bundle::ELEMENT_TYPE_UNSPECIFIED; // all copies have the same type,
                                                                 // the rounding type of the model
  for (const bundle::FlatGroupInfo &group : summary.groups())
    copies = std::max(copies, group.param_dtype());
  if (copies != bundle::ELEMENT_TYPE_UNSPECIFIED)
    FunctionBuilder(library, "cast")
        .rows(bundle::STATE, 0, bundle::READ, wide, "parameters")
        .rows(bundle::PARAMETER, 0, bundle::WRITE, copies, "copy")
        .call("cast", copies);
  if (scalesLoss(summary))
    FunctionBuilder(library, "scale_seeds")
        .fixed(bundle::SCALARS, bundle::UPDATE, kScalarsBytes, "scalars")
        .fixed(bundle::OPTIMIZER_STEP, bundle::READ, int64_t(optimizerStepBytes(summary)),
               "optimizer_step")
        .call("scale_seeds", bundle::F64);
}

/// Adds the compiled functions that sum directly received data. Only GPUs use them; other targets
/// have these compiled functions without launches.
void addDirectSums(bundle::FunctionLibrary &library, const bundle::ModelSummary &summary,
                   uint32_t maxTerms) {
  std::set<bundle::ElementType> types{accumulationType(summary.compute_type()), bundle::F64};
  for (const bundle::UnitClass &unitClass : summary.classes())
    for (const bundle::UnitFunction &function : unitClass.functions())
      for (const bundle::UnitFunction::Exchange &exchange : function.exchanges())
        if (exchange.kind() == bundle::UnitFunction::Exchange::ALL_REDUCE)
          types.insert(exchange.type());
  for (bundle::ElementType type : types)
    for (uint32_t terms = 2; terms <= maxTerms; ++terms) {
      FunctionBuilder sum(library, sumName(type, terms));
      for (uint32_t term = 0; term < terms; ++term)
        sum.rows(bundle::CONTRIBUTION, term, bundle::READ, type, "part" + std::to_string(term));
      sum.rows(bundle::SUM, 0, bundle::WRITE, type, "sum");
      if (isCudaArch(library.arch()))
        sum.call("ranked_sum", type);
    }
}

/// The same for f32 sums of terms that travel as bf16 (step::GradientWire), and the function that
/// rounds them.
void addRoundedSums(bundle::FunctionLibrary &library, const bundle::ModelSummary &summary,
                    uint32_t maxTerms) {
  if (maxTerms < 2 || accumulationType(summary.compute_type()) != bundle::F32)
    return;
  const bool launches = isCudaArch(library.arch());
  FunctionBuilder round(library, kRoundTermsName);
  round.rows(bundle::CONTRIBUTION, 0, bundle::READ, bundle::F32, "part0")
      .rows(bundle::SUM, 0, bundle::WRITE, bundle::BF16, "sum");
  if (launches)
    round.call("cast", bundle::BF16);
  for (bool continues : {false, true})
    for (uint32_t terms = 2; terms <= maxTerms; ++terms) {
      FunctionBuilder sum(library, roundedSumName(terms, continues));
      for (uint32_t term = 0; term < terms; ++term)
        sum.rows(bundle::CONTRIBUTION, term, bundle::READ,
                 continues && term == 0 ? bundle::F32 : bundle::BF16,
                 "part" + std::to_string(term));
      sum.rows(bundle::SUM, 0, bundle::WRITE, bundle::F32, "sum");
      if (launches)
        sum.call("ranked_sum", bundle::F32);
    }
}

} // namespace

void zorse::codegen::appendBuiltinFunctions(MLIRContext *context, CompiledFunctions &functions,
                                            const bundle::ModelSummary &summary,
                                            uint32_t sumTerms) {
  bundle::FunctionLibrary &library = functions.library;
  const int first = library.functions_size();
  addStepFunctions(library, summary);
  addDirectSums(library, summary, sumTerms);
  addRoundedSums(library, summary, sumTerms);

  // Creates kernels for devices without these routines.
  context
      ->loadDialect<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  for (int b = first; b < library.functions_size(); ++b) {
    bundle::CompiledFunction &compiled = *library.mutable_functions(b);
    for (bundle::Launch &launch : *compiled.mutable_launches())
      if (std::optional<Kernel> kernel =
              functions.sources->routine(context, compiled, launch.library())) {
        std::string symbol = functions.sources->add(kernel->hint, std::move(kernel->module));
        *launch.mutable_kernel() = std::move(kernel->launch);
        launch.mutable_kernel()->set_symbol(symbol);
      }
  }
}
