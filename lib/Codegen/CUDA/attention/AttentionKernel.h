// What the kernels of attention have in common: a block has some rows of one head of one sample.
#pragma once

#include "Problem.h"
#include "Scores.h"
#include "Tiles.h"
#include "Variant.h"

namespace zorse::codegen::cuda {

class AttentionKernel {
protected:
  using Value = mlir::Value;

  /// \param positions  of the side that blocks divide, in `heads` heads
  AttentionKernel(const KernelContext &context, const AttentionProblem &problem, const Variant &variant, int64_t positions, int64_t heads);

  const KernelContext &context;
  const AttentionProblem &problem;
  const Variant variant;
  CudaKernelBuilder k;
  WarpBuilder w;
  Tiles tiles;
  Value sample, head; ///< i32
  Value number;       ///< i32: of the block in its head
  int64_t blocks;     ///< of a head

  unsigned operand(const HeadTensor &tensor) { return k.operand(tensor.root, tensor.offset); }
  /// The address of a head's position 0. \param number  i32
  Value headAddress(const HeadTensor &tensor, Value number);
  /// Marks a result as one that is written. \returns i1: whether it is added to; null: never
  Value noteResult(const HeadTensor &tensor);
  /// Registers of the block's own rows of a tile, once.
  llvm::SmallVector<WarpBuilder::Four> keep(Value tile);
  WarpBuilder::Four kept(const llvm::SmallVector<WarpBuilder::Four> &registers, int i, int m) const {
    return registers[size_t(i * variant.tiles() + m)];
  }
  /// Adds what the kernel moves and multiplies. \param products  of queries and keys, for every visible pair
  void count(llvm::ArrayRef<HeadTensor> touched, int products);
  Kernel finish(llvm::StringRef hint);

  /// A loop whose body changes all of `carried`.
  void loop(Value from, Value to, llvm::MutableArrayRef<Value> carried, llvm::function_ref<void(Value)> body);

  int64_t tileBytes() const { return tiles.layout.bytes(variant.streamed); }

private:
  int64_t heads;
};

/// Of the kernels whose blocks have queries and go over the keys that these see.
class QueryKernel : protected AttentionKernel {
protected:
  QueryKernel(const KernelContext &context, const AttentionProblem &problem, const Variant &variant);

  Scores scores;
  Value firstRow, warpRow;  ///< i32: queries of the block, of the warp
  Value firstTile, endTile; ///< i32: of keys
  Value keys, values;       ///< addresses of heads

  /// \param tile  i32; whole keys or values of a tile, to shared memory
  void fetchTile(Value matrix, const HeadTensor &tensor, Value tile, Value shared) {
    tiles.fetch(matrix, tensor.position, w.mul(tile, variant.streamed), variant.streamed, problem.keys, shared);
  }
  ScorePlace scorePlace(Value tile) { return {warpRow, w.mul(tile, variant.streamed), head}; }
  /// Where the warp's own rows begin in the block's.
  Value ownRows(Value shared) { return w.at(shared, w.mul(tiles.warp, tiles.layout.bytes(16 * variant.tiles()))); }
  Tiles::Output output(const HeadTensor &tensor) {
    return {headAddress(tensor, head), tensor.position, tensor.element, warpRow, problem.queries, noteResult(tensor), {}};
  }
};

} // namespace zorse::codegen::cuda
