// Emits a row cluster as loops:
//
//     for point in [begin, end)               the leading dimensions, or the first of them
//       for the other leading dimensions
//         numbers of phase 0
//         for column: vectors of phase 0, sums that end phase 0, stores
//         numbers of phase 1
//         for column: ...
//
// A vector that later phases need is reloaded from the memory where it was stored or loaded,
// recomputed if that is cheap, or kept in a scratch vector on the stack.
#include "RowKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

/// Larger vectors are recomputed instead of kept on the stack.
constexpr int64_t kMaxScratchBytes = 1 << 18;
/// Minimum number of elements per point. With fewer, distributing points costs more than the work.
constexpr int64_t kMinPointElements = 512;

struct RowEmitter : RowProgram {
  RowEmitter(CpuKernelBuilder &k, const KernelContext &context, int index)
      : RowProgram(k, context, index), k(k) {}

  CpuKernelBuilder &k;
  std::vector<std::vector<int>> evaluatedIn; ///< per vector node: the loops that compute it.
  std::vector<char> kept; ///< per vector node: has a scratch vector, or a store to load from.
  std::vector<Value> scratch;
  std::vector<int> keptStore;

  /// Number of leading dimensions that the points count. The others are loops inside a point.
  size_t pointDims() const {
    int64_t inner = std::max<int64_t>(columns, 1);
    size_t dims = sizes.size();
    while (dims > 1 && inner < kMinPointElements && !sizes[dims - 1].sampled && columns != 0) {
      inner *= sizes[dims - 1].count;
      --dims;
    }
    return dims;
  }

  /// Decides in which loops each vector node is computed and whether it is kept.
  void planVectors() {
    size_t count = nodes().size();
    evaluatedIn.assign(count, {});
    kept.assign(count, 0);
    scratch.assign(count, Value());
    keptStore.assign(count, -1);
    std::vector<std::vector<char>> wanted(count, std::vector<char>(phases, 0));
    std::vector<int> cost(count, 0); // cost of recomputation, in ops; loads are free
    for (size_t i = 0; i < count; ++i) {
      const Node &node = nodes()[i];
      if (node.form != Form::PerElement || node.kind == Node::Load)
        continue;
      cost[i] = isExpensive(node) ? 100 : 1;
      for (int input : node.inputs)
        cost[i] += nodes()[input].form == Form::PerElement ? cost[input] : 0;
    }
    for (const StoreNode &store : stores)
      if (store.vector)
        wanted[store.node][nodes()[store.node].phase] = 1;
    int64_t scratchBytes = 0;
    for (size_t i = count; i-- > 0;) {
      const Node &node = nodes()[i];
      if (node.kind == Node::Reduce) {
        wanted[node.inputs[0]][node.phase - 1] = 1;
        continue;
      }
      if (node.form != Form::PerElement)
        continue;
      bool later = false;
      for (int phase = node.phase + 1; phase < phases; ++phase)
        later |= wanted[i][phase];
      if (later && node.kind != Node::Load && node.kind != Node::Index) {
        keptStore[i] = storeOf(int(i));
        int64_t bytes = columns * std::max<int64_t>(1, node.type.getIntOrFloatBitWidth() / 8);
        bool fits = scratchBytes + bytes <= kMaxScratchBytes;
        if (keptStore[i] >= 0 || (cost[i] > 6 && fits)) {
          kept[i] = 1;
          if (keptStore[i] < 0)
            scratchBytes += bytes;
        }
      }
      if (kept[i]) {
        evaluatedIn[i] = {node.phase};
      } else {
        for (int phase = 0; phase < phases; ++phase)
          if (wanted[i][phase])
            evaluatedIn[i].push_back(phase);
      }
      for (int phase : evaluatedIn[i])
        for (int input : node.inputs)
          wanted[input][phase] = 1;
    }
    for (size_t i = 0; i < count; ++i)
      if (kept[i] && keptStore[i] < 0)
        scratch[i] = k.scratch(nodes()[i].type, columns);
  }

