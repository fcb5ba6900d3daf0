// A row cluster as loops:
//
//     for point in [begin, end)               the leading dimensions, or the first of them
//       for the other leading dimensions
//         numbers of phase 0
//         for column: vectors of phase 0, sums that end phase 0, stores
//         numbers of phase 1
//         for column: ...
//
// A vector that later phases need again is loaded again from where it was stored or loaded, computed again if that is cheap, or kept in a
// scratch vector on the stack.
#include "RowKernel.h"

#include "Expression.h"
#include "Prepare.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

namespace {

/// Vectors above this size are not kept on the stack but computed again.
constexpr int64_t kMaxScratchBytes = 1 << 18;
/// A point should be worth at least this many elements, or handing out points costs more than the work.
constexpr int64_t kMinPointElements = 512;

struct RowEmitter {
  const KernelContext &context;
  const Cluster &cluster;
  KernelBuilder k;
  Expression expression;
  std::vector<StoreNode> stores;

  SmallVector<Size, 4> sizes; ///< of the leading dimensions, merged.
  int64_t columns;
  std::vector<std::vector<int>> evaluatedIn; ///< per vector node: the loops that compute it.
  std::vector<char> kept;                    ///< vector nodes with a scratch vector or a store to load from.
  std::vector<Value> scratch;
  std::vector<int> keptStore;
  std::vector<Value> scalars; ///< uniform nodes and numbers of the current point.
  int phases = 1;

  RowEmitter(const KernelContext &context, int index)
      : context(context), cluster(context.clustering.clusters[index]), k(context.context, context.resolve),
        expression(k, context.clustering, index, context.claims, cluster.shape(), cluster.columns != 0), columns(cluster.columns) {}

  const std::vector<Node> &nodes() const { return expression.nodes; }

  void buildGraph() {
    SmallVector<int64_t, 4> shape = cluster.shape();
    for (Operation *op : cluster.ops)
      expression.define(op);
    for (Operation *op : cluster.ops) {
      Value result = op->getResult(0);
      if (!context.clustering.isMaterialised(result, context.claims))
        continue;
      Layout layout = storageLayout(result, context.claims);
      StoreNode store;
      store.node = expression.nodeOf(result);
      store.element = getElementTypeOrSelf(result.getType());
      store.operand = k.operand(result, layout.offset);
      store.strides = expression.overDomain(squeezedStrides(result.getType(), layout));
      store.vector = columns != 0 && squeezedShape(result.getType()).size() == shape.size();
      store.accumulates = context.accumulates(result);
      if (store.accumulates)
        k.markAccumulated(store.operand);
      Size size;
      for (size_t dim = 0; dim < squeezedShape(result.getType()).size(); ++dim)
        ShapedType::isDynamic(shape[dim]) ? void(size.sampled = true) : void(size.count *= shape[dim]);
      k.addCost(size, elementBytes(store.element));
      stores.push_back(store);
    }
    for (int64_t size : cluster.lead)
      sizes.push_back(ShapedType::isDynamic(size) ? Size{1, true} : Size{size, false});
    for (const Node &node : nodes())
      phases = std::max(phases, node.phase + 1);
  }

  template <typename Visit> bool allStrides(Visit visit) {
    for (Node &node : expression.nodes)
      if (!node.strides.empty() && !visit(node.strides))
        return false;
    for (StoreNode &store : stores)
      if (!visit(store.strides))
        return false;
    return true;
  }

  void eraseDim(size_t dim) {
    allStrides([&](SmallVectorImpl<int64_t> &strides) {
      strides.erase(strides.begin() + dim);
      return true;
    });
  }

