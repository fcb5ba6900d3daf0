#include "FunctionLowering.h"

#include "ArgumentLayout.h"
#include "Decompose.h"
#include "Fusion.h"
#include "LibraryOps.h"
#include "Prepare.h"
#include "Workspace.h"

#include "zorse/Dialect/Zorse/EraseDeadOps.h"
#include "zorse/runtime/abi/Library.h"
#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

/// Reports every op that kernels cannot contain.
LogicalResult checkOps(func::FuncOp function, StringRef device) {
  bool ok = true;
  for (Operation &op : function.getBody().front().without_terminator()) {
    bool known =
        isa_and_nonnull<ZorseDialect, arith::ArithDialect, math::MathDialect>(op.getDialect());
    auto isTensor = [](Type type) {
      return isGraphTensor(type) && bundleType(type) != bundle::ELEMENT_TYPE_UNSPECIFIED;
    };
    if (!known || !llvm::all_of(op.getResultTypes(), isTensor) ||
        !llvm::all_of(op.getOperandTypes(), isTensor)) {
      op.emitOpError("has no ") << device
                                << " code: kernels are built from zorse, arith and math ops on "
                                   "tensors of f32, f64, bf16, f16, i64, i32 and i1";
      ok = false;
    } else if (auto constant = dyn_cast<arith::ConstantOp>(op);
               constant && !isa<DenseElementsAttr>(constant.getValue())) {
      // Converts constants in resources to plain constants.
      auto resource = dyn_cast<DenseResourceElementsAttr>(constant.getValue());
      AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
      bool splat;
      if (blob && DenseElementsAttr::isValidRawBuffer(resource.getType(), blob->getData(), splat)) {
        constant.setValueAttr(
            DenseElementsAttr::getFromRawBuffer(resource.getType(), blob->getData()));
      } else {
        op.emitOpError("expects its elements in the module");
        ok = false;
      }
    }
  }
  return success(ok);
}

void collectNames(Location loc, SmallVectorImpl<std::string> &names, llvm::StringSet<> &seen) {
  loc->walk([&](Location part) {
    if (auto name = dyn_cast<NameLoc>(part); name && seen.insert(name.getName().getValue()).second)
      names.push_back(name.getName().str());
    return WalkResult::advance();
  });
}

std::string originOf(ArrayRef<Operation *> ops) {
  SmallVector<std::string> names;
  llvm::StringSet<> seen;
  for (Operation *op : ops)
    collectNames(op->getLoc(), names, seen);
  std::string origin;
  for (auto [i, name] : llvm::enumerate(names)) {
    if (i == 4) {
      origin += ", and " + std::to_string(names.size() - 4) + " more";
      break;
    }
    origin += (i ? ", " : "") + name;
  }
  return origin;
}

/// Whether a fusion group computes nothing: a device without a share of an axis has values without
/// elements.
bool isWithoutElements(const FusionGroup &fusionGroup) {
  return llvm::all_of(fusionGroup.ops, [](Operation *op) {
    return op->getNumResults() > 0 && llvm::all_of(op->getResultTypes(), [](Type type) {
             return llvm::is_contained(cast<ShapedType>(type).getShape(), 0);
           });
  });
}

struct Lowering {
  func::FuncOp function;
  Emitter &emitter;
  bundle::CompiledFunction &compiled;
  FunctionSizes &sizes;
  ArgumentLayout arguments;
  BufferAliases aliases;
  FusionPlan plan;
  Workspace workspace;
  Place workspacePlace;

  Lowering(func::FuncOp function, Emitter &emitter, bundle::CompiledFunction &compiled,
           FunctionSizes &sizes)
      : function(function), emitter(emitter), compiled(compiled), sizes(sizes),
        arguments(compiled) {}

  Place placeOf(Value root) {
    auto alias = aliases.find(root);
    if (alias != aliases.end())
      return alias->second.container ? placeOf(alias->second.container)
                                     : arguments.results[alias->second.result];
    if (auto argument = dyn_cast<BlockArgument>(root))
      return arguments.arguments[argument.getArgNumber()];
    Place place = workspace.places.lookup(root);
    place.argument = workspacePlace.argument;
    return place;
  }

  bundle::Pointer pointer(Value root, int64_t offset) {
    Place place = root ? placeOf(root) : arguments.scalars();
    bundle::Pointer pointer;
    pointer.set_argument(place.argument);
    pointer.set_fixed(place.fixed + (root ? offset * elementBytes(root.getType()) : 0));
    pointer.set_per_row(place.perRow);
    return pointer;
  }

