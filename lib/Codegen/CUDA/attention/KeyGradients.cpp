// Gradients dk and dv: a block has some keys of a head and iterates over the queries that attend to
// them, of all heads that share the keys. It computes transposed scores (keys by queries), so that
// the registers of probabilities and of their gradients can be used directly as left operands of
// the next products.
#include "AttentionKernels.h"

#include "AttentionKernel.h"

#include <array>

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

namespace {

class KeyGradients : AttentionKernel {
public:
  KeyGradients(const KernelContext &context, const AttentionProblem &problem,
               const KernelBuilder::Place &statisticsPlace)
      : AttentionKernel(context, problem, keyGradientVariant(problem), problem.keys,
                        problem.keyHeads),
        scores(tiles, problem, Orientation::RowsAreKeys, sample, variant.streamed) {
    statistics = w.global(k.operand(statisticsPlace));
  }

  Kernel build() {
    place();
    begin();
    SmallVector<Value> carried(dk.numbers);
    carried.append(dv.numbers);
    carried.append({tile, group});
    loop(w.i32(0), turns, carried, [&](Value turn) {
      setState(carried);
      step(turn);
      carried.assign(dk.numbers);
      carried.append(dv.numbers);
      carried.append({tile, group});
    });
    setState(carried);
    end();
    return finish("attention_key_gradients");
  }

private:
  Scores scores;
  Value statistics;
  Value part;              ///< index of the part of the results' columns
  Value firstRow, warpRow; ///< first key of the block, of the warp
  Value firstTile, endTile, turns, tile,
      group;                  ///< of queries; `tile` and `group` are those of the current iteration
  Value queryHeads, outHeads; ///< addresses of the first query head that shares the keys
  Value sharedKeys, sharedValues, stages, ownKeys, ownValues;
  llvm::SmallVector<WarpBuilder::Four> keys, values; ///< in registers
  Sums dk, dv;

  /// A stage contains queries, the gradients of their outputs, and statistics.
  int64_t stageBytes() const { return 2 * tileBytes() + bytesOfQuery() * variant.streamed; }
  int64_t bytesOfQuery() const { return 4 * problem.statisticsOfQuery(); }
  int columnsOfPart() const { return tiles.layout.columns / variant.parts; }
  Value stageOf(Value turn) { return w.at(stages, w.mul(w.bitsOf(turn, 1), stageBytes())); }

  void setState(ArrayRef<Value> all) {
    for (MutableArrayRef<Value> some :
         {MutableArrayRef<Value>(dk.numbers), MutableArrayRef<Value>(dv.numbers)}) {
      llvm::copy(all.take_front(some.size()), some.begin());
      all = all.drop_front(some.size());
    }
    tile = all[0], group = all[1];
  }

  void place() {
    part = w.remainder(number, variant.parts);
    firstRow = w.mul(w.divide(number, variant.parts), variant.rows);
    const int64_t shift = problem.shift();
    firstTile = w.i32(0);
    if (problem.options.causal)
      firstTile = w.divide(w.larger(w.add(firstRow, -shift), 0), variant.streamed);
    Value end = w.i32(problem.queries);
    if (problem.options.window) // if there are many more keys than queries, no query attends to the
                                // first keys
      end = w.larger(w.smaller(w.add(firstRow, variant.rows - 1 - shift + *problem.options.window),
                               problem.queries),
                     0);
    endTile = w.divide(w.add(end, variant.streamed - 1), variant.streamed);
    Value ofHead = w.larger(w.sub(endTile, firstTile), 0);
    turns = w.mul(ofHead, problem.group());
    tile = firstTile, group = w.i32(0);
    const int64_t resident = tiles.layout.bytes(variant.rows);
    sharedKeys = k.launchShared(2 * resident + 2 * stageBytes());
    sharedValues = w.at(sharedKeys, resident);
    stages = w.at(sharedKeys, 2 * resident);
    placeWarp();
    Value first = w.mul(head, problem.group());
    queryHeads = headAddress(problem.q, first);
    outHeads = headAddress(problem.dout, first);
  }