  /// Leading dimensions that every access walks as one become one; short columns swallow leading dimensions in elementwise clusters.
  void mergeDims() {
    for (size_t dim = sizes.size(); dim-- > 1;) {
      if (sizes[dim].sampled || !allStrides([&](SmallVectorImpl<int64_t> &s) { return s[dim - 1] == s[dim] * sizes[dim].count; }))
        continue;
      sizes[dim - 1] = Size{sizes[dim - 1].count * sizes[dim].count, sizes[dim - 1].sampled};
      sizes.erase(sizes.begin() + dim);
      // The inner stride stays: the merged index counts inner elements.
      eraseDim(dim - 1);
    }
    bool elementwise = columns != 0;
    for (const Node &node : nodes())
      elementwise &= node.kind != Node::Reduce;
    for (const StoreNode &store : stores)
      elementwise &= store.vector;
    while (elementwise && columns < 256 && !sizes.empty() && !sizes.back().sampled && columns * sizes.back().count <= 4096) {
      size_t last = sizes.size() - 1;
      if (!allStrides([&](SmallVectorImpl<int64_t> &s) { return s[last] == s[last + 1] * columns; }))
        break;
      columns *= sizes.back().count;
      sizes.pop_back();
      eraseDim(last);
    }
  }

  /// How many leading dimensions the points count; the others are loops inside a point.
  size_t pointDims() const {
    int64_t inner = std::max<int64_t>(columns, 1);
    size_t dims = sizes.size();
    while (dims > 1 && inner < kMinPointElements && !sizes[dims - 1].sampled && columns != 0) {
      inner *= sizes[dims - 1].count;
      --dims;
    }
    return dims;
  }

  static bool isExpensive(const Node &node) {
    if (node.kind == Node::Dropout)
      return true;
    return node.kind == Node::Compute && (isa<math::MathDialect>(node.op->getDialect()) || isa<arith::DivFOp>(node.op)) &&
           !isa<math::AbsFOp, math::FmaOp>(node.op);
  }

