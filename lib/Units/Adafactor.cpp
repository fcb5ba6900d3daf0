#include "Adafactor.h"

#include "mlir/IR/BuiltinTypes.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

class Adafactor {
public:
  Adafactor(TensorBuilder &t, const bundle::TrainingOptions &training, const ShardUpdate &in)
      : t(t), s(t, in.parameter), training(training), in(in), g(in.gradient) {
    for (const int64_t extent : TensorBuilder::typeOf(g).getShape().drop_front())
      elements *= static_cast<double>(extent);
  }

  UpdatedShard build(Value parameter) {
    Value update = t.div(g, t.sqrt(atLeast(secondMoment(), epsilon() * epsilon())));
    Value excess = t.scale(rootMeanSquare(update), 1 / training.update_clip());
    Value factor = t.div(rates(excess), atLeast(excess, 1));
    return {t.sub(parameter,
                  t.mul(t.make<BroadcastOp>(g.getType(), factor, ArrayRef<int64_t>{0}), update)),
            std::move(next)};
  }

private:
  /// The learning rate of every parameter.
  Value rates(Value like) {
    if (training.absolute_updates())
      return everywhere(in.learningRate, like);
    Value size = atLeast(rootMeanSquare(in.parameter), training.epsilon2());
    Value inverse = t.div(s.number(1), t.sqrt(in.step));
    Value isSmaller = t.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, in.learningRate, inverse);
    return t.mul(size, everywhere(t.select(isSmaller, in.learningRate, inverse), size));
  }
  Value everywhere(Value scalar, Value like) {
    return t.everywhere(t.cast(scalar, TensorBuilder::elementOf(like)), like);
  }
  Value atLeast(Value x, double least) {
    Value bound = t.splat(x, least);
    return t.select(t.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, bound), bound, x);
  }
  /// As in PyTorch, the default depends on the type of the parameters.
  double epsilon() const {
    if (training.epsilon() > 0)
      return training.epsilon();
    return TensorBuilder::elementOf(g).isF64() ? std::numeric_limits<double>::epsilon()
                                               : double(std::numeric_limits<float>::epsilon());
  }
  /// One number per parameter.
  Value rootMeanSquare(Value x) {
    Value sum = t.mul(x, x);
    while (TensorBuilder::typeOf(sum).getRank() > 1)
      sum = t.sumLast(sum);
    return t.sqrt(t.scale(sum, 1 / elements));
  }
  /// Moves a mean towards a new one by step^(beta2 decay), and keeps it as the next state.
  Value moved(Value mean) {
    Value state = t.reshape(in.states[next.size()], TensorBuilder::typeOf(mean).getShape());
    Value weight = s.rootPower(in.step, training.beta2_decay());
    Value result = t.add(state, t.mul(t.sub(mean, state), everywhere(weight, state)));
    next.push_back(t.reshape(result, TensorBuilder::typeOf(in.states[next.size()]).getShape()));
    return result;
  }

  Value secondMoment() {
    Value square = t.mul(g, g);
    const auto type = TensorBuilder::typeOf(g);
    const int64_t rank = type.getRank();
    if (rank == 2)
      return moved(square);
    const int64_t rows = type.getDimSize(rank - 2);
    Value row = moved(t.meanLast(square));
    Value column = moved(t.scale(sumRows(square), 1.0 / static_cast<double>(rows)));
    Value all = atLeast(t.meanLast(row), epsilon());
    row = t.div(row, t.alongLast(all, row));
    SmallVector<int64_t> dims;
    for (int64_t dim = 0; dim < rank; ++dim)
      if (dim != rank - 2)
        dims.push_back(dim);
    return t.mul(t.alongLast(row, g), t.make<BroadcastOp>(g.getType(), column, dims));
  }
  Value sumRows(Value x) {
    const int64_t rows = TensorBuilder::typeOf(x).getRank() - 2;
    if (TensorBuilder::typeOf(x).getDimSize(rows) > 1)
      return t.make<ReduceOp>(x, ReduceKind::Sum, ArrayRef<int64_t>{rows});
    SmallVector<int64_t> shape(TensorBuilder::typeOf(x).getShape());
    shape.erase(shape.begin() + rows);
    return t.reshape(x, shape);
  }

  TensorBuilder &t;
  UpdateScalars s;
  const bundle::TrainingOptions &training;
  const ShardUpdate &in;
  Value g;
  double elements = 1; ///< of a parameter
  std::vector<Value> next;
};

} // namespace

UpdatedShard units::addAdafactor(TensorBuilder &t, const bundle::TrainingOptions &training,
                                 const ShardUpdate &in, Value parameter) {
  return Adafactor(t, training, in).build(parameter);
}
