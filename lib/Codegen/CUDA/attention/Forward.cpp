// Forward of attention: a block has some queries of a head and iterates over the keys that they
// attend to. It keeps a running maximum score and a running sum of exponentials per query. When the
// maximum increases, it rescales the previous sums (online softmax).
#include "AttentionKernels.h"

#include "AttentionKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

namespace {

class Forward : QueryKernel {
public:
  Forward(const KernelContext &context, const AttentionProblem &problem)
      : QueryKernel(context, problem, forwardVariant(problem)) {}

  Kernel build() {
    place();
    begin();
    switch (variant.schedule) {
    case Schedule::OneStage:
      oneStage();
      break;
    case Schedule::TwoStages:
      twoStages();
      break;
    case Schedule::Pipelined:
      pipelined();
      break;
    }
    end();
    return finish("attention_forward");
  }

private:
  Value sharedQueries, sharedTiles, ownQueries;
  llvm::SmallVector<WarpBuilder::Four> queries; ///< in registers
  Sums out;
  // Two rows for each of the warp's tiles.
  SmallVector<Value> greatest, sum;

  int rowsOfLane() const { return 2 * variant.tiles(); }
  bool isSingle() const { return variant.schedule == Schedule::OneStage; }
  /// Address of a stage of keys or of values. If stages alternate, the values of stage s follow its
  /// keys.
  Value keyStage(Value stage) { return w.at(sharedTiles, w.mul(stage, tileBytes())); }
  Value valueStage(Value stage) {
    return w.at(keyStage(stage), tileBytes() * (isSingle() ? 1 : 2));
  }
  Value stageOf(Value tile) { return isSingle() ? w.i32(0) : w.bitsOf(tile, 1); }

  void place() {
    const int64_t resident = tiles.layout.bytes(variant.rows);
    sharedQueries = k.launchShared(resident + (isSingle() ? 2 : 4) * tileBytes());
    sharedTiles = w.at(sharedQueries, resident);
    ownQueries = ownRows(sharedQueries);
  }

  void fetchKeys(Value tile) { fetchTile(keys, problem.k, tile, keyStage(stageOf(tile))); }
  void fetchValues(Value tile) { fetchTile(values, problem.v, tile, valueStage(stageOf(tile))); }
  void ifBefore(Value tile, Value end, function_ref<void()> body) {
    k.ifTrue(w.isLess(tile, end), body);
  }

  void begin() {
    tiles.fetch(headAddress(problem.q, head), problem.q.position, firstRow, variant.rows,
                problem.queries, sharedQueries);
    if (variant.fromRegisters)
      w.commit();
    fetchKeys(firstTile);
    if (variant.schedule != Schedule::OneStage)
      fetchValues(firstTile);
    w.commit();
    if (variant.fromRegisters) {
      w.wait(1);
      w.barrier();
      queries = keep(ownQueries);
    }
    out = tiles.zeros(variant.tiles(), tiles.layout.pieces());
    greatest.assign(size_t(rowsOfLane()), w.f32(-std::numeric_limits<double>::infinity()));
    sum.assign(size_t(rowsOfLane()), w.f32(0));
  }

  /// Multiplies the block's queries by a tile of keys.
  Sums multiplyKeys(Value stage) {
    Sums s = tiles.zeros(variant.tiles(), variant.streamed / 8);
    tiles.multiplyTransposed(
        [&](int i, int m) {
          return variant.fromRegisters ? kept(queries, i, m) : tiles.left(ownQueries, i, 16 * m);
        },
        keyStage(stage), s);
    return s;
  }

  Value combine(SmallVector<Value> numbers, function_ref<Value(Value, Value)> by) {
    while (numbers.size() > 1) {
      SmallVector<Value> half;
      for (size_t i = 0; i + 1 < numbers.size(); i += 2)
        half.push_back(by(numbers[i], numbers[i + 1]));
      if (numbers.size() % 2)
        half.push_back(numbers.back());
      numbers = std::move(half);
    }
    return numbers.front();
  }

  SmallVector<Value> rowOf(const Sums &s, int m, int half) {
    SmallVector<Value> row;
    for (int n = 0; n < s.blocks; ++n)
      for (int q = 0; q < 2; ++q)
        row.push_back(s.at(m, n, 2 * half + q));
    return row;
  }

