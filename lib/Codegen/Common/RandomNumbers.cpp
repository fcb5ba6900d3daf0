#include "RandomNumbers.h"

#include "zorse/runtime/abi/Random.h"
#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cstddef>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// The finalizer of Random.h as IR.
static Value mix64(KernelBuilder &k, Value x) {
  OpBuilder &b = k.b;
  auto shift = [&](Value v, int64_t bits) -> Value {
    Value shifted = arith::ShRUIOp::create(b, k.loc, v, k.i64(bits));
    return arith::XOrIOp::create(b, k.loc, v, shifted);
  };
  x = arith::AddIOp::create(b, k.loc, x, k.i64(static_cast<int64_t>(0x9E3779B97F4A7C15ull)));
  x = arith::MulIOp::create(b, k.loc, shift(x, 30),
                            k.i64(static_cast<int64_t>(0xBF58476D1CE4E5B9ull)));
  x = arith::MulIOp::create(b, k.loc, shift(x, 27),
                            k.i64(static_cast<int64_t>(0x94D049BB133111EBull)));
  return shift(x, 31);
}

static Value field(KernelBuilder &k, unsigned scalars, size_t offset) {
  return k.load(k.pointer(scalars), k.i64(static_cast<int64_t>(offset / 8)), k.b.getI64Type());
}

Value zorse::codegen::randomStream(KernelBuilder &k, unsigned scalars, int64_t rngId,
                                   Value sample) {
  Value step = field(k, scalars, offsetof(abi::StepScalars, step)),
        seed = field(k, scalars, offsetof(abi::StepScalars, seed));
  Value numbered = k.add(k.rngIdBase, k.i64(rngId)),
        global = sample ? k.add(k.sampleBase, sample) : k.i64(0);
  auto chain = [&](Value state, Value next) {
    return mix64(k, arith::XOrIOp::create(k.b, k.loc, state, next));
  };
  return chain(chain(chain(mix64(k, seed), step), numbered), global);
}

DropoutRule zorse::codegen::dropoutRule(KernelBuilder &k, unsigned scalars, double probability,
                                        Type number) {
  Value flag = field(k, scalars, offsetof(abi::StepScalars, evaluation));
  Value evaluation = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::ne, flag, k.i64(0));
  return {
      k.select(evaluation, k.i64(0), k.i64(static_cast<int64_t>(abi::dropThreshold(probability)))),
      k.select(evaluation, k.number(number, 1.0), k.number(number, 1.0 / (1.0 - probability)))};
}

Value zorse::codegen::isKept(KernelBuilder &k, Value stream, Value element,
                             const DropoutRule &rule) {
  Value word = mix64(k, arith::XOrIOp::create(k.b, k.loc, stream, element));
  Value bits = arith::ShRUIOp::create(k.b, k.loc, word, k.i64(32));
  return arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::uge, bits, rule.threshold);
}
