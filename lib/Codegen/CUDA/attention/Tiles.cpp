#include "Tiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

TileLayout TileLayout::of(int columns) {
  const int bytes = columns * 2;
  if (bytes % 128 == 0)
    return {columns, bytes, 1, 7};
  if (bytes == 32 || bytes == 64)
    return {columns, bytes, 128 / bytes, bytes / 16 - 1};
  return {columns, bytes + 16, 0, 0};
}

static int powerOfTwoFrom(int number) {
  int power = 1;
  while (power < number)
    power *= 2;
  return power;
}

Tiles::Tiles(WarpBuilder &w, TileLayout layout, int64_t size, int threads)
    : w(w), layout(layout), size(size), threads(threads),
      lanesOfRow(powerOfTwoFrom(layout.pieces())) {
  thread = w.k.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", w.word, {});
  lane = w.bitsOf(thread, 31);
  warp = w.divide(thread, 32);
  laneRow = w.divide(lane, 4);
  laneColumn = w.shiftLeft(w.bitsOf(lane, 3), 1);
  copyRow = w.divide(thread, lanesOfRow);
  copyPiece = w.bitsOf(thread, lanesOfRow - 1);
  copyOffset = w.add(w.mul(copyRow, layout.rowBytes), pieceOffset(copyPiece, copyRow));
  // Lane l gives ldmatrix the address of row l & 7 of matrix l / 8. The matrices of a left operand,
  // and of transposed right operands, are rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
  // Those of right operands that are not transposed are columns 0-7 and 8-15 of rows 0-7, then of
  // rows 8-15.
  Value low = w.bitsOf(lane, 7), high = w.divide(lane, 16);
  leftOffset = w.add(w.mul(w.bitsOf(lane, 15), layout.rowBytes), pieceOffset(high, low));
  Value row = w.add(low, w.shiftLeft(high, 3)), piece = w.bitsOf(w.divide(lane, 8), 1);
  rightOffset = w.add(w.mul(row, layout.rowBytes), pieceOffset(piece, low));
}

Value Tiles::pieceOffset(Value piece, Value row) {
  if (layout.swizzled())
    piece = w.exclusiveOr(piece, w.bitsOf(w.divide(row, layout.rowsOfLine), layout.lastOfLine));
  return w.shiftLeft(piece, 4);
}

void Tiles::fetch(Value matrix, int64_t stride, Value first, int rows, int64_t limit,
                  Value shared) {
  const int perPass = rowsOfPass();
  assert(rows % perPass == 0 && "a tile is whole passes of the block's threads");
  Value row = w.add(first, copyRow);
  // All threads have the same matrix address: adding a 32-bit offset to it needs one register
  // instead of two.
  Value pieceBytes = w.shiftLeft(copyPiece, 4), from;
  if ((limit + rows) * stride * 2 < INT32_MAX)
    from = w.at(matrix, w.widen(w.add(w.mul(row, stride * 2), pieceBytes)));
  else
    from = w.at(w.at(matrix, w.k.mul(w.widen(row), stride * 2)), w.widen(pieceBytes));
  Value inside = size < layout.columns ? w.isLess(copyPiece, size / 8) : Value();
  const bool whole = limit % rows == 0; // tiles begin at multiples of their number of rows
  auto fetchRows = [&] {
    for (int pass = 0; pass < rows / perPass; ++pass) {
      const int ahead = pass * perPass;
      Value exists = whole ? inside : w.isLess(row, limit - ahead);
      if (!whole && inside)
        exists = w.both(exists, inside);
      Value bytes = exists ? w.k.select(exists, w.i32(16), w.i32(0)) : Value();
      // Passes of fewer than eight rows change the row index modulo 8.
      Value to = layout.swizzled() ? w.exclusiveOr(copyOffset, layout.exchange(ahead) << 4)
                                   : copyOffset;
      w.copy(w.at(w.at(shared, to), int64_t(ahead) * layout.rowBytes),
             w.at(from, stride * 2 * ahead), 16, bytes);
    }
  };
  if (lanesOfRow == layout.pieces())
    return fetchRows();
  w.k.ifTrue(w.isLess(copyPiece, layout.pieces()), fetchRows);
}