  /// Turns masked scores into exponentials, as left operands of the product with values, and
  /// rescales the previous sums.
  SmallVector<WarpBuilder::Four> exponentiate(Sums &s, Value tile) {
    const ScorePlace where = scorePlace(tile);
    auto larger = [&](Value x, Value y) { return w.maxF(x, y); };
    SmallVector<Scores::Reference> references;
    SmallVector<Value> factors;
    for (int r = 0; r < rowsOfLane(); ++r) {
      Value max = larger(combine(rowOf(s, r / 2, r % 2), larger), greatest[size_t(r)]);
      for (int lanes : {1, 2})
        max = larger(max, w.exchange(max, lanes));
      // Until a query has seen a visible key, all its exponentials are 0.
      Value finite = problem.maySeeNothing() ? k.select(w.isMinusInfinite(max), w.f32(0), max)
                                             : max;
      references.push_back(scores.reference(finite));
      factors.push_back(scores.decay(greatest[size_t(r)], finite));
      greatest[size_t(r)] = max;
    }
    for (int m = 0; m < out.tiles; ++m)
      for (int n = 0; n < out.blocks; ++n)
        for (int q = 0; q < 4; ++q)
          out.at(m, n, q) = w.mulF(out.at(m, n, q), factors[size_t(2 * m + q / 2)]);
    for (int r = 0; r < rowsOfLane(); ++r)
      sum[size_t(r)] = w.mulF(sum[size_t(r)], factors[size_t(r)]);
    // Two blocks at a time, which are packed immediately: this halves the number of registers.
    SmallVector<WarpBuilder::Four> packed;
    for (int i = 0; i < s.blocks / 2; ++i) {
      for (int r = 0; r < rowsOfLane(); ++r) {
        SmallVector<Value> row;
        for (int n : {2 * i, 2 * i + 1})
          for (int q = 2 * (r % 2); q < 2 * (r % 2) + 2; ++q) {
            Value &e = s.at(r / 2, n, q);
            e = scores.probability(e, references[size_t(r)]);
            row.push_back(e);
          }
        sum[size_t(r)] =
            w.addF(sum[size_t(r)], combine(row, [&](Value x, Value y) { return w.addF(x, y); }));
      }
      for (int m = 0; m < s.tiles; ++m) {
        if (scores.drops())
          for (int n : {2 * i, 2 * i + 1})
            for (int q = 0; q < 4; ++q)
              s.at(m, n, q) = k.select(scores.isKept(where, m, n, q), s.at(m, n, q), w.f32(0));
        packed.push_back(tiles.asLeft(s, i, m));
      }
    }
    return packed;
  }

  void multiplyValues(ArrayRef<WarpBuilder::Four> probabilities, Value stage) {
    for (int i = 0; i < variant.streamed / 16; ++i)
      tiles.multiplyRows(probabilities.slice(size_t(i * variant.tiles()), size_t(variant.tiles())),
                         i, valueStage(stage), out);
  }

  /// Returns the values that a loop carries, followed by `more`.
  SmallVector<Value> state(ArrayRef<Value> more = {}) {
    SmallVector<Value> all(out.numbers);
    all.append(greatest);
    all.append(sum);
    all.append(more.begin(), more.end());
    return all;
  }
  void setState(ArrayRef<Value> all, MutableArrayRef<Value> more = {}) {
    for (MutableArrayRef<Value> part :
         {MutableArrayRef<Value>(out.numbers), MutableArrayRef<Value>(greatest),
          MutableArrayRef<Value>(sum), more}) {
      llvm::copy(all.take_front(part.size()), part.begin());
      all = all.drop_front(part.size());
    }
  }

  void oneStage() {
    SmallVector<Value> carried = state();
    loop(firstTile, endTile, carried, [&](Value tile) {
      setState(carried);
      w.wait(0); // for this tile's keys
      w.barrier();
      fetchValues(tile);
      w.commit();
      Value next = w.add(tile, 1);
      Sums s = multiplyKeys(stageOf(tile));
      w.wait(0); // for its values
      w.barrier();
      ifBefore(next, endTile, [&] { fetchKeys(next); });
      w.commit();
      scores.apply(s, scorePlace(tile));
      multiplyValues(exponentiate(s, tile), stageOf(tile));
      llvm::copy(state(), carried.begin());
    });
    setState(carried);
  }

