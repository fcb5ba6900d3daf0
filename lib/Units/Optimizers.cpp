// Formulas of the optimizers. They are those of torch.optim, in the order of its operations; Lion
// is that of Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
#include "Optimizers.h"

#include "Adafactor.h"
#include "BlockwiseCodes.h"

#include "zorse/Summary/Optimizers.h"

#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

using Training = bundle::TrainingOptions;

Value UpdateScalars::number(double value) {
  return t.splat(RankedTensorType::get({}, t.b.getF64Type()), value);
}

Value UpdateScalars::use(Value scalar) {
  return t.everywhere(t.cast(scalar, TensorBuilder::elementOf(like)), like);
}

// The product of base^(2^i) over the bits of the exponent. The power functions of libraries differ
// in the last bit, so results would depend on the device that computes the update.
Value UpdateScalars::power(double base, Value exponent) {
  Value bits = t.make<arith::FPToSIOp>(RankedTensorType::get({}, t.b.getI64Type()), exponent),
        result = number(1);
  int64_t bit = 1;
  double factor = base;
  while (factor != 0 && bit < int64_t(1) << 53) {
    Value isSet = t.make<arith::CmpIOp>(arith::CmpIPredicate::ne,
                                        t.make<arith::AndIOp>(bits, t.splat(bits, double(bit))),
                                        t.splat(bits, 0));
    result = t.select(isSet, t.mul(result, number(factor)), result);
    factor *= factor;
    bit *= 2;
  }
  return t.select(
      t.make<arith::CmpIOp>(arith::CmpIPredicate::sge, bits, t.splat(bits, double(bit))), number(0),
      result); // the power has underflowed to 0
}

// The product of base^(2^-i) over the bits of the exponent. Roots are rounded exactly.
Value UpdateScalars::rootPower(Value base, double exponent) {
  double whole = 0, left = std::modf(std::abs(exponent), &whole);
  Value result = number(1);
  for (auto factors = static_cast<int64_t>(whole); factors > 0; --factors)
    result = t.mul(result, base);
  for (Value root = base; left > 0;) {
    root = t.sqrt(root);
    left = std::modf(2 * left, &whole);
    if (whole > 0)
      result = t.mul(result, root);
  }
  return exponent < 0 ? t.div(number(1), result) : result;
}

Value UpdateScalars::equals(Value scalar, double value) {
  return t.everywhere(t.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, scalar, number(value)),
                      like);
}

namespace {

class Formula {
public:
  Formula(TensorBuilder &t, const Training &training, const ShardUpdate &in)
      : t(t), s(t, in.parameter), training(training), in(in), p(in.parameter), g(in.gradient) {}

  UpdatedShard build() {
    decay();
    const bool hasBlocks = TensorBuilder::typeOf(p).getRank() > 1;
    switch (infoOf(training.optimizer()).optimizer) {
    case Training::ADAFACTOR:
      return addAdafactor(t, training, in, p);
    case Training::ADAM_8BIT:
    case Training::ADAMW_8BIT:
      hasBlocks ? adamOfCodes() : adam();
      break;
    case Training::MUON:
      hasBlocks ? muon() : adam();
      break;
    case Training::LION:
      lion();
      break;
    case Training::RMSPROP:
      rmsprop();
      break;
    case Training::ADAGRAD:
      adagrad();
      break;
    case Training::ADADELTA:
      adadelta();
      break;
    case Training::ADAMAX:
      adamax();
      break;
    case Training::RADAM:
      radam();
      break;
    case Training::ADAM:
    case Training::ADAMW:
      adam();
      break;
    default:
      sgd();
    }
    return {p, next};
  }

private:
  /// Adds the weight decay to the gradient, or applies it to the parameter.
  void decay() {
    if (in.weightDecay == 0)
      return;
    if (infoOf(training.optimizer()).decoupledDecay)
      p = t.mul(p, s.use(t.sub(s.number(1), t.mul(in.learningRate, s.number(in.weightDecay)))));
    else
      g = t.add(g, t.scale(p, in.weightDecay));
  }

  /// Subtracts scalar * direction from the parameter.
  void move(Value scalar, Value direction) { p = t.sub(p, t.mul(s.use(scalar), direction)); }

