// `zorse-derive-sharding`: prints how tensor parallelism would divide every class.
#include "ChooseOps.h"

#include "zorse/Sharding/DivideUnits.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Base/Format.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

/// Ops that are named as undivided, at most.
static constexpr size_t kNamedOps = 4;

static std::string nameOf(func::FuncOp joint, BlockArgument argument) {
  ArgumentAttr attribute = attributeOfArgument(joint, argument.getArgNumber());
  return stringifyArgumentKind(attribute.getKind()).str() + " " +
         std::to_string(attribute.getIndex());
}

std::string sharding::toString(const ClassSharding &sharding, func::FuncOp joint) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (auto [number, axis] : llvm::enumerate(sharding.axes)) {
    os << axis.name << ": " << axis.granules << " granules;";
    for (BlockArgument argument : joint.getArguments())
      if (auto it = sharding.values.find(argument);
          it != sharding.values.end() && it->second.axis == number)
        os << ' ' << nameOf(joint, argument) << " dim " << it->second.dim.dim << " ["
           << toString(it->second.dim.map) << ']';
    os << '\n';
  }
  os << "exchanges: " << sharding.reduced.size() << " all-reduce, " << sharding.gathered.size()
     << " all-gather";
  if (sharding.combined)
    os << ", " << sharding.combined << " of a loss";
  os << '\n';
  os << "divided: " << showPercent(sharding.flops > 0 ? sharding.dividedFlops / sharding.flops : 0)
     << " of the FLOPs";
  for (auto [i, undivided] : llvm::enumerate(sharding.undivided)) {
    if (i == kNamedOps)
      break;
    os << (i ? ", " : "; whole: ") << undivided.op->getName();
    if (!undivided.reason.empty())
      os << " (" << undivided.reason << ')';
  }
  return text;
}

namespace {
struct DeriveShardingPass : PassWrapper<DeriveShardingPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DeriveShardingPass)
  DeriveShardingPass() = default;
  DeriveShardingPass(const DeriveShardingPass &other) : PassWrapper(other) {}

  StringRef getArgument() const final { return "zorse-derive-sharding"; }
  StringRef getDescription() const final {
    return "Print how tensor parallelism divides the joint function of every class";
  }

  void runOnOperation() final {
    for (auto unitClass : getOperation().getOps<ClassOp>())
      if (func::FuncOp joint = unitClass.function(Task::Joint)) {
        autodiff::dropPairs(joint);
        unitClass.emitRemark() << "class '" << unitClass.getSymName()
                               << "': " << toString(deriveSharding(joint, flopsPerByte), joint);
      }
  }

  Option<double> flopsPerByte{
      *this, "flops-per-byte",
      llvm::cl::desc("FLOPs that a device computes in the time of one exchanged byte"),
      llvm::cl::init(kFlopsPerByte)};
};
} // namespace

std::unique_ptr<Pass> sharding::createDeriveSharding() {
  return std::make_unique<DeriveShardingPass>();
}

void sharding::registerPasses() {
  PassRegistration<DeriveShardingPass>();
  registerPass([] { return createDivideUnits(); });
}
