// Tiles of rows in shared memory: layout without bank conflicts, copies from and to global memory,
// and the registers of products of tiles.
#pragma once

#include "WarpBuilder.h"

namespace zorse::codegen::cuda {

/// Layout of rows of 16-bit numbers in shared memory. Eight rows that ldmatrix reads together must
/// be in different banks of 16 bytes; the same holds for eight 16-byte chunks that are copied
/// together. If the row size is a multiple or a power-of-two fraction of 128 bytes, the chunks are
/// swizzled: their index is combined by exclusive or with the index of the row, or of the 128-byte
/// line that it shares. Otherwise 16 bytes of padding make the number of chunks per row odd.
struct TileLayout {
  int columns;    ///< a multiple of 16
  int rowBytes;   ///< including padding
  int rowsOfLine; ///< rows that share a line of 128 bytes; 1 if a row has one or more lines; 0: no
                  ///< swizzle
  int lastOfLine; ///< largest swizzle value: a power of two minus 1

  static TileLayout of(int columns);
  bool swizzled() const { return rowsOfLine > 0; }
  /// Swizzle value of the chunks of a row.
  int exchange(int row) const { return row / rowsOfLine & lastOfLine; }
  int pieces() const { return columns / 8; }   ///< chunks of 16 bytes per row
  int matmuls() const { return columns / 16; } ///< tensor-core products along a row
  int64_t bytes(int rows) const { return int64_t(rows) * rowBytes; }
};

/// Sums of a warp: 16 * tiles rows of 8 * blocks columns in the layout of mma.sync. Element q of
/// block (m, n) is in row 16 m + 8 (q / 2) + lane / 4 and column 8 n + 2 (lane % 4) + q % 2.
struct Sums {
  int tiles = 0, blocks = 0;
  llvm::SmallVector<mlir::Value> numbers;

  mlir::Value &at(int m, int n, int q) { return numbers[size_t((m * blocks + n) * 4 + q)]; }
  mlir::Value at(int m, int n, int q) const { return numbers[size_t((m * blocks + n) * 4 + q)]; }
  WarpBuilder::Four four(int m, int n) const {
    return {at(m, n, 0), at(m, n, 1), at(m, n, 2), at(m, n, 3)};
  }
  void set(int m, int n, const WarpBuilder::Four &four) {
    for (int q = 0; q < 4; ++q)
      at(m, n, q) = four[size_t(q)];
  }
};

/// Returns the left operand of a product: rows 16 m to 16 m + 15, columns 16 i to 16 i + 15.
using LeftOperand = llvm::function_ref<WarpBuilder::Four(int i, int m)>;

/// Access of a block's threads to tiles.
class Tiles {
public:
  using Value = mlir::Value;

  /// \param size  elements of a row in global memory: a multiple of 8, at most layout.columns; the
  /// rest of a tile is zero
  Tiles(WarpBuilder &w, TileLayout layout, int64_t size, int threads);

  WarpBuilder &w;
  const TileLayout layout;
  Value thread, lane, warp;
  Value laneRow;    ///< lane / 4: row in the layout of sums
  Value laneColumn; ///< 2 (lane % 4): column

  /// Starts an asynchronous copy of rows [first, first + rows) of a matrix; rows from `limit` on
  /// are zero.
  /// \param matrix  address of row 0, aligned to 16 bytes
  /// \param stride  in elements, a multiple of 8
  /// \param rows    a multiple of rowsOfPass()
  void fetch(Value matrix, int64_t stride, Value first, int rows, int64_t limit, Value shared);
  int rowsOfPass() const { return threads / lanesOfRow; }

  /// Registers of a left operand: rows `row` to row + 15, columns 16 i to 16 i + 15.
  WarpBuilder::Four left(Value tile, int i, int row);
  /// Registers of two right operands, from a tile with rows that are columns of the operand: its
  /// columns `row` to row + 15 and rows 16 i to 16 i + 15.
  WarpBuilder::Four right(Value tile, int i, int row);
  /// Registers of two right operands, from a tile with rows that are rows of the operand: rows
  /// `row` to row + 15 and columns 16 i to 16 i + 15.
  WarpBuilder::Four rightOfRows(Value tile, int i, int row);

  Sums zeros(int tiles, int blocks);
  /// sums[16 tiles x 16 n] += left * tile^T, over the columns of the tile's first 16 n rows.
  void multiplyTransposed(LeftOperand left, Value tile, Sums &sums);
  /// sums[16 tiles x 8 blocks] += p * the tile's first columns; p is rounded.
  void multiply(const Sums &p, Value tile, Sums &sums);
  /// Left operand from blocks 2 i and 2 i + 1 of sums. No exchange between lanes is needed.
  WarpBuilder::Four asLeft(const Sums &p, int i, int m);
  /// A part of `multiply`: rows 16 i to 16 i + 15 of the tile, with a left operand for each tile of
  /// the sums.
  void multiplyRows(llvm::ArrayRef<WarpBuilder::Four> left, int i, Value tile, Sums &sums);

  /// Destination of sums: rows from `first` on, multiplied by `factor(m, half)`. Rows from `limit`
  /// on are not stored.
  struct Output {
    Value matrix; ///< address of row 0 and of the first column of sums
    int64_t stride;
    mlir::Type element;
    Value first; ///< first row of the warp
    int64_t limit;
    Value accumulate; ///< i1: add to the stored values; null: never
    Value pieces;     ///< i32: number of 8-column chunks to store; null: all of a row
  };
  using Factor = llvm::function_ref<Value(int m, int half)>;
  /// \param rows     16 * tiles rows of shared memory that belong to the warp
  /// \param areRead  whether other lanes may have read them since the last barrier
  void store(const Sums &sums, const Output &output, Value rows, bool areRead, Factor factor);

private:
  const int64_t size;
  const int threads, lanesOfRow;
  Value copyRow, copyPiece, copyOffset, leftOffset, rightOffset;

  /// Byte offset of `piece` in a row with index `row` modulo 8.
  Value pieceOffset(Value piece, Value row);
  Value address(Value tile, Value laneOffset, int i, int row);
  void storeNarrow(const Sums &sums, const Output &output, Value rows, bool areRead, Factor factor);
  void storeWide(const Sums &sums, const Output &output, Factor factor);
  void storePair(Value x, Value y, Value address, Value accumulate);
};

} // namespace zorse::codegen::cuda
