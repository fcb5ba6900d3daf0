// A model whose units exchange values between the devices of their cells: scale -> pair -> pair -> loss, 16 numbers per row.
//
//   scale   h = x * a
//   pair    y = M (h * h), with a matrix M of small numbers. Of a cell's two devices each squares its share of the rows; they gather the squares, and
//           both multiply. Backward each adds up what its rows of M bring, 10 of 16 and 6 of 16, and they reduce that to dh / 2h
//   loss    y . w
//
// Without exchanges `pair` does all of it in one call, with the same sums.
#pragma once

#include "bundle.pb.h"

namespace zorse::test {

struct ToyExchange {
  static constexpr int64_t kWidth = 16, kRow = 4 * kWidth;     ///< numbers, and their bytes
  static constexpr uint32_t kPairs[] = {1, 2};                 ///< units that exchange
  static constexpr uint32_t kSquares = 1, kTerm = 2, kSum = 3; ///< in their values_out

  explicit ToyExchange(bool exchanges);

  bundle::ModelSummary summary;
  bundle::BodyLibrary bodies;
};

} // namespace zorse::test
