#include "AttentionKernel.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

AttentionKernel::AttentionKernel(const KernelContext &context, const AttentionProblem &problem,
                                 const Variant &variant, int64_t positions, int64_t heads)
    : context(context), problem(problem), variant(variant), k(context.context, context.resolve),
      w(k, problem.element),
      tiles(w, TileLayout::of(*tileColumns(problem.size)), problem.size, variant.threads()),
      heads(heads) {
  blocks = (positions + variant.rows - 1) / variant.rows * variant.parts;
  Value block = k.intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", w.word, {});
  number = w.remainder(block, blocks);
  Value lines = w.divide(block, blocks);
  head = w.remainder(lines, heads);
  sample = w.divide(lines, heads);
}

static int64_t bytesOf(Type element) { return element.getIntOrFloatBitWidth() / 8; }

Value AttentionKernel::headAddress(const HeadTensor &tensor, Value number) {
  const int64_t bytes = bytesOf(tensor.element);
  Value offset = k.add(k.mul(w.widen(sample), tensor.row * bytes),
                       k.mul(w.widen(number), tensor.head * bytes));
  return w.at(w.global(operand(tensor)), offset);
}

Value AttentionKernel::noteResult(const HeadTensor &tensor) {
  const unsigned result = operand(tensor);
  k.markWritten(result);
  if (!context.accumulates(tensor.root))
    return {};
  k.markAccumulated(result);
  return k.accumulates(result);
}

SmallVector<WarpBuilder::Four> AttentionKernel::keep(Value tile) {
  SmallVector<WarpBuilder::Four> registers;
  for (int i = 0; i < tiles.layout.matmuls(); ++i)
    for (int m = 0; m < variant.tiles(); ++m)
      registers.push_back(tiles.left(tile, i, 16 * m));
  return registers;
}

void AttentionKernel::count(ArrayRef<HeadTensor> touched, int matmuls) {
  for (const HeadTensor &tensor : touched)
    k.addCost(Size{tensor.numbers, true}, bytesOf(tensor.element));
  if (problem.mask) {
    const MaskTensor &mask = *problem.mask;
    const int64_t numbers = (mask.head ? problem.heads : 1) * (mask.query ? problem.queries : 1) *
                            problem.keys;
    k.addCost(Size{numbers, mask.row != 0}, mask.element.isInteger(1) ? 1 : bytesOf(mask.element));
  }
  k.addMatmulFlops(Size{int64_t(2 * matmuls * problem.pairs() * double(problem.size)), true});
}

Kernel AttentionKernel::finish(StringRef hint) {
  return k.finish(hint, Size{blocks * heads * variant.threads(), true}, variant.threads(), 1,
                  /*takesRegisters=*/true);
}

void AttentionKernel::loop(Value from, Value to, MutableArrayRef<Value> carried,
                           function_ref<void(Value)> body) {
  SmallVector<Value> before(carried), after = k.loop(
                                          from, to, before,
                                          [&](Value index, ArrayRef<Value> values) {
                                            llvm::copy(values, carried.begin());
                                            body(index);
                                            return SmallVector<Value>(carried);
                                          },
                                          w.i32(1));
  llvm::copy(after, carried.begin());
}

QueryKernel::QueryKernel(const KernelContext &context, const AttentionProblem &problem,
                         const Variant &variant)
    : AttentionKernel(context, problem, variant, problem.queries, problem.heads),
      scores(tiles, problem, Orientation::RowsAreQueries, sample, variant.streamed) {
  // With `causal`, the last queries attend to most keys. Their blocks start first.
  if (problem.options.causal)
    number = w.sub(w.i32(blocks - 1), number);
  firstRow = w.mul(number, variant.rows);
  warpRow = w.add(firstRow, w.mul(tiles.warp, 16 * variant.tiles()));
  Value end = w.i32(problem.keys);
  if (problem.options.causal)
    end = w.smaller(w.add(firstRow, variant.rows + problem.shift()), problem.keys);
  endTile = w.divide(w.add(end, variant.streamed - 1), variant.streamed);
  firstTile = w.i32(0);
  if (problem.options.window)
    firstTile =
        w.divide(w.larger(w.add(firstRow, problem.shift() - *problem.options.window + 1), 0),
                 variant.streamed);
  Value keyHead = w.divide(head, problem.group());
  keys = headAddress(problem.k, keyHead);
  values = headAddress(problem.v, keyHead);
}