  void twoStages() {
    SmallVector<Value> carried = state();
    loop(firstTile, endTile, carried, [&](Value tile) {
      setState(carried);
      w.wait(0);
      w.barrier();
      Value next = w.add(tile, 1);
      ifBefore(next, endTile, [&] {
        fetchKeys(next);
        fetchValues(next);
      });
      w.commit();
      Sums s = multiplyKeys(stageOf(tile));
      scores.apply(s, scorePlace(tile));
      multiplyValues(exponentiate(s, tile), stageOf(tile));
      llvm::copy(state(), carried.begin());
    });
    setState(carried);
  }

  /// The last tile is peeled off the loop, because no scores follow it.
  void pipelined() {
    w.wait(0);
    w.barrier();
    Value second = w.add(firstTile, 1);
    ifBefore(second, endTile, [&] { fetchKeys(second); });
    w.commit();
    Sums s = multiplyKeys(stageOf(firstTile));
    Value last = w.sub(endTile, w.i32(1));
    SmallVector<Value> carried = state(s.numbers);
    loop(firstTile, last, carried, [&](Value tile) {
      setState(carried, s.numbers);
      Value next = w.add(tile, 1), afterNext = w.add(tile, 2);
      w.wait(0); // for keys of the next tile and values of this one
      w.barrier();
      ifBefore(afterNext, endTile, [&] { fetchKeys(afterNext); });
      fetchValues(next);
      w.commit();
      // The products of the next tile are in the same basic block as this tile's exponentials, so
      // that they overlap. Branches of masks precede them.
      scores.apply(s, scorePlace(tile));
      Sums coming = multiplyKeys(stageOf(next));
      multiplyValues(exponentiate(s, tile), stageOf(tile));
      llvm::copy(state(coming.numbers), carried.begin());
    });
    setState(carried, s.numbers);
    w.wait(0);
    w.barrier();
    scores.apply(s, scorePlace(last));
    multiplyValues(exponentiate(s, last), stageOf(last));
  }

  void end() {
    const int64_t bytesOfQuery = 4 * problem.numbersOfQuery();
    Value laneRow = w.add(warpRow, tiles.laneRow), isFirstLane = w.isEqual(tiles.laneColumn, 0),
          lse;
    if (problem.lse) {
      const unsigned result = k.operand(problem.lse, problem.lseOffset);
      k.markWritten(result);
      Value line = w.add(w.mul(sample, problem.heads), head);
      Value first = k.add(k.mul(w.widen(line), problem.queries), w.widen(laneRow));
      lse = w.at(w.global(result), k.mul(first, bytesOfQuery));
      k.addCost(Size{problem.heads * problem.queries, true}, int(bytesOfQuery));
    }
    SmallVector<Value> factors;
    for (int r = 0; r < rowsOfLane(); ++r) {
      Value all = sum[size_t(r)];
      for (int lanes : {1, 2})
        all = w.addF(all, w.exchange(all, lanes));
      Value factor = w.reciprocal(all), max = scores.natural(greatest[size_t(r)]), nothing;
      if (problem.maySeeNothing()) {
        nothing = arith::CmpFOp::create(w.b, w.loc, arith::CmpFPredicate::OEQ, all, w.f32(0));
        factor = k.select(nothing, w.f32(0), factor);
      }
      factors.push_back(scores.drops() ? w.mulF(factor, scores.keptFactor()) : factor);
      if (!problem.lse)
        continue;
      const int ahead = 16 * (r / 2) + 8 * (r % 2);
      k.ifTrue(w.both(isFirstLane, w.isLess(laneRow, problem.queries - ahead)), [&] {
        Value kept =
            problem.addsMask()
                ? w.vector({max, all})
                : w.addF(max, math::LogOp::create(
                                  w.b, w.loc, nothing ? k.select(nothing, w.f32(1), all) : all));
        w.store(kept, w.at(lse, bytesOfQuery * ahead), unsigned(bytesOfQuery));
      });
    }
    // Queries in registers were read before the barriers of the tiles. Queries of a one-stage
    // schedule were read before the second barrier of the last tile.
    const bool areRead = variant.fromRegisters == 0 && variant.schedule == Schedule::TwoStages;
    tiles.store(out, output(problem.out), ownQueries, areRead,
                [&](int m, int half) { return factors[size_t(2 * m + half)]; });
    count({problem.q, problem.k, problem.v, problem.out}, 2);
  }
};

} // namespace

Kernel cuda::buildAttentionForward(const KernelContext &context, const AttentionProblem &problem) {
  return Forward(context, problem).build();
}