Value Tiles::address(Value tile, Value laneOffset, int i, int row) {
  const int bytes = 32 * i;
  // In a swizzled row, only the lowest three bits of a chunk's index change.
  Value offset = layout.swizzled() ? w.exclusiveOr(laneOffset, bytes & 127) : laneOffset;
  return w.at(w.at(tile, offset), layout.bytes(row) + (layout.swizzled() ? bytes & ~127 : bytes));
}

WarpBuilder::Four Tiles::left(Value tile, int i, int row) {
  return w.loadMatrices(address(tile, leftOffset, i, row), false);
}
WarpBuilder::Four Tiles::right(Value tile, int i, int row) {
  return w.loadMatrices(address(tile, rightOffset, i, row), false);
}
WarpBuilder::Four Tiles::rightOfRows(Value tile, int i, int row) {
  return w.loadMatrices(address(tile, leftOffset, i, row), true);
}

Sums Tiles::zeros(int tiles, int blocks) {
  Sums sums{tiles, blocks, {}};
  sums.numbers.assign(size_t(tiles * blocks * 4), w.f32(0));
  return sums;
}

void Tiles::multiplyTransposed(LeftOperand left, Value tile, Sums &sums) {
  for (int i = 0; i < layout.matmuls(); ++i) {
    SmallVector<WarpBuilder::Four, 2> a;
    for (int m = 0; m < sums.tiles; ++m)
      a.push_back(left(i, m));
    for (int n = 0; n < sums.blocks; n += 2) {
      const WarpBuilder::Four two = right(tile, i, 8 * n);
      for (int m = 0; m < sums.tiles; ++m)
        for (int h = 0; h < 2; ++h)
          sums.set(m, n + h,
                   w.multiply(a[size_t(m)], two[size_t(2 * h)], two[size_t(2 * h + 1)],
                              sums.four(m, n + h)));
    }
  }
}

WarpBuilder::Four Tiles::asLeft(const Sums &p, int i, int m) {
  return {w.pack(p.at(m, 2 * i, 0), p.at(m, 2 * i, 1)),
          w.pack(p.at(m, 2 * i, 2), p.at(m, 2 * i, 3)),
          w.pack(p.at(m, 2 * i + 1, 0), p.at(m, 2 * i + 1, 1)),
          w.pack(p.at(m, 2 * i + 1, 2), p.at(m, 2 * i + 1, 3))};
}

void Tiles::multiplyRows(ArrayRef<WarpBuilder::Four> left, int i, Value tile, Sums &sums) {
  for (int n = 0; n < sums.blocks; n += 2) {
    const WarpBuilder::Four two = rightOfRows(tile, n / 2, 16 * i);
    for (int m = 0; m < sums.tiles; ++m)
      for (int h = 0; h < 2; ++h)
        sums.set(m, n + h,
                 w.multiply(left[size_t(m)], two[size_t(2 * h)], two[size_t(2 * h + 1)],
                            sums.four(m, n + h)));
  }
}

void Tiles::multiply(const Sums &p, Value tile, Sums &sums) {
  for (int i = 0; i < p.blocks / 2; ++i) {
    SmallVector<WarpBuilder::Four, 2> left;
    for (int m = 0; m < p.tiles; ++m)
      left.push_back(asLeft(p, i, m));
    multiplyRows(left, i, tile, sums);
  }
}

void Tiles::store(const Sums &sums, const Output &output, Value rows, bool areRead, Factor factor) {
  if (output.element == w.element)
    storeNarrow(sums, output, rows, areRead, factor);
  else
    storeWide(sums, output, factor);
}

