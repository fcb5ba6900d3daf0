// zorse-add-step-functions: builds the optimizer updates, one function per rule.
#include "Optimizers.h"

#include "zorse/Units/Units.h"

#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

namespace zorse::units {
#define GEN_PASS_DEF_ADDSTEPFUNCTIONS
#include "zorse/Units/Passes.h.inc"
} // namespace zorse::units

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

class UpdateBuilder {
public:
  UpdateBuilder(OpBuilder &builder, Location loc, const bundle::ModelSummary &summary,
                const bundle::UpdateRule &rule)
      : builder(builder), loc(loc), training(summary.training()), rule(rule),
        moments(rule.states_size()) {
    Type type = summary.compute_type() == bundle::F64 ? Type(builder.getF64Type())
                                                      : Type(builder.getF32Type());
    SmallVector<int64_t> shape{ShapedType::kDynamic};
    shape.append(rule.block().begin(), rule.block().end());
    shard = RankedTensorType::get(shape, type);
  }

  func::FuncOp addUpdate() {
    Block *block = begin({ScalarField::LearningRate, ScalarField::ClipFactor, ScalarField::Skip});
    Value rate = scalar(block, 0), clip = scalar(block, 1), skip = scalar(block, 2);
    TensorBuilder t{builder, loc};
    ShardUpdate in{
        block->getArgument(0), clipped(t, block->getArgument(1), clip), {}, rate, scalar(block, 3),
        rule.weight_decay()};
    for (int m = 0; m < moments; ++m)
      in.states.push_back(block->getArgument(2 + m));
    if (rule.learning_rate_scale() != 1)
      in.learningRate =
          t.mul(rate, UpdateScalars(t, in.parameter).number(rule.learning_rate_scale()));
    const UpdatedShard out = buildUpdate(t, training, in);
    SmallVector<Value> results{out.parameter};
    llvm::append_range(results, out.states);
    return end(t, block, skip, results);
  }

  /// p - mean over rows of the accumulated values. There is no clipping and no learning rate,
  /// because statistics are not learned. The only state is the moving average of parameters, which
  /// is the statistic itself.
  func::FuncOp addStatisticsUpdate() {
    Block *block = begin({ScalarField::PerRow, ScalarField::Skip});
    TensorBuilder t{builder, loc};
    Value p = block->getArgument(0);
    UpdateScalars s(t, p);
    Value moved = t.sub(p, t.mul(block->getArgument(1), s.use(scalar(block, 0))));
    SmallVector<Value> results(1 + moments, moved);
    return end(t, block, scalar(block, 1), results);
  }

private:
  /// A state with one entry per element has the shape of the block; others are vectors.
  Type typeOf(const bundle::UpdateRule::State &state) const {
    if (state.type() == bundle::ELEMENT_TYPE_UNSPECIFIED && state.entries() == blockElements(rule))
      return shard;
    SmallVector<int64_t> shape{ShapedType::kDynamic, state.entries()};
    return RankedTensorType::get(shape, state.type() == bundle::U8 ? builder.getI8Type()
                                                                   : shard.getElementType());
  }

  DictionaryAttr argument(ArgumentKind kind, uint32_t index,
                          ScalarField field = ScalarField::LossSeed) {
    return builder.getDictionaryAttr(builder.getNamedAttr(
        attributes::kArgument, ArgumentAttr::get(builder.getContext(), kind, index, field)));
  }

  /// Begins a function with the arguments parameters, gradients and optimizer states, then these
  /// scalars and the optimizer step.
  Block *begin(ArrayRef<ScalarField> fields) {
    auto f64 = RankedTensorType::get({}, builder.getF64Type()),
         i64 = RankedTensorType::get({}, builder.getI64Type());
    SmallVector<Type> arguments(2, shard), results(1, shard);
    for (const bundle::UpdateRule::State &state : rule.states()) {
      arguments.push_back(typeOf(state));
      results.push_back(arguments.back());
    }
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
    auto function = func::FuncOp::create(builder, loc, "update." + rule.name(),
                                         builder.getFunctionType(arguments, results));
    function.setAllArgAttrs(argumentArguments);
    function.setAllResultAttrs(resultArguments);
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToEnd(block);
    return block;
  }

  Value scalar(Block *block, int index) { return block->getArgument(2 + moments + index); }

  Value clipped(TensorBuilder &t, Value gradient, Value factor) {
    Value g = t.mul(gradient, UpdateScalars(t, gradient).use(factor));
    if (training.clip_value() == 0)
      return g;
    auto limit = [&](double value, arith::CmpFPredicate beyond) {
      Value bound = t.splat(g, value);
      g = t.select(t.make<arith::CmpFOp>(beyond, g, bound), bound, g);
    };
    limit(training.clip_value(), arith::CmpFPredicate::OGT);
    limit(-training.clip_value(), arith::CmpFPredicate::OLT);
    return g;
  }

  /// Ends the function: results are the updated values, or the old ones if the step is skipped.
  func::FuncOp end(TensorBuilder &t, Block *block, Value skip, ArrayRef<Value> updated) {
    Value skipped = t.make<arith::CmpIOp>(arith::CmpIPredicate::ne, skip, t.splat(skip, 0));
    SmallVector<Value> results;
    for (auto [i, value] : llvm::enumerate(updated)) {
      Value old = block->getArgument(i == 0 ? 0 : i + 1);
      results.push_back(t.select(t.everywhere(skipped, old), old, value));
    }
    auto returned = func::ReturnOp::create(builder, loc, results);
    auto function = returned->getParentOfType<func::FuncOp>();
    builder.setInsertionPointAfter(function);
    return function;
  }

  OpBuilder &builder;
  Location loc;
  const bundle::TrainingOptions &training;
  const bundle::UpdateRule &rule;
  int moments;
  RankedTensorType shard; ///< of elements, or of matrices
};

struct AddStepFunctionsPass : units::impl::AddStepFunctionsBase<AddStepFunctionsPass> {
  void runOnOperation() final {
    FailureOr<bundle::ModelSummary> summary = summarize(getOperation());
    if (failed(summary))
      return signalPassFailure();
    auto model = getOperation().lookupSymbol<func::FuncOp>(attributes::kModel);
    OpBuilder builder(model.getContext());
    builder.setInsertionPointToEnd(model->getBlock());
    for (const bundle::UpdateRule &rule : summary->update_rules())
      addUpdateFunction(builder, model.getLoc(), *summary, rule);
  }
};

} // namespace

func::FuncOp units::addUpdateFunction(OpBuilder &builder, Location loc,
                                      const bundle::ModelSummary &summary,
                                      const bundle::UpdateRule &rule) {
  UpdateBuilder update(builder, loc, summary, rule);
  return rule.running_stat() ? update.addStatisticsUpdate() : update.addUpdate();
}