  /// Decides per vector node in which loops it is computed and whether it is kept.
  void planVectors() {
    size_t count = nodes().size();
    evaluatedIn.assign(count, {});
    kept.assign(count, 0);
    scratch.assign(count, Value());
    keptStore.assign(count, -1);
    std::vector<std::vector<char>> wanted(count, std::vector<char>(phases, 0));
    std::vector<int> cost(count, 0); // of computing it again, in ops; loads are free
    for (size_t i = 0; i < count; ++i) {
      const Node &node = nodes()[i];
      if (node.form != Form::Vector || node.kind == Node::Load)
        continue;
      cost[i] = isExpensive(node) ? 100 : 1;
      for (int input : node.inputs)
        cost[i] += nodes()[input].form == Form::Vector ? cost[input] : 0;
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
      if (node.form != Form::Vector)
        continue;
      bool later = false;
      for (int phase = node.phase + 1; phase < phases; ++phase)
        later |= wanted[i][phase];
      if (later && node.kind != Node::Load && node.kind != Node::Index) {
        for (size_t s = 0; s < stores.size(); ++s)
          if (stores[s].node == static_cast<int>(i) && stores[s].vector && !stores[s].accumulates && stores[s].element == node.type)
            keptStore[i] = s;
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

  Value scalarOf(int index, ArrayRef<Value> indices) {
    if (scalars[index])
      return scalars[index];
    const Node &node = nodes()[index];
    assert(node.form != Form::Vector && node.kind != Node::Reduce && "evaluated by loops");
    SmallVector<Value> inputs;
    for (int input : node.inputs)
      inputs.push_back(scalarOf(input, indices));
    return scalars[index] = expression.evaluate(node, inputs, indices);
  }

  /// The value of a node inside the loop of a phase.
  Value vectorOf(int index, int phase, ArrayRef<Value> indices, llvm::DenseMap<int, Value> &cache) {
    const Node &node = nodes()[index];
    if (node.form != Form::Vector)
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

  Value accumulateFlag(const StoreNode &store) { return store.accumulates ? flags[store.operand] : Value(); }
  llvm::DenseMap<unsigned, Value> flags;

  void emitNumbers(int phase, ArrayRef<Value> indices) {
    // Numbers that loops or stores need are made here, so that they dominate their uses.
    SmallVector<Value> all(indices);
    if (columns)
      all.push_back(Value());
    for (size_t i = 0; i < nodes().size(); ++i)
      if (nodes()[i].form == Form::Number && nodes()[i].phase == phase && nodes()[i].kind != Node::Reduce && needed[i])
        scalarOf(i, all);
    for (const StoreNode &store : stores)
      if (!store.vector && nodes()[store.node].phase == phase)
        k.store(scalarOf(store.node, all), k.pointer(store.operand), k.offset(all, store.strides), store.element, accumulateFlag(store));
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
    SmallVector<Value> results = k.loop(k.i64(0), k.i64(columns), carried, [&](Value column, ArrayRef<Value> sums) {
      SmallVector<Value> indices(lead);
      indices.push_back(column);
      llvm::DenseMap<int, Value> cache;
      SmallVector<Value> next, stored;
      for (auto [reduce, sum] : llvm::zip(reduces, sums))
        next.push_back(k.combine(nodes()[reduce].reduce, sum, vectorOf(nodes()[reduce].inputs[0], phase, indices, cache)));
      for (int keep : keeps)
        k.store(vectorOf(keep, phase, indices, cache), scratch[keep], column, nodes()[keep].type);
      // All loads come before all stores: a result may lie on top of an operand.
      for (const StoreNode *store : vectorStores)
        stored.push_back(vectorOf(store->node, phase, indices, cache));
      for (auto [store, value] : llvm::zip(vectorStores, stored))
        k.store(value, k.pointer(store->operand), k.offset(indices, store->strides), store->element, accumulateFlag(*store));
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

  std::vector<char> needed;

  void markNeeded() {
    needed.assign(nodes().size(), 0);
    for (const StoreNode &store : stores)
      needed[store.node] = 1;
    for (size_t i = nodes().size(); i-- > 0;)
      if (needed[i])
        for (int input : nodes()[i].inputs)
          needed[input] = 1;
  }

  std::string hint() const {
    std::string name;
    for (Operation *op : cluster.ops) {
      StringRef word = op->hasAttr(kCopyAttr) ? "copy" : op->getName().stripDialect();
      if (name.size() + word.size() > 40 || StringRef(name).contains(word))
        continue;
      name += (name.empty() ? "" : "_") + word.str();
    }
    return name;
  }

  Kernel run() {
    buildGraph();
    mergeDims();
    markNeeded();
    planVectors();
    scalars.assign(nodes().size(), Value());
    for (size_t i = 0; i < nodes().size(); ++i)
      if (nodes()[i].form == Form::Uniform && needed[i] && nodes()[i].kind != Node::Reduce) {
        SmallVector<Value> none(sizes.size() + (columns != 0), Value());
        scalarOf(i, none);
      }
    for (const StoreNode &store : stores)
      if (store.accumulates && !flags.count(store.operand))
        flags[store.operand] = k.accumulates(store.operand);

    size_t split = pointDims();
    Size points;
    for (size_t dim = 0; dim < split; ++dim)
      points = Size{points.count * sizes[dim].count, points.sampled || sizes[dim].sampled};
    k.loop(k.begin, k.end, [&](Value point) {
      SmallVector<Value> indices = k.delinearize(point, ArrayRef<Size>(sizes).take_front(split));
      std::function<void(size_t)> nest = [&](size_t dim) {
        if (dim == sizes.size())
          return emitPoint(indices);
        k.loop(k.i64(0), k.size(sizes[dim]), [&](Value index) {
          indices.push_back(index);
          nest(dim + 1);
          indices.pop_back();
        });
      };
      nest(split);
    });
    return k.finish(hint(), points, /*contract=*/columns != 0);
  }
};

} // namespace

Kernel zorse::codegen::buildRowKernel(const KernelContext &context, int cluster) { return RowEmitter(context, cluster).run(); }
