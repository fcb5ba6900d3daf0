// Elementwise operations on scores: scale, softcap, mask, hide, exponentiate, and dropout of
// probabilities.
#pragma once

#include "Problem.h"
#include "Tiles.h"

#include "RandomNumbers.h"

namespace zorse::codegen::cuda {

inline constexpr double kLog2E = 1.4426950408889634;

/// Orientation of a tile of scores.
enum class Orientation { RowsAreQueries, RowsAreKeys };

/// Position of a warp's scores of a tile. Positions are i32.
struct ScorePlace {
  mlir::Value warpRow,
      tileColumn;   ///< first row of the warp, first column of the tile; uniform within a warp
  mlir::Value head; ///< query head
};

class Scores {
public:
  using Value = mlir::Value;

  /// \param sample    i32, index in the call; selects the mask and the random numbers
  /// \param streamed  columns of a tile
  Scores(Tiles &tiles, const AttentionProblem &problem, Orientation orientation, Value sample,
         int streamed);

  /// Turns products into scores; hidden scores become -inf. Scores of a plain problem remain
  /// products without the scale.
  /// \param slopes  set to the derivative of the softcap; unchanged without softcap; may be null
  void apply(Sums &scores, const ScorePlace &place, Sums *slopes = nullptr);

  /// Values by which a row's scores become probabilities.
  struct Reference {
    Value shift;     ///< subtracted from scores, scaled like their exponents
    Value logarithm; ///< null, or minus the base-2 logarithm of the sum of e^(score - shift)
  };
  /// Computes the reference of `probability` from a row's maximum score or log-sum-exp, which must
  /// be finite.
  Reference reference(Value statistic);
  /// e^(score - shift), divided by the sum if there is one.
  Value probability(Value score, const Reference &reference);
  /// e^(before - now) for maximum scores; 1 if the maximum has not changed. `now` must be finite.
  Value decay(Value before, Value now);
  /// Converts a maximum score to natural units.
  Value natural(Value score);

  bool drops() const { return problem.options.dropout > 0; }
  /// i1: whether the probability at these indices of Sums is kept.
  Value isKept(const ScorePlace &place, int m, int n, int q);
  /// Scale factor of kept probabilities; only if `drops`.
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
  /// i1: whether a score of the warp in this tile is hidden by its position; null: none is ever
  /// hidden.
  Value hides(const ScorePlace &place, int tilesOfWarp);
  void hide(Sums &scores, const ScorePlace &place);
  Value laneRow(const ScorePlace &place) { return w.add(place.warpRow, tiles.laneRow); }
  Value laneColumn(const ScorePlace &place) { return w.add(place.tileColumn, tiles.laneColumn); }
};

} // namespace zorse::codegen::cuda
