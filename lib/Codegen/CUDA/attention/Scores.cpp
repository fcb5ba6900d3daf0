#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

static constexpr double kHidden = -std::numeric_limits<double>::infinity();

Scores::Scores(Tiles &tiles, const AttentionProblem &problem, Orientation orientation, Value sample,
               int streamed)
    : tiles(tiles), w(tiles.w), problem(problem),
      rowsAreQueries(orientation == Orientation::RowsAreQueries), streamed(streamed) {
  if (problem.mask) {
    maskOperand = w.k.operand(problem.mask->root, problem.mask->offset);
    maskBase = w.k.mul(w.widen(sample), problem.mask->row);
  }
  if (drops()) {
    const unsigned scalars = w.k.operand(Value(), 0);
    stream = randomStream(w.k, scalars, problem.options.rngId, w.widen(sample));
    rule = dropoutRule(w.k, scalars, problem.options.dropout, w.real);
  }
}

/// Row and column of element (m, n, q) of Sums, relative to a lane's first.
static int rowOf(int m, int q) { return 16 * m + 8 * (q / 2); }
static int columnOf(int n, int q) { return 8 * n + q % 2; }

template <typename Body> static void forEach(const Sums &sums, Body body) {
  for (int m = 0; m < sums.tiles; ++m)
    for (int n = 0; n < sums.blocks; ++n)
      for (int q = 0; q < 4; ++q)
        body(m, n, q);
}

void Scores::apply(Sums &scores, const ScorePlace &place, Sums *slopes) {
  if (!problem.isPlain())
    scaleAndMask(scores, place, slopes);
  Value needed = hides(place, scores.tiles);
  if (!needed)
    return;
  scores.numbers = w.k.ifElse(needed, scores.numbers, [&] {
    Sums inside = scores;
    hide(inside, place);
    return inside.numbers;
  });
}

void Scores::scaleAndMask(Sums &scores, const ScorePlace &place, Sums *slopes) {
  const double scale = problem.options.scale;
  const std::optional<double> cap = problem.options.softcap;
  forEach(scores, [&](int m, int n, int q) {
    Value &score = scores.at(m, n, q);
    if (!cap) {
      score = w.mulF(score, w.f32(scale));
      return;
    }
    // tanh x = 1 - 2 / (e^2x + 1), with an error of about 2^-22 relative to 1.
    Value power = w.exp2(w.mulF(score, w.f32(2 * kLog2E * scale / *cap)));
    Value bent = w.fma(w.f32(-2), w.reciprocal(w.addF(power, w.f32(1))), w.f32(1));
    score = w.mulF(bent, w.f32(*cap));
    if (slopes)
      slopes->at(m, n, q) = w.fma(w.mulF(bent, w.f32(-1)), bent, w.f32(1));
  });
  if (!problem.mask)
    return;
  // Positions that do not exist read the last one that exists.
  const MaskTensor &mask = *problem.mask;
  Value base = w.k.add(maskBase, w.k.mul(w.widen(place.head), mask.head));
  Value row = laneRow(place), column = laneColumn(place);
  auto index = [&](Value first, int ahead, bool isQuery) {
    return w.widen(w.smaller(w.add(first, ahead), (isQuery ? problem.queries : problem.keys) - 1));
  };
  forEach(scores, [&](int m, int n, int q) {
    Value query = rowsAreQueries ? index(row, rowOf(m, q), true)
                                 : index(column, columnOf(n, q), true);
    Value key = rowsAreQueries ? index(column, columnOf(n, q), false)
                               : index(row, rowOf(m, q), false);
    Value offset = w.k.add(base, w.k.add(w.k.mul(query, mask.query), key));
    Value number = w.k.load(w.k.pointer(maskOperand), offset, mask.element);
    Value &score = scores.at(m, n, q);
    score = mask.element.isInteger(1) ? w.k.select(number, score, w.f32(kHidden))
                                      : w.addF(score, number);
  });
}