void Tiles::storeNarrow(const Sums &sums, const Output &output, Value rows, bool areRead,
                        Factor factor) {
  assert(!output.accumulate && "nothing is added to half precision in place");
  // Stage results in the warp's own rows of shared memory, so that a row is written in complete
  // chunks of 16 bytes.
  if (areRead)
    w.warpBarrier();
  Value corner = w.add(w.mul(laneRow, layout.rowBytes), w.shiftLeft(laneColumn, 1));
  for (int m = 0; m < sums.tiles; ++m)
    for (int n = 0; n < sums.blocks; ++n)
      for (int half = 0; half < 2; ++half) {
        Value scale = factor(m, half), x = sums.at(m, n, 2 * half), y = sums.at(m, n, 2 * half + 1);
        Value both = scale ? w.pack(w.mulF(x, scale), w.mulF(y, scale)) : w.pack(x, y);
        Value offset = w.add(corner, pieceOffset(w.i32(n), laneRow));
        w.store(both, w.at(w.at(rows, offset), layout.bytes(16 * m + 8 * half)), 4);
      }
  w.warpBarrier();
  const int perPass = 32 / lanesOfRow;
  Value row = w.divide(lane, lanesOfRow), piece = w.bitsOf(lane, lanesOfRow - 1);
  Value from = w.add(w.mul(row, layout.rowBytes), pieceOffset(piece, row));
  Value to = w.at(output.matrix, w.k.mul(w.widen(w.add(output.first, row)), output.stride * 2));
  to = w.at(to, w.widen(w.shiftLeft(piece, 4)));
  Value mine = w.isLess(piece, output.pieces ? w.smaller(output.pieces, sums.blocks)
                                             : w.i32(std::min<int64_t>(sums.blocks, size / 8)));
  for (int pass = 0; pass < 16 * sums.tiles / perPass; ++pass) {
    const int ahead = pass * perPass;
    Value exists = w.both(mine, w.isLess(w.add(output.first, row), output.limit - ahead));
    w.k.ifTrue(exists, [&] {
      Value offset = layout.swizzled() ? w.exclusiveOr(from, layout.exchange(ahead) << 4) : from;
      Value all = w.load(w.at(w.at(rows, offset), layout.bytes(ahead)), w.vectorOf(w.word, 4), 16);
      w.store(all, w.at(to, output.stride * 2 * ahead), 16);
    });
  }
}

void Tiles::storeWide(const Sums &sums, const Output &output, Factor factor) {
  // The four lanes of a row write 32 contiguous bytes: one memory sector.
  Value first = w.add(output.first, laneRow);
  Value to = w.at(output.matrix, w.k.mul(w.widen(first), output.stride * 4));
  to = w.at(to, w.widen(w.shiftLeft(laneColumn, 2)));
  for (int m = 0; m < sums.tiles; ++m)
    for (int half = 0; half < 2; ++half) {
      const int ahead = 16 * m + 8 * half;
      w.k.ifTrue(w.isLess(first, output.limit - ahead), [&] {
        for (int n = 0; n < sums.blocks; ++n) {
          Value scale = factor(m, half), x = sums.at(m, n, 2 * half),
                y = sums.at(m, n, 2 * half + 1);
          if (scale)
            x = w.mulF(x, scale), y = w.mulF(y, scale);
          auto storeTwo = [&] {
            storePair(x, y, w.at(to, output.stride * 4 * ahead + int64_t(32) * n),
                      output.accumulate);
          };
          if (output.pieces)
            w.k.ifTrue(w.isGreater(output.pieces, n), storeTwo);
          else if (8 * n < size)
            storeTwo();
        }
      });
    }
}

void Tiles::storePair(Value x, Value y, Value address, Value accumulate) {
  if (accumulate) {
    Value old = w.load(address, w.vectorOf(w.real, 2), 8);
    x = w.k.select(accumulate, w.addF(w.extract(old, 0), x), x);
    y = w.k.select(accumulate, w.addF(w.extract(old, 1), y), y);
  }
  w.store(w.vector({x, y}), address, 8);
}
