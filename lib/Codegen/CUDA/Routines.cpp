// Kernels for routines of the runtime's library (runtime/abi/Library.md): norms, sums of the loss,
// the clip/skip decision, loss scaling, casts.
#include "CudaEmitters.h"
#include "Groups.h"

#include "LibraryOps.h"

#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cstddef>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

class Routine {
public:
  Routine(MLIRContext *context, const bundle::CompiledFunction &compiled,
          const bundle::LibraryCall &call, cuda::HalfConversions conversions)
      : compiled(compiled), call(call),
        k(
            context, [this](Value, int64_t index) { return place(int(index)); }, conversions),
        b(k.b) {}

  std::optional<Kernel> build() {
    const std::string &name = call.name();
    if (name == "squared_norm")
      return squaredNorm();
    if (name == "sum_loss")
      return sumLoss();
    if (name == "cast")
      return cast();
    if (name == "scale_seeds")
      return scaleSeeds();
    if (name == "decide")
      return decide();
    if (name == "ranked_sum")
      return rankedSum();
    return std::nullopt;
  }

private:
  const bundle::CompiledFunction &compiled;
  const bundle::LibraryCall &call;
  cuda::CudaKernelBuilder k;
  OpBuilder &b;

  KernelBuilder::Place place(int operand) {
    bundle::Pointer pointer = call.operands(operand);
    bundle::AffineSize reach = compiled.arguments(int(pointer.argument())).bytes();
    reach.set_fixed(reach.fixed() - pointer.fixed());
    reach.set_per_row(reach.per_row() - pointer.per_row());
    return {pointer, reach};
  }
  Value operand(int index) { return k.pointer(k.operand(Value(), index)); }