  /// The value of a node inside the loop of a phase.
  Value vectorOf(int index, int phase, ArrayRef<Value> indices, llvm::DenseMap<int, Value> &cache) {
    const Node &node = nodes()[index];
    if (node.form != Form::PerElement)
      return scalarOf(index, indices);
    Value &slot = cache[index];
    if (slot)
      return slot;
    Value result;
    if (kept[index] && node.phase < phase) {
      if (keptStore[index] >= 0) {
        const StoreNode &store = stores[keptStore[index]];
        result = k.load(k.pointer(store.operand), k.offset(indices, store.strides), store.element);
      } else {
        result = k.load(scratch[index], indices.back(), node.type);
      }
    } else {
      SmallVector<Value> inputs;
      for (int input : node.inputs)
        inputs.push_back(vectorOf(input, phase, indices, cache));
      result = expression.evaluate(node, inputs, indices);
    }
    return cache[index] = result;
  }

  void emitNumbers(int phase, ArrayRef<Value> indices) {
    // Numbers that loops or stores need are emitted here, so that they dominate their uses.
    SmallVector<Value> all(indices);
    if (columns)
      all.push_back(Value());
    for (size_t i = 0; i < nodes().size(); ++i)
      if (nodes()[i].form == Form::PerRow && nodes()[i].phase == phase &&
          nodes()[i].kind != Node::Reduce && needed[i])
        scalarOf(i, all);
    for (const StoreNode &store : stores)
      if (!store.vector && nodes()[store.node].phase == phase)
        k.store(scalarOf(store.node, all), k.pointer(store.operand), k.offset(all, store.strides),
                store.element, accumulateFlag(store));
  }

  void emitLoop(int phase, ArrayRef<Value> lead) {
    SmallVector<int> reduces, keeps;
    SmallVector<const StoreNode *> vectorStores;
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (nodes()[i].kind == Node::Reduce && nodes()[i].phase == phase + 1)
        reduces.push_back(i);
      if (kept[i] && keptStore[i] < 0 && nodes()[i].phase == phase)
        keeps.push_back(i);
    }
    for (const StoreNode &store : stores)
      if (store.vector && nodes()[store.node].phase == phase)
        vectorStores.push_back(&store);
    if (reduces.empty() && keeps.empty() && vectorStores.empty())
      return;
    SmallVector<Value> carried;
    for (int reduce : reduces)
      carried.push_back(k.identity(nodes()[reduce].reduce, nodes()[reduce].type));
    SmallVector<Value> results =
        k.loop(k.i64(0), k.i64(columns), carried, [&](Value column, ArrayRef<Value> sums) {
          SmallVector<Value> indices(lead);
          indices.push_back(column);
          llvm::DenseMap<int, Value> cache;
          SmallVector<Value> next, stored;
          for (auto [reduce, sum] : llvm::zip(reduces, sums))
            next.push_back(k.combine(nodes()[reduce].reduce, sum,
                                     vectorOf(nodes()[reduce].inputs[0], phase, indices, cache)));
          for (int keep : keeps)
            k.store(vectorOf(keep, phase, indices, cache), scratch[keep], column,
                    nodes()[keep].type);
          // All loads precede all stores, because a result may alias an operand.
          for (const StoreNode *store : vectorStores)
            stored.push_back(vectorOf(store->node, phase, indices, cache));
          for (auto [store, value] : llvm::zip(vectorStores, stored))
            k.store(value, k.pointer(store->operand), k.offset(indices, store->strides),
                    store->element, accumulateFlag(*store));
          return next;
        });
    for (auto [reduce, result] : llvm::zip(reduces, results))
      scalars[reduce] = result;
  }

  void emitPoint(ArrayRef<Value> lead) {
    std::vector<Value> outer = scalars;
    for (int phase = 0; phase < phases; ++phase) {
      emitNumbers(phase, lead);
      if (columns)
        emitLoop(phase, lead);
    }
    scalars = outer;
  }

  Kernel emit() {
    planVectors();
    const ArrayRef<Size> outer = ArrayRef<Size>(sizes).take_front(pointDims());
    k.loop(k.begin, k.end, [&](Value point) {
      SmallVector<Value> indices = k.delinearize(point, outer);
      std::function<void(size_t)> nest = [&](size_t dim) {
        if (dim == sizes.size())
          return emitPoint(indices);
        k.loop(k.i64(0), k.size(sizes[dim]), [&](Value index) {
          indices.push_back(index);
          nest(dim + 1);
          indices.pop_back();
        });
      };
      nest(outer.size());
    });
    return k.finish(hint(), matmul(outer), /*contract=*/columns != 0);
  }
};

} // namespace

Kernel zorse::codegen::buildRowKernel(const KernelContext &context, int cluster) {
  CpuKernelBuilder k(context.context, context.resolve);
  return RowEmitter(k, context, cluster).emit();
}
