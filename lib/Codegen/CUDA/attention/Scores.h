// What happens to scores one by one: they are scaled, capped, masked and hidden, become probabilities, and some of these are dropped.
#pragma once

#include "Problem.h"
#include "Tiles.h"

#include "RandomNumbers.h"

namespace zorse::codegen::cuda {

inline constexpr double kLog2E = 1.4426950408889634;

/// Which way a tile of scores lies.
enum class Orientation { RowsAreQueries, RowsAreKeys };

/// Where a warp's scores of a tile are. Positions i32.
struct ScorePlace {
  mlir::Value warpRow, tileColumn; ///< the first row of the warp, the first column of the tile; one for all lanes of a warp
  mlir::Value head;                ///< of queries
};

class Scores {
public:
  using Value = mlir::Value;

  /// \param sample    i32, in the call; the mask's numbers and random ones are this sample's
  /// \param streamed  columns of a tile
  Scores(Tiles &tiles, const AttentionProblem &problem, Orientation orientation, Value sample, int streamed);

  /// From products to scores: those that are hidden become -inf. Scores of a plain problem are products still, without the scale.
  /// \param slopes  null, or gets the derivative of the cap; unchanged without one
  void apply(Sums &scores, const ScorePlace &place, Sums *slopes = nullptr);

  /// What a row's scores become probabilities by.
  struct Reference {
    Value shift;     ///< what is taken off scores, as their exponents take it
    Value logarithm; ///< null, or minus the logarithm to base 2 of the sum of e^(score - shift)
  };
  /// What `probability` wants of a row's greatest score or logarithm of sums, which is finite.
  Reference reference(Value statistic);
  /// e^(score - shift), divided by the sum where there is one.
  Value probability(Value score, const Reference &reference);
  /// e^(before - now) of greatest scores, 1 where nothing has changed; `now` is finite.
  Value decay(Value before, Value now);
  /// A greatest score in natural units.
  Value natural(Value score);

  bool drops() const { return problem.options.dropout > 0; }
  /// i1: whether the probability at these indices of Sums is kept.
  Value isKept(const ScorePlace &place, int m, int n, int q);
  /// Of what is kept; only where `drops`.
  Value keptFactor() const { return rule.factor; }

private:
  Tiles &tiles;
  WarpBuilder &w;
  const AttentionProblem &problem;
  const bool rowsAreQueries;
  const int streamed;
  unsigned maskOperand = 0;
  Value maskBase, stream; ///< i64
  DropoutRule rule;

  void scaleAndMask(Sums &scores, const ScorePlace &place, Sums *slopes);
  /// i1: whether a score of the warp in this tile is hidden by its position; null: none ever is.
  Value hides(const ScorePlace &place, int tilesOfWarp);
  void hide(Sums &scores, const ScorePlace &place);
  Value laneRow(const ScorePlace &place) { return w.add(place.warpRow, tiles.laneRow); }
  Value laneColumn(const ScorePlace &place) { return w.add(place.tileColumn, tiles.laneColumn); }
};

} // namespace zorse::codegen::cuda