  void placeWarp() {
    warpRow = w.add(firstRow, w.mul(tiles.warp, 16 * variant.tiles()));
    Value own = w.mul(tiles.warp, tiles.layout.bytes(16 * variant.tiles()));
    ownKeys = w.at(sharedKeys, own);
    ownValues = w.at(sharedValues, own);
  }

  Value queryHead(Value group) { return w.add(w.mul(head, problem.group()), group); }
  Value ofGroup(Value address, const HeadTensor &tensor, Value group) {
    return w.at(address, k.mul(w.widen(group), tensor.head * 2));
  }

  void fetch(Value turn, Value tile, Value group) {
    Value stage = stageOf(turn), first = w.mul(tile, variant.streamed);
    tiles.fetch(ofGroup(queryHeads, problem.q, group), problem.q.position, first, variant.streamed,
                problem.queries, stage);
    tiles.fetch(ofGroup(outHeads, problem.dout, group), problem.dout.position, first,
                variant.streamed, problem.queries, w.at(stage, tileBytes()));
    // Statistics of queries that do not exist are 0: their probabilities are finite and their
    // gradients 0.
    k.ifTrue(w.isLess(tiles.thread, variant.streamed), [&] {
      Value row = w.add(first, tiles.thread);
      Value line = w.add(w.mul(sample, problem.heads), queryHead(group));
      Value number = k.add(k.mul(w.widen(line), problem.queries), w.widen(row));
      Value bytes = problem.queries % variant.streamed == 0
                        ? Value()
                        : k.select(w.isLess(row, problem.queries), w.i32(bytesOfQuery()), w.i32(0));
      w.copy(w.at(w.at(stage, 2 * tileBytes()), w.mul(tiles.thread, bytesOfQuery())),
             w.at(statistics, k.mul(number, bytesOfQuery())), int(bytesOfQuery()), bytes);
    });
  }

  void begin() {
    tiles.fetch(headAddress(problem.k, head), problem.k.position, firstRow, variant.rows,
                problem.keys, sharedKeys);
    tiles.fetch(headAddress(problem.v, head), problem.v.position, firstRow, variant.rows,
                problem.keys, sharedValues);
    k.ifTrue(w.isGreater(turns, 0), [&] { fetch(w.i32(0), tile, group); });
    w.commit();
    if (variant.fromRegisters > 0) {
      w.wait(0);
      w.barrier();
      keys = keep(ownKeys);
      if (variant.fromRegisters > 1)
        values = keep(ownValues);
    }
    dk = tiles.zeros(variant.tiles(), columnsOfPart() / 8);
    dv = dk;
  }

  Sums multiplyOwn(ArrayRef<WarpBuilder::Four> registers, Value own, Value stage) {
    Sums sums = tiles.zeros(variant.tiles(), variant.streamed / 8);
    tiles.multiplyTransposed(
        [&](int i, int m) {
          return registers.empty() ? tiles.left(own, i, 16 * m)
                                   : registers[size_t(i * variant.tiles() + m)];
        },
        stage, sums);
    return sums;
  }

  struct QueryStatistics {
    Scores::Reference reference;
    Value delta;
  };
  /// Statistics of a lane's two adjacent columns in block n.
  std::array<QueryStatistics, 2> statisticsOf(Value numbers, int n) {
    Value first =
        w.at(w.at(numbers, w.mul(tiles.laneColumn, bytesOfQuery())), 8 * bytesOfQuery() * n);
    auto four = [&](Value address) { return w.load(address, w.vectorOf(w.real, 4), 16); };
    Value left = four(first);
    if (!problem.addsMask()) // both columns in 16 bytes
      return {QueryStatistics{{w.extract(left, 0), {}}, w.extract(left, 1)},
              {{w.extract(left, 2), {}}, w.extract(left, 3)}};
    Value right = four(w.at(first, 16));
    return {QueryStatistics{{w.extract(left, 0), w.extract(left, 2)}, w.extract(left, 1)},
            {{w.extract(right, 0), w.extract(right, 2)}, w.extract(right, 1)}};
  }