  Value greater(Value x, Value y) {
    return t.select(t.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, x, y), x, y);
  }
  /// mean + (x - mean) * (1 - beta)
  Value towards(Value mean, Value x, double beta) {
    return t.add(mean, t.scale(t.sub(x, mean), 1 - beta));
  }
  /// beta * mean + (1 - beta) * x * y
  Value meanOfProduct(Value mean, Value x, Value y, double beta) {
    return t.add(t.scale(mean, beta), t.mul(t.scale(x, 1 - beta), y));
  }
  /// 1 - beta^step
  Value correction(double beta) { return t.sub(s.number(1), s.power(beta, in.step)); }
  Value plusEpsilon(Value x) { return t.plus(x, training.epsilon()); }
  Value keep(Value state) {
    next.push_back(state);
    return state;
  }

  void sgd() {
    if (training.momentum() > 0) {
      // The first update sets the velocity to the gradient.
      Value velocity = keep(
          t.select(s.equals(in.step, 1), g, t.add(t.scale(in.states[0], training.momentum()), g)));
      g = training.nesterov() ? t.add(g, t.scale(velocity, training.momentum())) : velocity;
    }
    p = t.sub(p, t.mul(g, s.use(in.learningRate)));
  }

  void adam() {
    Value m = keep(towards(in.states[0], g, training.beta1()));
    Value v = keep(meanOfProduct(in.states[1], g, g, training.beta2()));
    if (training.amsgrad())
      v = keep(greater(in.states[2], v));
    moveByMoments(m, v);
  }

  /// As adam(), with codes and scales of both moments as states.
  void adamOfCodes() {
    Value m = decode(t, {in.states[0], in.states[1]}, /*isSigned=*/true);
    Value v = decode(t, {in.states[2], in.states[3]}, /*isSigned=*/false);
    m = towards(m, g, training.beta1());
    v = meanOfProduct(v, g, g, training.beta2());
    for (const BlockwiseCodes &coded : {encode(t, m, true), encode(t, v, false)}) {
      keep(coded.codes);
      keep(coded.scales);
    }
    moveByMoments(m, v);
  }

  void moveByMoments(Value m, Value v) {
    Value corrected = s.use(t.sqrt(correction(training.beta2())));
    Value denominator = training.epsilon_before_bias_correction()
                            ? t.div(plusEpsilon(t.sqrt(v)), corrected)
                            : plusEpsilon(t.div(t.sqrt(v), corrected));
    move(t.div(in.learningRate, correction(training.beta1())), t.div(m, denominator));
  }

  void lion() {
    Value direction = towards(in.states[0], g, training.beta1()), zero = t.splat(g, 0);
    auto compare = [&](arith::CmpFPredicate predicate) {
      return t.make<arith::CmpFOp>(predicate, direction, zero);
    };
    Value sign = t.select(compare(arith::CmpFPredicate::OGT), t.splat(g, 1),
                          t.select(compare(arith::CmpFPredicate::OLT), t.splat(g, -1), zero));
    move(in.learningRate, sign);
    keep(towards(in.states[0], g, training.beta2()));
  }

  void rmsprop() {
    Value square = keep(meanOfProduct(in.states[0], g, g, training.alpha())), variance = square;
    if (training.centered()) {
      Value mean = keep(towards(in.states[1], g, training.alpha()));
      variance = t.sub(square, t.mul(mean, mean));
    }
    Value direction = t.div(g, plusEpsilon(t.sqrt(variance)));
    if (training.momentum() > 0)
      direction = keep(t.add(t.scale(in.states[next.size()], training.momentum()), direction));
    move(in.learningRate, direction);
  }

  void adagrad() {
    Value sum = keep(t.add(in.states[0], t.mul(g, g)));
    move(in.learningRate, t.div(g, plusEpsilon(t.sqrt(sum))));
  }

  void adadelta() {
    Value square = keep(meanOfProduct(in.states[0], g, g, training.alpha()));
    Value delta = t.mul(t.div(t.sqrt(plusEpsilon(in.states[1])), t.sqrt(plusEpsilon(square))), g);
    keep(meanOfProduct(in.states[1], delta, delta, training.alpha()));
    move(in.learningRate, delta);
  }

  void adamax() {
    Value m = keep(towards(in.states[0], g, training.beta1()));
    Value largest =
        keep(greater(t.scale(in.states[1], training.beta2()), plusEpsilon(greater(g, t.neg(g)))));
    move(t.div(in.learningRate, correction(training.beta1())), t.div(m, largest));
  }

  // Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020. Without the
  // rectification, which needs more than 5 degrees of freedom, the update is that of momentum.
  void radam() {
    Value m = keep(towards(in.states[0], g, training.beta1()));
    Value v = keep(meanOfProduct(in.states[1], g, g, training.beta2()));
    const double limit = 2 / (1 - training.beta2()) - 1;
    Value power = s.power(training.beta2(), in.step), spread = t.sub(s.number(1), power);
    Value freedom =
        t.sub(s.number(limit), t.div(t.mul(t.mul(s.number(2), in.step), power), spread));
    auto less = [&](double value) { return t.sub(freedom, s.number(value)); };
    Value ratio = t.div(t.mul(t.mul(less(4), less(2)), s.number(limit)),
                        t.mul(s.number((limit - 4) * (limit - 2)), freedom));
    Value isRectified = t.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, freedom, s.number(5.0));
    Value safe = t.select(isRectified, ratio, s.number(1));
    Value rate = t.div(in.learningRate, correction(training.beta1()));
    Value adaptive = t.div(s.use(t.mul(t.sqrt(spread), t.sqrt(safe))), plusEpsilon(t.sqrt(v)));
    move(rate, t.mul(m, t.select(t.everywhere(isRectified, p), adaptive, t.splat(p, 1))));
  }

  // Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as in
  // torch.optim.Muon, but in the type of the parameters instead of bf16. MATCH_RMS_ADAMW is of Liu
  // et al., "Muon is Scalable for LLM Training", 2025.
  void muon() {
    Value momentum = keep(towards(in.states[0], g, training.momentum()));
    Value direction = training.nesterov() ? towards(g, momentum, 1 - training.momentum())
                                          : momentum;
    const auto rows = double(TensorBuilder::typeOf(p).getDimSize(1)),
               columns = double(TensorBuilder::typeOf(p).getDimSize(2));
    const double scale = training.muon_scale() == Training::ORIGINAL
                             ? std::sqrt(std::max(1.0, rows / columns))
                             : 0.2 * std::sqrt(std::max(rows, columns));
    move(t.mul(in.learningRate, s.number(scale)), orthogonalized(direction));
  }

  /// Moves all singular values of every matrix near to 1 by Newton-Schulz iterations. The gram
  /// matrix is that of the shorter side.
  Value orthogonalized(Value x) {
    const int64_t rows = TensorBuilder::typeOf(x).getDimSize(1),
                  columns = TensorBuilder::typeOf(x).getDimSize(2);
    constexpr int64_t each = ShapedType::kDynamic;
    Value square = t.sumLast(t.reshape(t.mul(x, x), {each, rows * columns}));
    Value norm = greater(t.sqrt(square), t.splat(square, 1e-7));
    x = t.div(x, t.make<BroadcastOp>(x.getType(), norm, ArrayRef<int64_t>{0}));
    for (int iteration = 0; iteration < kNewtonSchulzSteps; ++iteration) {
      const bool wide = rows <= columns;
      Value gram = t.make<MatmulOp>(x, x, /*transposeA=*/!wide, /*transposeB=*/wide);
      Value polynomial =
          t.add(t.scale(gram, -4.775), t.scale(t.make<MatmulOp>(gram, gram), 2.0315));
      x = t.add(t.scale(x, 3.4445),
                wide ? t.make<MatmulOp>(polynomial, x) : t.make<MatmulOp>(x, polynomial));
    }
    return x;
  }

  TensorBuilder &t;
  UpdateScalars s;
  const Training &training;
  const ShardUpdate &in;
  Value p, g;
  std::vector<Value> next;
};

} // namespace

UpdatedShard units::buildUpdate(TensorBuilder &t, const Training &training, const ShardUpdate &in) {
  UpdatedShard out = Formula(t, training, in).build();
  if (training.ema_decay() > 0) {
    // The first update sets the average to the parameters, as torch.optim.swa_utils does.
    UpdateScalars s(t, in.parameter);
    Value average = in.states.back();
    Value moved = t.add(average, t.scale(t.sub(out.parameter, average), 1 - training.ema_decay()));
    out.states.push_back(t.select(s.equals(in.step, 1), out.parameter, moved));
  }
  return out;
}