  /// Bytes from element `offset` of the buffer that holds `root` to the end of `root` in it.
  bundle::AffineSize reach(Value root, int64_t offset) {
    bundle::AffineSize bytes;
    if (!root) {
      bytes.set_fixed(offsetof(abi::StepScalars, sums));
      return bytes;
    }
    auto type = cast<RankedTensorType>(root.getType());
    Layout layout = storageLayout(root, aliases);
    int64_t fixed = layout.offset - offset + 1, perRow = 0;
    for (auto [size, stride] : llvm::zip(type.getShape(), layout.strides)) {
      fixed += (ShapedType::isDynamic(size) ? -1 : size - 1) * stride;
      perRow += ShapedType::isDynamic(size) ? stride : 0;
    }
    bytes.set_fixed(fixed * elementBytes(type));
    bytes.set_per_row(perRow * elementBytes(type));
    return bytes;
  }

  bool accumulates(Value root) {
    auto alias = aliases.find(root);
    return alias != aliases.end() && !alias->second.container &&
           arguments.resultAccumulates(alias->second.result);
  }

  void addBytes(const bundle::AffineSize &bytes) { sizes.bytesPerRow += bytes.per_row(); }

  void lowerKernel(Kernel kernel, bundle::Launch &launch) {
    addBytes(kernel.launch.cost());
    std::string symbol = emitter.add(kernel.hint, std::move(kernel.module));
    *launch.mutable_kernel() = std::move(kernel.launch);
    launch.mutable_kernel()->set_symbol(symbol);
  }

  void lowerMatmul(Operation *op, bundle::Launch &launch) {
    MatmulPlan plan = *planMatmul(op, aliases);
    bundle::Matmul &matmul = *launch.mutable_matmul();
    matmul = plan.matmul;
    Value result = op->getResult(0);
    *matmul.mutable_a() = pointer(plan.a.root, plan.a.layout.offset);
    *matmul.mutable_b() = pointer(plan.b.root, plan.b.layout.offset);
    *matmul.mutable_c() = pointer(result, storageLayout(result, aliases).offset);
    matmul.set_accumulates(accumulates(result));
    if (plan.bias)
      *matmul.mutable_bias() = pointer(plan.bias->root, plan.bias->layout.offset);
    sizes.flopsPerRow += plan.flopsPerRow;
    for (Value value : {op->getOperand(0), op->getOperand(1), result})
      addBytes(tensorBytes(value.getType()));
  }

  KernelContext kernelContext() {
    return {function.getContext(),
            plan,
            aliases,
            [this](Value root, int64_t offset) {
              return KernelBuilder::Place{pointer(root, offset), reach(root, offset)};
            },
            [this](Value root) { return accumulates(root); },
            [this](int cluster) { return scratchOf(cluster); }};
  }

  /// The scratch buffer that the launches of a cluster share.
  KernelBuilder::Place scratchOf(int cluster) {
    const Place place = workspace.scratch.lookup(cluster);
    KernelBuilder::Place scratch;
    scratch.pointer.set_argument(workspacePlace.argument);
    scratch.pointer.set_fixed(place.fixed);
    scratch.pointer.set_per_row(place.perRow);
    scratch.reach.set_per_row(
        emitter.attentionScratch(plan.fusionGroups[size_t(cluster)].ops.front()));
    return scratch;
  }

  bundle::Launch &addLaunch(const FusionGroup &fusionGroup) {
    bundle::Launch &launch = *compiled.add_launches();
    launch.set_origin(originOf(fusionGroup.ops));
    return launch;
  }

  /// Adds the kernels of an attention, or a call of the device's routine if it has no kernels.
  LogicalResult lowerAttention(int index) {
    const FusionGroup &fusionGroup = plan.fusionGroups[size_t(index)];
    FailureOr<std::vector<Kernel>> kernels = emitter.attention(kernelContext(), index);
    if (failed(kernels))
      return failure();
    for (Kernel &kernel : *kernels)
      lowerKernel(std::move(kernel), addLaunch(fusionGroup));
    if (kernels->empty())
      callAttention(fusionGroup.ops.front(), addLaunch(fusionGroup));
    else
      sizes.flopsPerRow += planAttention(fusionGroup.ops.front(), aliases)->flopsPerRow;
    return success();
  }

  void callAttention(Operation *op, bundle::Launch &launch) {
    AttentionPlan plan = *planAttention(op, aliases);
    bundle::LibraryCall &call = *launch.mutable_library();
    call = plan.call;
    auto absent = [&] { call.add_operands()->set_argument(abi::kAbsentArgument); };
    for (auto [position, value] : llvm::enumerate(plan.operands)) {
      if (!value) {
        absent();
        continue;
      }
      if (position >= plan.firstResult) {
        *call.add_operands() = pointer(value, storageLayout(value, aliases).offset);
        if (accumulates(value))
          call.add_accumulates(position);
      } else {
        View view = *viewOf(value, aliases);
        *call.add_operands() = pointer(view.root, view.layout.offset);
      }
      addBytes(tensorBytes(value.getType()));
    }
    if (call.reals().at("dropout") > 0) {
      absent(); // workspace
      *call.add_operands() = pointer(Value(), 0);
    }
    sizes.flopsPerRow += plan.flopsPerRow;
  }

