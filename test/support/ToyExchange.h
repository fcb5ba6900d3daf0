// A model with units that exchange values between the devices of their cells: scale -> pair -> pair
// -> loss, 16 numbers per row.
//
//   scale   h = x * a
//   pair    y = M (h * h), with a matrix M of small numbers. Each of a cell's two devices squares
//   its share of the rows.
//           They gather the squares, and both multiply. In the backward, each device sums the
//           contributions of its rows of M (10 and 6 of the 16), and a reduction gives dh / 2h
//   loss    y . w
//
// Without exchanges, `pair` computes everything in one call, with the same sums.
#pragma once

#include "bundle.pb.h"

namespace zorse::test {

struct ToyExchange {
  static constexpr int64_t kWidth = 16, kRow = 4 * kWidth;     ///< numbers per row, and their bytes
  static constexpr uint32_t kPairs[] = {1, 2};                 ///< units that exchange
  static constexpr uint32_t kSquares = 1, kTerm = 2, kSum = 3; ///< indices in the units' values_out

  explicit ToyExchange(bool exchanges);

  bundle::ModelSummary summary;
  bundle::FunctionLibrary functions;
};

} // namespace zorse::test
