// zorse-add-step-functions: builds the optimizer updates.
#include "zorse/Units/Units.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace zorse::units {
#define GEN_PASS_DEF_ADDSTEPFUNCTIONS
#include "zorse/Units/Passes.h.inc"
} // namespace zorse::units

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

using Training = bundle::TrainingOptions;

class UpdateBuilder {
public:
  UpdateBuilder(func::FuncOp model, const bundle::ModelSummary &summary)
      : builder(model.getContext()), loc(model.getLoc()), training(summary.training()),
        moments(int(summary.moments())) {
    builder.setInsertionPointToEnd(model->getBlock());
    Type type = summary.compute_type() == bundle::F64 ? Type(builder.getF64Type())
                                                      : Type(builder.getF32Type());
    shard = RankedTensorType::get({ShapedType::kDynamic}, type);
  }

  void addUpdate(bool decay) {
    Block *block = begin(decay ? "update.decay" : "update.plain",
                         {ScalarField::LearningRate, ScalarField::ClipFactor, ScalarField::Skip});
    const bool sgd = training.optimizer() == Training::SGD ||
                     training.optimizer() == Training::OPTIMIZER_UNSPECIFIED;
    SmallVector<Value> scalars(block->getArguments().drop_front(2 + moments)),
        states(block->getArguments().take_front(2 + moments));
    NamedAttrList attributes;
    attributes.set("weight_decay", real(decay ? training.weight_decay() : 0.0));
    SmallVector<Value> operands;
    if (sgd) {
      operands = {states[0], states[1]};
      llvm::append_range(operands, scalars);
      if (moments)
        operands.push_back(states[2]);
      attributes.set("momentum", real(training.momentum()));
      if (training.nesterov())
        attributes.set("nesterov", builder.getUnitAttr());
      attributes.set("operandSegmentSizes",
                     builder.getDenseI32ArrayAttr({1, 1, 1, 1, 1, 1, moments}));
    } else {
      operands = states;
      llvm::append_range(operands, scalars);
      attributes.set("beta1", real(training.beta1()));
      attributes.set("beta2", real(training.beta2()));
      attributes.set("epsilon", real(training.epsilon()));
      if (training.optimizer() == Training::ADAMW)
        attributes.set("decoupled", builder.getUnitAttr());
      if (training.epsilon_before_bias_correction())
        attributes.set("epsilon_before_bias_correction", builder.getUnitAttr());
    }
    OperationState update(loc,
                          sgd ? SgdUpdateOp::getOperationName() : AdamUpdateOp::getOperationName());
    update.addOperands(operands);
    update.addAttributes(attributes);
    update.addTypes(SmallVector<Type>(1 + moments, shard));
    end(builder.create(update)->getResults());
  }

  /// p - mean over rows of the accumulated values. Optimizer states, which every group has, are
  /// unchanged. There is no clipping and no learning rate, because statistics are not learned.
  void addStatisticsUpdate() {
    Block *block = begin("update.statistics", {ScalarField::PerRow, ScalarField::Skip});
    auto constant = [&](Type element, double value) -> Value {
      auto type = RankedTensorType::get({}, element);
      return arith::ConstantOp::create(
          builder, loc,
          DenseElementsAttr::get(type, Attribute(builder.getFloatAttr(element, value))));
    };
    Value one = constant(builder.getF64Type(), 1.0);
    OperationState update(loc, SgdUpdateOp::getOperationName());
    update.addOperands({block->getArgument(0), block->getArgument(1),
                        block->getArgument(2 + moments), one, block->getArgument(3 + moments),
                        block->getArgument(4 + moments)});
    update.addAttribute("weight_decay", real(0));
    update.addAttribute("momentum", real(0));
    update.addAttribute("operandSegmentSizes", builder.getDenseI32ArrayAttr({1, 1, 1, 1, 1, 1, 0}));
    update.addTypes(shard);
    SmallVector<Value> results{builder.create(update)->getResult(0)};
    for (int m = 0; m < moments; ++m) {
      Value zero = BroadcastOp::create(builder, loc, shard, constant(shard.getElementType(), 0.0),
                                       ArrayRef<int64_t>{});
      results.push_back(arith::AddFOp::create(builder, loc, block->getArgument(2 + m), zero));
    }
    end(results);
  }

private:
  Attribute real(double value) { return builder.getF64FloatAttr(value); }

  DictionaryAttr argument(ArgumentKind kind, uint32_t index,
                          ScalarField field = ScalarField::LossSeed) {
    return builder.getDictionaryAttr(builder.getNamedAttr(
        attributes::kArgument, ArgumentAttr::get(builder.getContext(), kind, index, field)));
  }

  /// Begins a function with the arguments parameters, gradients and optimizer states, then these
  /// scalars and the optimizer step.
  Block *begin(StringRef name, ArrayRef<ScalarField> fields) {
    auto f64 = RankedTensorType::get({}, builder.getF64Type()),
         i64 = RankedTensorType::get({}, builder.getI64Type());
    SmallVector<Type> arguments(2 + moments, shard), results(1 + moments, shard);
    SmallVector<DictionaryAttr> argumentArguments, resultArguments;
    for (int i = 0; i < 2 + moments; ++i) {
      argumentArguments.push_back(argument(ArgumentKind::State, uint32_t(i)));
      if (i != 1)
        resultArguments.push_back(argument(ArgumentKind::State, uint32_t(i)));
    }
    for (ScalarField field : fields) {
      arguments.push_back(field == ScalarField::Skip ? i64 : f64);
      argumentArguments.push_back(argument(ArgumentKind::Scalars, 0, field));
    }
    arguments.push_back(f64);
    argumentArguments.push_back(argument(ArgumentKind::OptimizerStep, 0));
    auto function =
        func::FuncOp::create(builder, loc, name, builder.getFunctionType(arguments, results));
    function.setAllArgAttrs(argumentArguments);
    function.setAllResultAttrs(resultArguments);
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToEnd(block);
    return block;
  }

  void end(ValueRange results) {
    auto returned = func::ReturnOp::create(builder, loc, results);
    builder.setInsertionPointAfter(returned->getParentOp());
  }

  OpBuilder builder;
  Location loc;
  const Training &training;
  int moments;
  RankedTensorType shard;
};

struct AddStepFunctionsPass : units::impl::AddStepFunctionsBase<AddStepFunctionsPass> {
  void runOnOperation() final {
    FailureOr<bundle::ModelSummary> summary = summarize(getOperation());
    if (failed(summary))
      return signalPassFailure();
    UpdateBuilder updates(getOperation().lookupSymbol<func::FuncOp>(attributes::kModel), *summary);
    if (llvm::any_of(summary->groups(),
                     [](const bundle::FlatGroupInfo &group) { return group.running_stat(); }))
      updates.addStatisticsUpdate();
    updates.addUpdate(/*decay=*/true);
    updates.addUpdate(/*decay=*/false);
  }
};

} // namespace
