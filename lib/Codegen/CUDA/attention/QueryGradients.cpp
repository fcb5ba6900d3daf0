// Gradient dq: a block has some queries of a head and iterates over the keys that they attend to.
#include "AttentionKernels.h"

#include "AttentionKernel.h"

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

namespace {

class QueryGradients : QueryKernel {
public:
  QueryGradients(const KernelContext &context, const AttentionProblem &problem,
                 const KernelBuilder::Place &statisticsPlace)
      : QueryKernel(context, problem, queryGradientVariant(problem)) {
    statistics = w.global(k.operand(statisticsPlace));
  }

  Kernel build() {
    place();
    begin();
    loop(firstTile, endTile, dq.numbers, [&](Value tile) { step(tile); });
    // Queries in registers were read before the barriers of the tiles.
    tiles.store(dq, output(problem.dq), ownQueries, variant.fromRegisters == 0,
                [](int, int) { return Value(); });
    count({problem.q, problem.k, problem.v, problem.dout, problem.dq}, 3);
    k.addCost(Size{problem.heads * problem.queries, true}, int(4 * problem.statisticsOfQuery()));
    return finish("attention_query_gradients");
  }

private:
  Value statistics;
  Value sharedQueries, sharedOuts, stages, ownQueries, ownOuts;
  llvm::SmallVector<WarpBuilder::Four> queries, outs; ///< in registers
  SmallVector<Scores::Reference> references;          ///< of a lane's rows
  SmallVector<Value> deltas;
  Sums dq;

  Value stageOf(Value tile) { return w.at(stages, w.mul(w.bitsOf(tile, 1), 2 * tileBytes())); }

  void place() {
    const int64_t resident = tiles.layout.bytes(variant.rows);
    sharedQueries = k.launchShared(2 * resident + 4 * tileBytes());
    sharedOuts = w.at(sharedQueries, resident);
    stages = w.at(sharedQueries, 2 * resident);
    ownQueries = ownRows(sharedQueries);
    ownOuts = ownRows(sharedOuts);
  }

  void fetch(Value tile) {
    Value stage = stageOf(tile);
    fetchTile(keys, problem.k, tile, stage);
    fetchTile(values, problem.v, tile, w.at(stage, tileBytes()));
  }

  void begin() {
    tiles.fetch(headAddress(problem.q, head), problem.q.position, firstRow, variant.rows,
                problem.queries, sharedQueries);
    tiles.fetch(headAddress(problem.dout, head), problem.dout.position, firstRow, variant.rows,
                problem.queries, sharedOuts);
    fetch(firstTile);
    w.commit();
    Value line = w.add(w.mul(sample, problem.heads), head);
    Value first = k.mul(w.widen(line), problem.queries);
    for (int r = 0; r < 2 * variant.tiles(); ++r) {
      // Queries that do not exist use the values of the last query; their results are not stored.
      Value row = w.smaller(w.add(w.add(warpRow, tiles.laneRow), 16 * (r / 2) + 8 * (r % 2)),
                            problem.queries - 1);
      const int64_t numbers = problem.statisticsOfQuery();
      Value all = w.load(w.at(statistics, k.mul(k.add(first, w.widen(row)), 4 * numbers)),
                         w.vectorOf(w.real, numbers), unsigned(4 * numbers));
      references.push_back({w.extract(all, 0), problem.addsMask() ? w.extract(all, 2) : Value()});
      deltas.push_back(w.extract(all, 1));
    }
    if (variant.fromRegisters > 0) {
      w.wait(0);
      w.barrier();
      queries = keep(ownQueries);
      if (variant.fromRegisters > 1)
        outs = keep(ownOuts);
    }
    dq = tiles.zeros(variant.tiles(), tiles.layout.pieces());
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

  void step(Value tile) {
    w.wait(0);
    w.barrier();
    Value next = w.add(tile, 1);
    k.ifTrue(w.isLess(next, endTile), [&] { fetch(next); });
    w.commit();
    Value stage = stageOf(tile);
    const ScorePlace where = scorePlace(tile);
    Sums p = multiplyOwn(queries, ownQueries, stage), slopes;
    if (problem.options.softcap)
      slopes = p;
    scores.apply(p, where, problem.options.softcap ? &slopes : nullptr);
    Sums ds = multiplyOwn(outs, ownOuts, w.at(stage, tileBytes()));
    for (int m = 0; m < p.tiles; ++m)
      for (int n = 0; n < p.blocks; ++n)
        for (int q = 0; q < 4; ++q) {
          const size_t row = size_t(2 * m + q / 2);
          Value probability = scores.probability(p.at(m, n, q), references[row]),
                factor = w.f32(problem.options.scale), gradient;
          if (scores.drops())
            gradient =
                k.select(scores.isKept(where, m, n, q),
                         w.fma(ds.at(m, n, q), w.mulF(factor, scores.keptFactor()), deltas[row]),
                         deltas[row]);
          else
            gradient = w.fma(ds.at(m, n, q), factor, deltas[row]);
          gradient = w.mulF(probability, gradient);
          ds.at(m, n, q) = problem.options.softcap ? w.mulF(gradient, slopes.at(m, n, q))
                                                   : gradient;
        }
    tiles.multiply(ds, stage, dq);
  }
};

} // namespace

Kernel cuda::buildQueryGradients(const KernelContext &context, const AttentionProblem &problem,
                                 const KernelBuilder::Place &statistics) {
  return QueryGradients(context, problem, statistics).build();
}