  void step(Value turn) {
    w.wait(0);
    w.barrier();
    Value next = w.add(turn, 1), nextTile = w.add(tile, 1), nextGroup = group;
    if (problem.group() > 1) {
      Value isLast = w.negate(w.isLess(nextTile, endTile));
      nextTile = k.select(isLast, firstTile, nextTile);
      nextGroup = k.select(isLast, w.add(group, 1), group);
    }
    k.ifTrue(w.isLess(next, turns), [&] { fetch(next, nextTile, nextGroup); });
    w.commit();
    Value queries = stageOf(turn), outs = w.at(queries, tileBytes()),
          numbers = w.at(queries, 2 * tileBytes());
    const ScorePlace where{warpRow, w.mul(tile, variant.streamed), queryHead(group)};

    Sums p = multiplyOwn(keys, ownKeys, queries), slopes;
    if (problem.options.softcap)
      slopes = p;
    scores.apply(p, where, problem.options.softcap ? &slopes : nullptr);
    Sums ds = multiplyOwn(values, ownValues, outs);
    for (int n = 0; n < p.blocks; ++n) {
      const std::array<QueryStatistics, 2> columns = statisticsOf(numbers, n);
      for (int m = 0; m < p.tiles; ++m)
        for (int q = 0; q < 4; ++q) {
          const auto &[reference, delta] = columns[size_t(q % 2)];
          Value probability = scores.probability(p.at(m, n, q), reference),
                factor = w.f32(problem.options.scale);
          Value gradient, kept;
          if (scores.drops()) {
            kept = scores.isKept(where, m, n, q);
            gradient = k.select(
                kept, w.fma(ds.at(m, n, q), w.mulF(factor, scores.keptFactor()), delta), delta);
          } else {
            gradient = w.fma(ds.at(m, n, q), factor, delta);
          }
          gradient = w.mulF(probability, gradient);
          if (problem.options.softcap)
            gradient = w.mulF(gradient, slopes.at(m, n, q));
          ds.at(m, n, q) = gradient;
          p.at(m, n, q) = kept ? k.select(kept, probability, w.f32(0)) : probability;
        }
    }
    Value columns = w.mul(part, columnsOfPart() * 2);
    tiles.multiply(p, w.at(outs, columns), dv);
    tiles.multiply(ds, w.at(queries, columns), dk);
    tile = nextTile, group = nextGroup;
  }

  void store(const Sums &sums, const HeadTensor &tensor, Value own, bool areRead,
             Tiles::Factor factor) {
    const int64_t bytes = tensor.element.getIntOrFloatBitWidth() / 8;
    Value pieces = variant.parts > 1
                       ? w.sub(w.i32(problem.size / 8), w.mul(part, columnsOfPart() / 8))
                       : Value();
    Value matrix = w.at(headAddress(tensor, head), w.widen(w.mul(part, columnsOfPart() * bytes)));
    tiles.store(sums,
                {matrix, tensor.position, tensor.element, warpRow, problem.keys, noteResult(tensor),
                 pieces},
                own, areRead, factor);
  }

  void end() {
    // If a window hides all keys of a block from every query, there are no iterations, and no
    // thread has waited for the keys.
    if (problem.options.window) {
      w.wait(0);
      w.barrier();
    }
    // Results are staged in the shared memory of the warp's own rows of keys and values. Keys and
    // values in registers were read before the barriers of the iterations, and the second result
    // follows the barriers of the first.
    store(dk, problem.dk, ownKeys, variant.fromRegisters == 0 && !problem.options.window,
          [](int, int) { return Value(); });
    store(dv, problem.dv, ownValues, false,
          [&](int, int) { return scores.drops() ? scores.keptFactor() : Value(); });
    count({problem.q, problem.k, problem.v, problem.dout, problem.dk, problem.dv}, 4);
    k.addCost(Size{problem.heads * problem.queries, true}, int(bytesOfQuery()));
  }
};

} // namespace

Kernel cuda::buildKeyGradients(const KernelContext &context, const AttentionProblem &problem,
                               const KernelBuilder::Place &statistics) {
  return KeyGradients(context, problem, statistics).build();
}