  Type f64() { return b.getF64Type(); }
  Type number() { return call.type() == bundle::F64 ? f64() : Type(b.getF32Type()); }
  Value real(double value) { return k.number(f64(), value); }
  Value toF64(Value x) {
    return x.getType().isF64() ? x : Value(arith::ExtFOp::create(b, k.loc, f64(), x));
  }
  Value word(Value base, size_t byte, Type type) {
    return k.load(base, k.i64(int64_t(byte / 8)), type);
  }
  void put(Value value, Value base, size_t byte) {
    k.store(value, base, k.i64(int64_t(byte / 8)), value.getType());
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, k.loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, k.loc, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, k.loc, x, y); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, k.loc, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, k.loc, x, y); }
  Value no(Value x) {
    return arith::XOrIOp::create(b, k.loc, x, arith::ConstantIntOp::create(b, k.loc, 1, 1));
  }
  Value compare(arith::CmpFPredicate predicate, Value x, double y) {
    return arith::CmpFOp::create(b, k.loc, predicate, x, k.number(x.getType(), y));
  }
  Value isSet(Value x) {
    return arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::ne, x, k.i64(0));
  }
  Value isFinite(Value x) {
    return compare(arith::CmpFPredicate::OLT, math::AbsFOp::create(b, k.loc, x),
                   std::numeric_limits<double>::infinity());
  }
  Value quotient(Value x, int64_t by) { return arith::DivUIOp::create(b, k.loc, x, k.i64(by)); }
  Value isFirstThread() {
    return arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, k.threadIndex(), k.i64(0));
  }

  /// Sums squares in f64 with at most kParts blocks. Each block sums every n-th group of
  /// neighboring elements. The last block to finish adds the blocks' sums in the order of the
  /// parts.
  Kernel squaredNorm() {
    constexpr int threads = 512, perThread = 16;
    constexpr int64_t kParts = 4096;
    Type element = number();
    const int64_t width = element.isF64() ? 2 : 4; // 16 bytes
    Value x = operand(0), sums = operand(1), thread = k.threadIndex(), part = k.blockIndex();
    Value active = k.smaller(
        quotient(k.add(k.rows, k.i64(int64_t(threads) * perThread - 1)), threads * perThread),
        k.i64(kParts));
    auto include = [&](ArrayRef<Value> before, Value value) {
      Value widened = toF64(value);
      Value bad = arith::ExtUIOp::create(b, k.loc, b.getI32Type(), no(isFinite(value)));
      return SmallVector<Value>{add(before[0], mul(widened, widened)),
                                arith::AddIOp::create(b, k.loc, before[1], bad)};
    };
    k.ifTrue(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, part, active), [&] {
      Value groups = quotient(k.rows, width), step = k.mul(active, threads),
            first = k.add(k.mul(part, threads), thread);
      Value none = k.i32(0);
      auto includeMany = [&](Value group, ArrayRef<Value> before) {
        SmallVector<Value> next(before);
        for (Value value : k.loadMany(x, k.mul(group, width), element, width))
          next = include(next, value);
        return next;
      };
      SmallVector<Value> totals = k.loop(first, groups, {real(0), none}, includeMany, step);
      // The remaining elements after the last complete group.
      Value tail = k.add(k.mul(groups, width), first);
      totals = k.ifElse(arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, tail, k.rows),
                        totals, [&] { return include(totals, k.load(x, tail, element)); });
      totals[1] = arith::UIToFPOp::create(b, k.loc, f64(), totals[1]);
      Value counters = k.common(b.getI32Type(), 1);
      SmallVector<Value> partials;
      for (Value &total : totals) {
        partials.push_back(k.common(f64(), kParts));
        total = k.combineBlock(ReduceKind::Sum, total, threads);
      }
      k.ifTrue(isFirstThread(), [&] {
        for (auto [partial, total] : llvm::zip(partials, totals))
          k.store(total, partial, part, f64());
      });
      k.ifTrue(k.comesLast(counters, k.i64(0), active), [&] {
        auto gather = [&](Value part, ArrayRef<Value> before) {
          return SmallVector<Value>{add(before[0], k.loadCommon(partials[0], part, f64())),
                                    add(before[1], k.loadCommon(partials[1], part, f64()))};
        };
        SmallVector<Value> all = k.loop(thread, active, {real(0), real(0)}, gather, k.i64(threads));
        for (Value &sum : all)
          sum = k.combineBlock(ReduceKind::Sum, sum, threads);
        k.ifTrue(isFirstThread(), [&] {
          put(add(word(sums, 0, f64()), all[0]), sums, 0);
          put(add(word(sums, 8, f64()), all[1]), sums, 8);
        });
      });
    });
    return k.finish("squared_norm", Size{1, true}, threads, perThread);
  }

  /// One block, because the number of rows is at most that of the samples. Its threads sum in f64,
  /// each every n-th row.
  Kernel sumLoss() {
    constexpr int threads = 256;
    const int terms = call.operands_size() - 1;
    SmallVector<Value> numerators;
    for (int term = 0; term < terms; ++term)
      numerators.push_back(operand(term));
    Value sums = operand(terms), thread = k.threadIndex();
    for (size_t term = 0; term < numerators.size(); ++term) {
      auto include = [&](Value row, ArrayRef<Value> before) {
        return SmallVector<Value>{add(before[0], toF64(k.load(numerators[term], row, number())))};
      };
      Value sum = k.loop(thread, k.rows, {real(0)}, include, k.i64(threads))[0];
      sum = k.combineBlock(ReduceKind::Sum, sum, threads);
      k.ifTrue(isFirstThread(),
               [&] { put(add(word(sums, (2 + term) * 8, f64()), sum), sums, (2 + term) * 8); });
    }
    return k.finish("sum_loss", Size{threads, false}, threads, 1);
  }

  Kernel cast() {
    constexpr int width = 4;
    Type half = call.type() == bundle::BF16 ? Type(b.getBF16Type()) : Type(b.getF16Type());
    Value x = operand(0), copy = operand(1);
    auto place = [&](Value group, int i) {
      return k.add(k.mul(group, width), k.i64(int64_t(i) * cuda::kGroupThreads * width));
    };
    auto whole = [&](Value group) {
      std::vector<SmallVector<Value>> values;
      values.reserve(cuda::kGroups);
      for (int i = 0; i < cuda::kGroups; ++i)
        values.push_back(k.loadMany(x, place(group, i), b.getF32Type(), width));
      for (auto [i, value] : llvm::enumerate(values))
        k.storeMany(value, copy, place(group, int(i)), half);
    };
    auto part = [&](Value group) {
      Value begin = place(group, 0), end = k.smaller(k.add(begin, k.i64(width)), k.rows);
      k.loop(begin, end,
             [&](Value index) { k.store(k.load(x, index, b.getF32Type()), copy, index, half); });
    };
    cuda::takeGroups(k, arith::DivUIOp::create(b, k.loc, k.rows, k.i64(width)), cuda::kGroups,
                     whole, part);
    return k.finish("cast", Size{1, true}, cuda::kGroupThreads, width * cuda::kGroups);
  }

  /// Type of an operand's elements in memory.
  Type elementOf(int operand) {
    switch (compiled.arguments(int(call.operands(operand).argument())).type()) {
    case bundle::BF16:
      return b.getBF16Type();
    case bundle::F16:
      return b.getF16Type();
    default:
      return number();
    }
  }

  /// Adds terms in their order, element by element. A thread has the neighboring elements whose
  /// sums fit into 16 bytes. Terms may be bf16 where sums are f32.
  Kernel rankedSum() {
    const int terms = call.operands_size() - 1;
    Type element = elementOf(terms);
    const int64_t width = 128 / element.getIntOrFloatBitWidth();
    Value end = k.add(k.begin, k.i64(width)), sum = operand(terms);
    SmallVector<Value> parts;
    for (int term = 0; term < terms; ++term)
      parts.push_back(operand(term));
    Value whole = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sle, end, k.rows);
    k.ifTrue(whole, [&] {
      SmallVector<Value> sums = k.loadMany(parts[0], k.begin, elementOf(0), width);
      for (int term = 1; term < terms; ++term)
        for (auto [to, value] :
             llvm::zip(sums, k.loadMany(parts[size_t(term)], k.begin, elementOf(term), width)))
          to = add(to, value);
      k.storeMany(sums, sum, k.begin, element);
    });
    k.ifTrue(no(whole), [&] {
      k.loop(k.begin, k.rows, [&](Value index) {
        Value all = k.load(parts[0], index, elementOf(0));
        for (int term = 1; term < terms; ++term)
          all = add(all, k.load(parts[size_t(term)], index, elementOf(term)));
        k.store(all, sum, index, element);
      });
    });
    return k.finish("ranked_sum", Size{1, true}, 256, int(width));
  }

  Kernel scaleSeeds() {
    using abi::OptimizerStep, abi::StepScalars;
    Value scalars = operand(0), scale = word(operand(1), offsetof(OptimizerStep, lossScale), f64());
    k.ifTrue(isFirstThread(), [&] {
      for (size_t i = 0; i < std::size(StepScalars().lossGradient); ++i) {
        const size_t at = offsetof(StepScalars, lossGradient) + 8 * i;
        put(mul(word(scalars, at, f64()), scale), scalars, at);
      }
    });
    return k.finish("scale_seeds", Size{32, false}, 32, 1);
  }

  Value everySeedIsFinite(Value scalars) {
    Value finite = isFinite(word(scalars, offsetof(abi::StepScalars, lossGradient), f64()));
    for (size_t i = 1; i < std::size(abi::StepScalars().lossGradient); ++i)
      finite = both(
          finite, isFinite(word(scalars, offsetof(abi::StepScalars, lossGradient) + 8 * i, f64())));
    return finite;
  }

  /// The same decision as in device/cpu/LibraryRoutine.cpp.
  Kernel decide() {
    using abi::OptimizerStep, abi::StepScalars;
    constexpr size_t decided = offsetof(StepScalars, decided);
    auto interval = call.integers().find("scale_interval");
    const bool scales = interval != call.integers().end() && interval->second > 0;
    Value sums = operand(0), scalars = operand(1), state = operand(2);
    k.ifTrue(isFirstThread(), [&] {
      Value scale = scales ? word(state, offsetof(OptimizerStep, lossScale), f64()) : real(1);
      Value norm = div(math::SqrtOp::create(b, k.loc, word(sums, 0, f64())), scale),
            factor = div(real(1), scale);
      Value clip = word(scalars, offsetof(StepScalars, clipNorm), f64());
      Value ratio = div(clip, add(norm, real(1e-6)));
      ratio = k.select(compare(arith::CmpFPredicate::OGT, ratio, 1), real(1), ratio); // NaN stays
                                                                                      // NaN.
      factor = k.select(compare(arith::CmpFPredicate::OGT, clip, 0), mul(factor, ratio), factor);
      Value finite =
          both(compare(arith::CmpFPredicate::OEQ, word(sums, 8, f64()), 0), isFinite(norm));
      for (size_t term = 0; term < size_t(abi::kMaxLossTerms); ++term)
        finite = both(finite, isFinite(word(sums, 8 * (2 + term), f64())));
      Value nothing = no(everySeedIsFinite(scalars));
      Value guarded = isSet(word(scalars, offsetof(StepScalars, skipNonFinite), b.getI64Type()));
      Value skip = either(nothing, both(guarded, no(finite)));
      put(factor, scalars, decided + offsetof(StepScalars::Decided, clipFactor));
      put(norm, scalars, decided + offsetof(StepScalars::Decided, gradientNorm));
      put(arith::ExtUIOp::create(b, k.loc, b.getI64Type(), skip), scalars,
          decided + offsetof(StepScalars::Decided, skip));
      put(scales ? scale : real(0), scalars, decided + offsetof(StepScalars::Decided, lossScale));
      Value updates = word(state, offsetof(OptimizerStep, updates), f64());
      put(add(updates, k.select(skip, real(0), real(1))), state, offsetof(OptimizerStep, updates));
      if (!scales)
        return;
      k.ifTrue(no(nothing), [&] {
        Value good = add(word(state, offsetof(OptimizerStep, goodSteps), f64()), real(1));
        Value grows = compare(arith::CmpFPredicate::OGE, good, double(interval->second));
        Value half = mul(scale, real(0.5));
        half = k.select(compare(arith::CmpFPredicate::OLT, half, 1), real(1), half);
        put(k.select(finite, k.select(grows, mul(scale, real(2)), scale), half), state,
            offsetof(OptimizerStep, lossScale));
        put(k.select(both(finite, no(grows)), good, real(0)), state,
            offsetof(OptimizerStep, goodSteps));
        Value overflows = word(state, offsetof(OptimizerStep, overflows), f64());
        put(add(overflows, k.select(finite, real(0), real(1))), state,
            offsetof(OptimizerStep, overflows));
      });
    });
    return k.finish("decide", Size{32, false}, 32, 1);
  }
};

} // namespace

std::optional<Kernel> cuda::buildRoutine(MLIRContext *context,
                                         const bundle::CompiledFunction &compiled,
                                         const bundle::LibraryCall &call,
                                         HalfConversions conversions) {
  return Routine(context, compiled, call, conversions).build();
}
