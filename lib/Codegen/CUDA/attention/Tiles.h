// Tiles of rows in shared memory: how they lie there without bank conflicts, how they get there and back, and the registers of products made of
// them.
#pragma once

#include "WarpBuilder.h"

namespace zorse::codegen::cuda {

/// How rows of 16-bit numbers lie in shared memory. Eight rows that ldmatrix reads together must be in different banks of 16 bytes, and so must eight
/// pieces that are copied together: where a row is a multiple or a power-of-two part of 128 bytes its pieces of 16 change places by an exclusive or
/// with the number of the row, or of the line of 128 bytes that it shares; elsewhere 16 bytes between rows make their number of pieces odd.
struct TileLayout {
  int columns;    ///< a multiple of 16
  int rowBytes;   ///< with what lies between rows
  int rowsOfLine; ///< rows that share a line of 128 bytes, 1 where a row has several; 0: not exchanged
  int lastOfLine; ///< greatest number that pieces are exchanged by: a power of two less 1

  static TileLayout of(int columns);
  bool swizzled() const { return rowsOfLine > 0; }
  /// What the numbers of a row's pieces are exchanged by.
  int exchange(int row) const { return row / rowsOfLine & lastOfLine; }
  int pieces() const { return columns / 8; }    ///< of 16 bytes, in a row
  int products() const { return columns / 16; } ///< of tensor cores, along a row
  int64_t bytes(int rows) const { return int64_t(rows) * rowBytes; }
};

/// Sums of a warp: 16 * tiles rows of 8 * blocks columns in the layout of mma.sync. Number q of block (m, n) is in row 16 m + 8 (q / 2) + lane / 4
/// and column 8 n + 2 (lane % 4) + q % 2.
struct Sums {
  int tiles = 0, blocks = 0;
  llvm::SmallVector<mlir::Value> numbers;

  mlir::Value &at(int m, int n, int q) { return numbers[size_t((m * blocks + n) * 4 + q)]; }
  mlir::Value at(int m, int n, int q) const { return numbers[size_t((m * blocks + n) * 4 + q)]; }
  WarpBuilder::Four four(int m, int n) const { return {at(m, n, 0), at(m, n, 1), at(m, n, 2), at(m, n, 3)}; }
  void set(int m, int n, const WarpBuilder::Four &four) {
    for (int q = 0; q < 4; ++q)
      at(m, n, q) = four[size_t(q)];
  }
};

/// Left operand of a product: of rows 16 m to 16 m + 15, columns 16 i to 16 i + 15.
using LeftOperand = llvm::function_ref<WarpBuilder::Four(int i, int m)>;

/// A block's threads and what they know of their places in tiles.
class Tiles {
public:
  using Value = mlir::Value;

  /// \param size  elements of a row in global memory, a multiple of 8 of at most layout.columns; the rest of a tile is zero
  Tiles(WarpBuilder &w, TileLayout layout, int64_t size, int threads);

  WarpBuilder &w;
  const TileLayout layout;
  Value thread, lane, warp;
  Value laneRow;    ///< lane / 4: row in the layout of sums
  Value laneColumn; ///< 2 (lane % 4): column

  /// Begins to fetch rows [first, first + rows) of a matrix; those from `limit` on are zero.
  /// \param matrix  address of row 0, on a multiple of 16
  /// \param stride  elements, a multiple of 8
  /// \param rows    a multiple of rowsOfPass()
  void fetch(Value matrix, int64_t stride, Value first, int rows, int64_t limit, Value shared);
  int rowsOfPass() const { return threads / lanesOfRow; }

  /// Registers of a left operand: rows `row` to row + 15, columns 16 i to 16 i + 15.
  WarpBuilder::Four left(Value tile, int i, int row);
  /// Of two right operands, of a tile whose rows are columns of the operand: its columns `row` to row + 15 and rows 16 i to 16 i + 15.
  WarpBuilder::Four right(Value tile, int i, int row);
  /// Of two right operands, of a tile whose rows are rows of the operand: rows `row` to row + 15 and columns 16 i to 16 i + 15.
  WarpBuilder::Four rightOfRows(Value tile, int i, int row);

  Sums zeros(int tiles, int blocks);
  /// sums[16 tiles x 16 n] += left * tile^T, over the columns of the tile's first 16 n rows.
  void multiplyTransposed(LeftOperand left, Value tile, Sums &sums);
  /// sums[16 tiles x 8 blocks] += p * the tile's first columns, where p is rounded.
  void multiply(const Sums &p, Value tile, Sums &sums);
  /// Of blocks 2 i and 2 i + 1 of sums: no exchange between lanes is needed.
  WarpBuilder::Four asLeft(const Sums &p, int i, int m);
  /// Part of it: rows 16 i to 16 i + 15 of the tile, by left operands of each of the sums' tiles.
  void multiplyRows(llvm::ArrayRef<WarpBuilder::Four> left, int i, Value tile, Sums &sums);

  /// Where sums go: rows from `first` on, of which those from `limit` on do not exist, times `factor(m, half)`.
  struct Output {
    Value matrix; ///< address of row 0 and of the first column of sums
    int64_t stride;
    mlir::Type element;
    Value first; ///< of the warp
    int64_t limit;
    Value accumulate; ///< i1: add to what is there; null: never
    Value pieces;     ///< i32: of eight columns, how many exist; null: those of a row
  };
  using Factor = llvm::function_ref<Value(int m, int half)>;
  /// \param rows     16 * tiles rows of shared memory that are the warp's own
  /// \param areRead  other lanes may have read them since the last barrier
  void store(const Sums &sums, const Output &output, Value rows, bool areRead, Factor factor);

private:
  const int64_t size;
  const int threads, lanesOfRow;
  Value copyRow, copyPiece, copyOffset, leftOffset, rightOffset;

  /// Bytes of `piece` of a row whose number is `row` modulo 8.
  Value pieceOffset(Value piece, Value row);
  Value address(Value tile, Value laneOffset, int i, int row);
  void storeNarrow(const Sums &sums, const Output &output, Value rows, bool areRead, Factor factor);
  void storeWide(const Sums &sums, const Output &output, Factor factor);
  void storePair(Value x, Value y, Value address, Value accumulate);
};

} // namespace zorse::codegen::cuda