Value Scores::hides(const ScorePlace &place, int tilesOfWarp) {
  const int lastRow = 16 * tilesOfWarp - 1;
  const int64_t shift = problem.shift();
  Value any;
  auto when = [&](Value condition) { any = any ? w.either(any, condition) : condition; };
  Value ahead = rowsAreQueries ? w.sub(place.tileColumn, place.warpRow)
                               : w.sub(place.warpRow, place.tileColumn); // key - query
  if (problem.options.causal)
    when(w.isGreater(ahead, shift - (rowsAreQueries ? streamed - 1 : lastRow)));
  if (problem.options.window)
    when(w.isLess(ahead,
                  shift - *problem.options.window + 1 + (rowsAreQueries ? lastRow : streamed - 1)));
  // Keys that do not exist must be hidden, except with `causal`, where no existing query sees them.
  // Queries that do not exist have gradients of 0, so it suffices that their probabilities are
  // finite. Masks do not guarantee this.
  const int64_t columns = rowsAreQueries ? problem.keys : problem.queries;
  if ((rowsAreQueries ? !problem.options.causal : problem.mask.has_value()) &&
      columns % streamed != 0)
    when(w.isGreater(place.tileColumn, columns - streamed));
  return any;
}

void Scores::hide(Sums &scores, const ScorePlace &place) {
  Value row = laneRow(place), column = laneColumn(place);
  Value ahead = rowsAreQueries ? w.sub(column, row) : w.sub(row, column);
  const int64_t shift = problem.shift(), columns = rowsAreQueries ? problem.keys : problem.queries;
  const bool ends = (rowsAreQueries ? !problem.options.causal : problem.mask.has_value()) &&
                    columns % streamed != 0;
  forEach(scores, [&](int m, int n, int q) {
    // key - query of this element, relative to the lane's first.
    const int beside = (columnOf(n, q) - rowOf(m, q)) * (rowsAreQueries ? 1 : -1);
    Value hidden;
    auto when = [&](Value condition) { hidden = hidden ? w.either(hidden, condition) : condition; };
    if (problem.options.causal)
      when(w.isGreater(ahead, shift - beside));
    if (problem.options.window)
      when(w.isLess(ahead, shift - beside - *problem.options.window + 1));
    if (ends)
      when(w.isGreater(column, columns - 1 - columnOf(n, q)));
    if (hidden)
      scores.at(m, n, q) = w.k.select(hidden, w.f32(kHidden), scores.at(m, n, q));
  });
}

Scores::Reference Scores::reference(Value statistic) {
  return {problem.isPlain() ? w.mulF(statistic, w.f32(-problem.options.scale * kLog2E)) : statistic,
          {}};
}

Value Scores::probability(Value score, const Reference &reference) {
  if (problem.isPlain())
    return w.exp2(w.fma(score, w.f32(problem.options.scale * kLog2E), reference.shift));
  // With an additive mask, maximum scores can be as large as floats can be. Only their differences
  // may be multiplied.
  Value difference = w.subF(score, reference.shift);
  return w.exp2(reference.logarithm ? w.fma(difference, w.f32(kLog2E), reference.logarithm)
                                    : w.mulF(difference, w.f32(kLog2E)));
}

Value Scores::decay(Value before, Value now) {
  return w.exp2(w.mulF(w.subF(before, now),
                       w.f32(problem.isPlain() ? problem.options.scale * kLog2E : kLog2E)));
}

Value Scores::natural(Value score) {
  return problem.isPlain() ? w.mulF(score, w.f32(problem.options.scale)) : score;
}

Value Scores::isKept(const ScorePlace &place, int m, int n, int q) {
  // (head S + query) S' + key.
  Value row = laneRow(place), column = laneColumn(place);
  Value query = rowsAreQueries ? row : column, key = rowsAreQueries ? column : row;
  const int queriesAhead = rowsAreQueries ? rowOf(m, q) : columnOf(n, q),
            keysAhead = rowsAreQueries ? columnOf(n, q) : rowOf(m, q);
  Value head = w.k.add(w.widen(place.head), w.k.i64(problem.options.firstHead));
  Value line = w.k.add(w.k.mul(head, problem.queries), w.widen(query));
  Value element = w.k.add(w.k.mul(line, problem.keys), w.widen(key));
  element = w.k.add(element, w.k.i64(queriesAhead * problem.keys + keysAhead));
  return zorse::codegen::isKept(w.k, stream, element, rule);
}