  /// A buffer that is both argument and result is overwritten by the launch that computes the
  /// result. No later op may read the argument.
  LogicalResult checkUpdatesInPlace() {
    llvm::DenseMap<uint32_t, int> writer;
    for (auto &[value, alias] : aliases)
      if (!alias.container &&
          compiled.arguments(arguments.results[alias.result].argument).mode() == bundle::UPDATE)
        writer[arguments.results[alias.result].argument] = plan.availableAfter(value);
    for (auto [index, fusionGroup] : llvm::enumerate(plan.fusionGroups))
      for (Operation *op : fusionGroup.ops)
        for (Value operand : op->getOperands())
          if (auto argument = dyn_cast<BlockArgument>(rootOf(operand))) {
            auto found = writer.find(arguments.arguments[argument.getArgNumber()].argument);
            if (found != writer.end() && static_cast<int>(index) > found->second)
              return op->emitOpError("reads argument ")
                     << argument.getArgNumber()
                     << " after its argument was updated in place; expects updates to be one "
                        "elementwise kernel";
          }
    return success();
  }

  LogicalResult run() {
    if (failed(checkOps(function, emitter.name())) || failed(emitter.prepare(function)))
      return failure();
    decomposeRowOps(function);
    IRRewriter rewriter(function.getContext());
    DominanceInfo dominance(function);
    eliminateCommonSubExpressions(rewriter, dominance, function);
    decomposeColumnOps(function);
    eraseDeadOps(function.getBody().front());

    FailureOr<BufferAliases> claimed = assignAliases(function, emitter.wantsFewLaunches());
    if (failed(claimed))
      return failure();
    aliases = std::move(*claimed);
    eraseDeadOps(function.getBody().front());
    if (!orderByExchanges(function) && emitter.wantsFewLaunches())
      moveParameterGradientsLast(function);
    FailureOr<FusionPlan> clustered =
        formFusionGroups(function, aliases, emitter.wantsFewLaunches());
    if (failed(clustered))
      return failure();
    plan = std::move(*clustered);
    if (failed(checkUpdatesInPlace()))
      return failure();
    workspace = allocateWorkspace(plan, aliases, [&](const FusionGroup &fusionGroup) {
      return fusionGroup.kind == FusionGroup::Attention && !fusionGroup.ops.empty()
                 ? emitter.attentionScratch(fusionGroup.ops.front())
                 : 0;
    });
    if (workspace.bytes.fixed() != 0 || workspace.bytes.per_row() != 0)
      workspacePlace = arguments.workspace(workspace.bytes);

    const KernelContext context = kernelContext();
    for (auto [index, fusionGroup] : llvm::enumerate(plan.fusionGroups)) {
      if (isWithoutElements(fusionGroup))
        continue;
      if (fusionGroup.kind == FusionGroup::Attention) {
        if (failed(lowerAttention(int(index))))
          return failure();
        continue;
      }
      bundle::Launch &launch = addLaunch(fusionGroup);
      switch (fusionGroup.kind) {
      case FusionGroup::Row:
        lowerKernel(emitter.row(context, int(index)), launch);
        break;
      case FusionGroup::Column:
        lowerKernel(emitter.column(context, int(index)), launch);
        break;
      case FusionGroup::Scatter:
        lowerKernel(emitter.scatter(context, int(index)), launch);
        break;
      case FusionGroup::Matmul:
        lowerMatmul(fusionGroup.ops.front(), launch);
        break;
      case FusionGroup::Exchange:
        launch.mutable_exchange()->set_argument(
            placeOf(fusionGroup.ops.front()->getResult(0)).argument);
        break;
      case FusionGroup::Attention:
        break; // lowered above
      }
    }
    sizes.saved = arguments.savedBytes();
    sizes.workspace = workspace.bytes;
    compiled.set_flops_per_row(sizes.flopsPerRow);
    return success();
  }
};

} // namespace

LogicalResult zorse::codegen::lowerFunction(func::FuncOp function, Emitter &emitter,
                                            bundle::CompiledFunction &compiled,
                                            FunctionSizes &sizes) {
  compiled.set_name(compiledFunctionName(function));
  if (!function.getBody().hasOneBlock())
    return function.emitError("expects a straight-line function with a body");
  OpBuilder builder(function.getContext());
  OwningOpRef<ModuleOp> scratch = ModuleOp::create(function.getLoc());
  builder.setInsertionPointToEnd(scratch->getBody());
  auto clone = cast<func::FuncOp>(builder.clone(*function));
  Lowering lowering(clone, emitter, compiled, sizes);
  // Arguments are assigned from the original function: its module contains the forward that lays
  // out the saved tensors.
  if (failed(lowering.arguments.assign(function)))
    return failure();
  return lowering.run();
}
