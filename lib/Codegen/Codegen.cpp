#include "zorse/Codegen/Codegen.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Summary/Summary.h"

#include "KernelSet.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

FailureOr<CompiledBodies> zorse::codegen::compileBodies(ModuleOp functions, const CodegenOptions &options) {
  FailureOr<CompiledBodies> bodies = lowerBodies(functions, options);
  if (failed(bodies) || failed(compileKernels(*bodies, functions.getLoc())))
    return failure();
  return bodies;
}

std::shared_ptr<KernelSet> zorse::codegen::makeKernels(const CodegenOptions &options) {
  return isCudaArch(options.arch) ? makeCudaKernels(options) : makeProcessorKernels(options);
}

/// What GPUs may take beside the model's own arithmetic, where it was asked for.
static void allowFasterProducts(bundle::BodyLibrary &library, bool tf32, bool sumsF16) {
  for (bundle::Body &body : *library.mutable_bodies())
    for (bundle::Launch &launch : *body.mutable_launches()) {
      if (!launch.has_product() || launch.product().operand_type() != bundle::ELEMENT_TYPE_UNSPECIFIED) // results are of the operands' type
        continue;
      bundle::MatrixProduct &product = *launch.mutable_product();
      product.set_tf32(tf32 && product.type() == bundle::F32);
      product.set_sums_f16(sumsF16 && product.type() == bundle::F16);
    }
}

FailureOr<CompiledBodies> zorse::codegen::lowerBodies(ModuleOp functions, const CodegenOptions &options) {
  MLIRContext *context = functions.getContext();
  context->loadDialect<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  CompiledBodies result;
  result.sources = makeKernels(options);
  bool ok = true;
  for (func::FuncOp function : functionsInOrder(functions)) {
    if (function.isDeclaration() || (function.getNumArguments() == 0 && function.getNumResults() == 0))
      continue;
    BodyFacts facts;
    // All functions are tried, so that every unsupported op is reported at once.
    ok &= succeeded(lowerFunction(function, *result.sources, *result.library.add_bodies(), facts));
  }
  if (!ok)
    return failure();
  if (isCudaArch(options.arch))
    allowFasterProducts(result.library, options.tf32 && DeviceKind::hasTf32(options.arch), options.sumsF16);
  result.library.set_arch(result.sources->arch());
  result.library.add_objects(result.sources->object());
  return result;
}

LogicalResult zorse::codegen::compileKernels(CompiledBodies &bodies, Location location) {
  bodies.kernels = bodies.sources->size();
  llvm::Expected<std::string> object = bodies.sources->link(bodies.compiled);
  if (!object)
    return emitError(location) << llvm::toString(object.takeError());
  bodies.object = std::move(*object);
  if (const std::string &folder = bodies.sources->dumpDir(); !folder.empty()) {
    std::error_code error;
    llvm::raw_fd_ostream out(folder + "/bodies.txt", error);
    if (!error)
      out << bodies.library.DebugString();
  }
  bodies.sources.reset();
  return success();
}

std::string zorse::codegen::sumName(bundle::ElementType type, uint32_t terms) {
  return std::string("sum.") + elementTypeName(type) + "." + std::to_string(terms);
}

