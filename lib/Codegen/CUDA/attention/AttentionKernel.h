// Base classes of the attention kernels: a block processes some rows of one head of one sample.
#pragma once

#include "Problem.h"
#include "Scores.h"
#include "Tiles.h"
#include "Variant.h"

namespace zorse::codegen::cuda {

class AttentionKernel {
protected:
  using Value = mlir::Value;

  /// \param positions  number of positions that are divided into blocks (queries or keys), in each
  /// of `heads` heads
  AttentionKernel(const KernelContext &context, const AttentionProblem &problem,
                  const Variant &variant, int64_t positions, int64_t heads);

  const KernelContext &context;
  const AttentionProblem &problem;
  const Variant variant;
  CudaKernelBuilder k;
  WarpBuilder w;
  Tiles tiles;
  Value sample, head; ///< i32
  Value number;       ///< i32: index of the block in its head
  int64_t blocks;     ///< number of blocks of a head

  unsigned operand(const HeadTensor &tensor) { return k.operand(tensor.root, tensor.offset); }
  /// Returns the address of position 0 of a head. \param number  i32, index of the head
  Value headAddress(const HeadTensor &tensor, Value number);
  /// Marks a result as written. \returns i1: whether the kernel adds to it; null: never
  Value noteResult(const HeadTensor &tensor);
  /// Loads the registers of the block's own rows of a tile, once.
  llvm::SmallVector<WarpBuilder::Four> keep(Value tile);
  WarpBuilder::Four kept(const llvm::SmallVector<WarpBuilder::Four> &registers, int i,
                         int m) const {
    return registers[size_t(i * variant.tiles() + m)];
  }
  /// Adds the memory traffic and operations of the kernel. \param products  number of products of
  /// queries and keys, per visible pair
  void count(llvm::ArrayRef<HeadTensor> touched, int matmuls);
  Kernel finish(llvm::StringRef hint);

  /// Emits a loop with a body that updates all of `carried`.
  void loop(Value from, Value to, llvm::MutableArrayRef<Value> carried,
            llvm::function_ref<void(Value)> body);

  int64_t tileBytes() const { return tiles.layout.bytes(variant.streamed); }

private:
  int64_t heads;
};

/// Base class of kernels with blocks of queries that iterate over the visible keys.
class QueryKernel : protected AttentionKernel {
protected:
  QueryKernel(const KernelContext &context, const AttentionProblem &problem,
              const Variant &variant);

  Scores scores;
  Value firstRow, warpRow;  ///< i32: first query of the block, of the warp
  Value firstTile, endTile; ///< i32: range of tiles of keys
  Value keys, values;       ///< addresses of the head's keys and values

  /// Copies a tile of keys or values, with all columns, to shared memory. \param tile  i32, index
  /// of the tile
  void fetchTile(Value matrix, const HeadTensor &tensor, Value tile, Value shared) {
    tiles.fetch(matrix, tensor.position, w.mul(tile, variant.streamed), variant.streamed,
                problem.keys, shared);
  }
  ScorePlace scorePlace(Value tile) { return {warpRow, w.mul(tile, variant.streamed), head}; }
  /// Address of the warp's own rows in the block's rows.
  Value ownRows(Value shared) {
    return w.at(shared, w.mul(tiles.warp, tiles.layout.bytes(16 * variant.tiles())));
  }
  Tiles::Output output(const HeadTensor &tensor) {
    return {headAddress(tensor, head),
            tensor.position,
            tensor.element,
            warpRow,
            problem.queries,
            noteResult(tensor),
            {}};
  }
};

} // namespace zorse::codegen::cuda