void zorse::codegen::appendBuiltinBodies(MLIRContext *context, CompiledBodies &bodies, const bundle::ModelSummary &summary, uint32_t sumTerms) {
  bundle::BodyLibrary &library = bodies.library;
  const int first = library.bodies_size();
  const bundle::ElementType wide = wideType(summary.compute_type());
  const unsigned lossTerms = unsigned(summary.loss_size());
  bundle::ElementType copies = bundle::ELEMENT_TYPE_UNSPECIFIED; // all of one type, that of the model's roundings
  for (const bundle::GroupInfo &group : summary.groups())
    copies = std::max(copies, group.copy_type());
  auto addSlot = [](bundle::Body &body, bundle::SlotKind kind, uint32_t index, bundle::AccessMode mode, int64_t fixed, int64_t perRow,
                    bundle::ElementType element, StringRef name) {
    bundle::Slot &slot = *body.add_slots();
    slot.set_kind(kind);
    slot.set_index(index);
    slot.set_mode(mode);
    slot.mutable_bytes()->set_fixed(fixed);
    slot.mutable_bytes()->set_per_row(perRow);
    slot.set_type(element);
    slot.set_name(name.str());
  };
  auto addCall = [](bundle::Body &body, StringRef name, unsigned operands, bundle::ElementType element) -> bundle::LibraryCall & {
    bundle::LibraryCall &call = *body.add_launches()->mutable_library();
    call.set_name(name.str());
    call.set_type(element);
    for (unsigned i = 0; i < operands; ++i)
      call.add_operands()->set_slot(i);
    return call;
  };
  int64_t bytes = int64_t(zorse::elementBytes(wide));
  bundle::Body &norm = *library.add_bodies();
  norm.set_name("norm");
  addSlot(norm, bundle::STATE, 1, bundle::READ, 0, bytes, wide, "gradients");
  addSlot(norm, bundle::SUMS_SLOT, 0, bundle::ACCUMULATE, kSumsBytes, 0, bundle::F64, "sums");
  addCall(norm, "squared_norm", 2, wide);

  bundle::Body &sum = *library.add_bodies();
  sum.set_name("sum_loss");
  for (unsigned term = 0; term < lossTerms; ++term)
    addSlot(sum, bundle::LOSS, term, bundle::READ, 0, bytes, wide, "numerator" + std::to_string(term));
  addSlot(sum, bundle::SUMS_SLOT, 0, bundle::ACCUMULATE, kSumsBytes, 0, bundle::F64, "sums");
  addCall(sum, "sum_loss", lossTerms + 1, wide);

  bundle::Body &decide = *library.add_bodies();
  decide.set_name("decide");
  addSlot(decide, bundle::SUMS_SLOT, 0, bundle::READ, kSumsBytes, 0, bundle::F64, "sums");
  addSlot(decide, bundle::SCALARS, 0, bundle::UPDATE, kScalarsBytes, 0, bundle::F64, "scalars");
  addSlot(decide, bundle::OPTIMIZER_STEP_SLOT, 0, bundle::UPDATE, int64_t(optimizerStepBytes(summary)), 0, bundle::F64, "optimizer_step");
  bundle::LibraryCall &decision = addCall(decide, "decide", 3, bundle::F64);

  if (copies != bundle::ELEMENT_TYPE_UNSPECIFIED) {
    bundle::Body &cast = *library.add_bodies();
    cast.set_name("cast");
    addSlot(cast, bundle::STATE, 0, bundle::READ, 0, bytes, wide, "parameters");
    addSlot(cast, bundle::PARAMETER, 0, bundle::WRITE, 0, int64_t(zorse::elementBytes(copies)), copies, "copy");
    addCall(cast, "cast", 2, copies);
  }
  if (scalesLoss(summary)) {
    (*decision.mutable_integers())["scale_interval"] = summary.training().loss_scale_interval();
    bundle::Body &scale = *library.add_bodies();
    scale.set_name("scale_seeds");
    addSlot(scale, bundle::SCALARS, 0, bundle::UPDATE, kScalarsBytes, 0, bundle::F64, "scalars");
    addSlot(scale, bundle::OPTIMIZER_STEP_SLOT, 0, bundle::READ, int64_t(optimizerStepBytes(summary)), 0, bundle::F64, "optimizer_step");
    addCall(scale, "scale_seeds", 2, bundle::F64);
  }

  // GPUs alone add what they receive from each other directly: other targets have these bodies without launches.
  const std::set<bundle::ElementType> summed = {wide, bundle::F64};
  for (bundle::ElementType type : summed)
    for (uint32_t terms = 2; terms <= sumTerms; ++terms) {
      bundle::Body &sum = *library.add_bodies();
      sum.set_name(sumName(type, terms));
      for (uint32_t term = 0; term < terms; ++term)
        addSlot(sum, bundle::PART, term, bundle::READ, 0, int64_t(zorse::elementBytes(type)), type, "part" + std::to_string(term));
      addSlot(sum, bundle::SUM, 0, bundle::WRITE, 0, int64_t(zorse::elementBytes(type)), type, "sum");
      if (isCudaArch(library.arch()))
        addCall(sum, "ranked_sum", terms + 1, type);
    }

  // Devices without these routines get kernels.
  context->loadDialect<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  for (int b = first; b < library.bodies_size(); ++b) {
    bundle::Body &body = *library.mutable_bodies(b);
    for (bundle::Launch &launch : *body.mutable_launches())
      if (std::optional<Kernel> kernel = bodies.sources->routine(context, body, launch.library())) {
        std::string symbol = bodies.sources->add(kernel->hint, std::move(kernel->module));
        *launch.mutable_kernel() = std::move(kernel->launch);
        launch.mutable_kernel()->set_symbol(symbol);
      }
  }
}
