// A row cluster on a GPU. Without sums over columns, every thread computes a few neighboring
// elements. With sums, a warp or a block computes a row:
//
//     numbers of phase 0
//     for a thread's columns: vectors of phase 0, its part of the sums that end phase 0, stores
//     the sums of the row: through the warp, then through shared memory
//     numbers of phase 1, ...
//
// If a thread has few columns, it keeps all of them in registers across phases, so that a row is
// read once. If some vectors are the same for every row (biases, weights of norms), a thread also
// processes several rows and reads these vectors once. If a thread has many columns, a vector that
// later phases need is reloaded from the memory where this thread stored it, or recomputed.
#include "CudaEmitters.h"
#include "Groups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

namespace {

constexpr int kBlockThreads = 256;
/// Rows of at most this number of columns are computed by a warp; several warps share a block.
constexpr int64_t kWarpColumns = 1024;
constexpr int kWarpsPerBlock = 4;
/// Number of elements that a thread computes together if they are expensive.
constexpr int kExpensiveWidth = 4;
/// Maximum number of outstanding loads of a thread with several groups of neighboring elements, and
/// maximum number of operations per element for which a thread has several groups.
constexpr int kGroupLoads = 8, kGroupOperations = 8;
/// Maximum number of columns of a row that a thread keeps in registers.
constexpr int64_t kKeptColumns = 32;
/// Number of rows that a thread processes sequentially, so that vectors that are the same for all
/// rows are read once for them; and maximum number of elements of all vectors in registers in this
/// case.
constexpr int64_t kRowsInTurn = 4, kHeldElements = 128;
/// Minimum number of columns per thread for which this pays: the time of shorter rows is dominated
/// by their sums.
constexpr int64_t kLongRow = 8;
/// Minimum number of columns for which a row without sums also gets a warp or a block, if it has
/// per-row numbers.
constexpr int64_t kRowWithNumbers = 256;
/// Maximum number of unrolled steps of such a row. Unrolled steps share their index computations.
constexpr int64_t kStepsInLine = 8;

class RowEmitter : RowProgram {
public:
  RowEmitter(CudaKernelBuilder &k, const KernelContext &context, int index)
      : RowProgram(k, context, index), k(k) {}

  Kernel emit() {
    bool sums = false, rowValues = false;
    for (size_t i = 0; i < nodes().size(); ++i) {
      sums |= nodes()[i].kind == Node::Reduce && needed[i];
      rowValues |= nodes()[i].kind == Node::Load && nodes()[i].form == Form::PerRow && needed[i];
    }
    // Per-row values are read once for each row, and no element has to compute its row.
    const bool byRows = sums || (rowValues && columns >= kRowWithNumbers && roundsAny());
    return byRows ? emitRows(sums) : emitElements();
  }

private:
  using Cache = llvm::DenseMap<int, Value>;

  CudaKernelBuilder &k;

  /// Number of neighboring elements per thread that are contiguous in every access, so that a
  /// thread moves 16 bytes at a time.
  /// \param last  size of the innermost dimension; 0: it is the only one, and its end is handled
  /// separately
  int vectorWidth(int64_t last) const {
    int64_t widest = 1;
    auto fits = [&](ArrayRef<int64_t> strides, unsigned operand, int64_t bytes, int width) {
      if (strides.empty() || strides.back() == 0)
        return true;
      if (strides.back() != 1)
        return false;
      for (int64_t stride : strides.drop_back())
        if (stride % width)
          return false;
      return k.alignment(operand) % (bytes * width) == 0;
    };
    auto allFit = [&](int width) {
      for (size_t i = 0; i < nodes().size(); ++i) {
        const Node &node = nodes()[i];
        if (!needed[i] || node.kind != Node::Load || node.operand < 0)
          continue;
        if (!node.inputs.empty() && !node.strides.empty() && node.strides.back() != 0 &&
            (node.indexStride % width || nodes()[size_t(node.inputs[0])].form == Form::PerElement))
          return false;
        if (!fits(node.strides, unsigned(node.operand), elementBytes(node.element), width))
          return false;
      }
      for (const StoreNode &store : stores)
        if (!fits(store.strides, store.operand, elementBytes(store.element), width))
          return false;
      return true;
    };
    for (const Node &node : nodes())
      if (node.kind == Node::Load && node.element && !node.strides.empty() &&
          node.strides.back() != 0)
        widest = std::max(widest, elementBytes(node.element));
    for (const StoreNode &store : stores)
      widest = std::max(widest, elementBytes(store.element));
    for (int width = int(std::max<int64_t>(1, 16 / widest)); width > 1; width /= 2)
      if ((last == 0 || last % width == 0) && allFit(width))
        return width;
    return 1;
  }

  /// Neighboring elements of a thread, with the position and cached values of each.
  struct Group {
    SmallVector<SmallVector<Value>> places;
    std::vector<Cache> caches;
    const Group *repeated = nullptr; ///< contains the values that are the same at these columns of
                                     ///< every row
    explicit Group(SmallVector<SmallVector<Value>> at)
        : places(std::move(at)), caches(places.size()) {}
  };

  /// Columns that a thread keeps in registers. Columns beyond the end of the row repeat its last
  /// ones and do not contribute to sums.
  struct CachedColumns {
    Group group;
    Value inside; ///< null: all of these columns exist
  };
  std::vector<CachedColumns> kept;

  /// The value of a node at element `e` of a group.
  Value valueOf(int index, int phase, Group &group, size_t e) {
    const Node &node = nodes()[size_t(index)];
    ArrayRef<Value> indices = group.places[e];
    if (node.form == Form::Uniform || scalars[size_t(index)])
      return scalarOf(index, indices);
    Cache &cache = group.caches[e];
    if (Value found = cache.lookup(index))
      return found;
    if (Value found = group.repeated ? group.repeated->caches[e].lookup(index) : Value())
      return found;
    auto share = [&](SmallVector<Value> all) {
      for (auto [other, value] : llvm::zip(group.caches, all))
        other[index] = value;
      return all[e];
    };
    auto loadAll = [&](unsigned operand, ArrayRef<int64_t> strides, Type element) {
      if (group.places.size() == 1 || strides.back() != 1)
        return k.load(k.pointer(operand), k.offset(indices, strides), element);
      return share(k.loadMany(k.pointer(operand), k.offset(group.places[0], strides), element,
                              int64_t(group.places.size())));
    };
    if (const int store = node.form == Form::PerElement && node.phase < phase &&
                                  node.kind != Node::Load
                              ? storeOf(index)
                              : -1;
        store >= 0) {
      const StoreNode &kept = stores[size_t(store)];
      return cache[index] = loadAll(kept.operand, kept.strides, kept.element);
    }
    SmallVector<Value> inputs;
    for (int input : node.inputs)
      inputs.push_back(valueOf(input, phase, group, e));
    if (const Type half = Expression::roundsTo(node);
        half && group.places.size() > 1 && inputs[0].getType() == node.type) { // round two at a
                                                                               // time
      SmallVector<Value> wide;
      for (size_t other = 0; other < group.places.size(); ++other)
        wide.push_back(valueOf(node.inputs[0], phase, group, other));
      return share(k.roundMany(wide, half));
    }
    if (node.kind == Node::Load && node.operand >= 0 && group.places.size() > 1 &&
        !node.strides.empty() && node.strides.back() == 1)
      return share(
          expression.evaluateLoads(node, inputs, group.places[0], [&](Value base, Value offset) {
            return k.loadMany(base, offset, node.element, int64_t(group.places.size()));
          }));
    Value result = expression.evaluate(node, inputs, indices);
    return group.caches[e][index] = result;
  }

  /// Returns the vectors in memory that are the same for every row.
  SmallVector<int> repeatedLoads() const {
    SmallVector<int> found;
    for (auto [i, node] : llvm::enumerate(nodes())) {
      const auto operand = unsigned(node.operand);
      if (needed[i] && node.kind == Node::Load && node.form == Form::PerElement &&
          node.operand >= 0 && node.inputs.empty() &&
          llvm::all_of(ArrayRef<int64_t>(node.strides).drop_back(),
                       [](int64_t stride) { return stride == 0; }) &&
          llvm::none_of(stores, [&](const StoreNode &store) { return store.operand == operand; }))
        found.push_back(int(i));
    }
    return found;
  }

  /// Number of rows that a thread processes sequentially.
  /// \param held  number of columns of a row in registers
  int64_t rowsInTurn(int64_t held) const {
    if (sizes.empty() || !columns || repeatedLoads().empty())
      return 1;
    const auto loads = llvm::count_if(nodes(), [](const Node &node) {
      return node.kind == Node::Load && node.form == Form::PerElement;
    });
    int64_t rows = (loads + 1) * held <= kHeldElements ? kRowsInTurn : 1;
    while (sizes.back().count % rows)
      rows /= 2;
    return rows;
  }

  void loadRepeated(Group &group) {
    for (int node : repeatedLoads())
      for (size_t e = 0; e < group.places.size(); ++e)
        valueOf(node, 0, group, e);
  }

  /// Values to store, indexed by store, then by element of the group.
  using Stored = std::vector<SmallVector<Value>>;

  Stored valuesOf(Group &group, ArrayRef<const StoreNode *> which, int phase) {
    Stored values(which.size());
    for (size_t e = 0; e < group.places.size(); ++e)
      for (auto [store, value] : llvm::zip(which, values))
        value.push_back(valueOf(store->node, phase, group, e));
    return values;
  }

  /// \param inside  whether the group exists; null: it exists
  void storeAll(Group &group, ArrayRef<const StoreNode *> which, int phase, Value inside = {}) {
    if (!which.empty()) // all loads precede all stores: a result may alias an operand
      storeValues(group, which, valuesOf(group, which, phase), inside);
  }

  void storeValues(const Group &group, ArrayRef<const StoreNode *> which, const Stored &values,
                   Value inside = {}) {
    auto store = [&] {
      for (auto [store, value] : llvm::zip(which, values)) {
        if (group.places.size() > 1 && store->strides.back() == 1) {
          k.storeMany(value, k.pointer(store->operand), k.offset(group.places[0], store->strides),
                      store->element, accumulateFlag(*store));
          continue;
        }
        for (auto [place, one] : llvm::zip(group.places, value))
          k.store(one, k.pointer(store->operand), k.offset(place, store->strides), store->element,
                  accumulateFlag(*store));
      }
    };
    inside ? k.ifTrue(inside, store) : store();
  }

  static bool isHalf(Type type) { return type.isBF16() || type.isF16(); }
  bool roundsAny() const {
    return llvm::any_of(stores, [](const StoreNode &store) { return isHalf(store.element); });
  }

  /// Transcendental functions have calls for rare cases, which leave few registers; but see
  /// useSpecialFunctions in LowerToPtx.cpp.
  bool isCheap() const {
    const bool special = k.convertsHalf() && roundsAny();
    for (size_t i = 0; i < nodes().size(); ++i) {
      if (!needed[i] || !isExpensive(nodes()[i]))
        continue;
      auto fast = nodes()[i].op && isa<math::ExpOp, arith::DivFOp>(nodes()[i].op)
                      ? dyn_cast<arith::ArithFastMathInterface>(nodes()[i].op)
                      : nullptr;
      if (!special || !fast || !fast.getFastMathFlagsAttr() ||
          !bitEnumContainsAny(fast.getFastMathFlagsAttr().getValue(), arith::FastMathFlags::afn))
        return false;
    }
    return true;
  }

  /// Whether every access treats all dimensions as one.
  bool isOneWalk(ArrayRef<Size> all) const {
    auto isOne = [&](ArrayRef<int64_t> strides) {
      for (size_t dim = 0; dim + 1 < strides.size(); ++dim)
        if (strides[dim] != strides[dim + 1] * all[dim + 1].count)
          return false;
      return true;
    };
    for (size_t i = 0; i < nodes().size(); ++i)
      if (needed[i] && !isOne(nodes()[i].strides))
        return false;
    return llvm::all_of(stores, [&](const StoreNode &store) { return isOne(store.strides); }) &&
           llvm::none_of(all.drop_front(), [](const Size &size) { return size.sampled; });
  }

  /// Number of groups of a thread. They are a block's length apart.
  int groupsOfThread(int width) const {
    int loads = 0, operations = 0;
    for (size_t i = 0; i < nodes().size(); ++i) {
      loads += needed[i] && nodes()[i].kind == Node::Load && nodes()[i].operand >= 0;
      operations += needed[i] && nodes()[i].kind == Node::Compute;
    }
    if (!roundsAny() || width < 4 || loads > kGroupLoads / 2 || operations > kGroupOperations ||
        !isCheap())
      return 1;
    return std::min(cuda::kGroups, kGroupLoads / std::max(loads, 1));
  }

  /// The points of an elementwise kernel and their distribution over threads.
  struct Elements {
    SmallVector<Size> all; ///< dimensions; the last but one is divided by `rows`, which a thread
                           ///< processes sequentially
    Size iterations;
    int width = 1, groups = 1;
    int64_t rows = 1;
    bool isFlat = false, isOneWalk = false;
    SmallVector<const StoreNode *> vectors, numbers;
  };

  Elements elements() const {
    Elements x;
    x.all.append(sizes.begin(), sizes.end());
    if (columns)
      x.all.push_back(Size{columns, false});
    if (x.all.empty())
      x.all.push_back(Size{1, false});
    x.isFlat = x.all.size() == 1;
    x.width = vectorWidth(x.isFlat ? 0 : x.all.back().sampled ? 1 : x.all.back().count);
    if (!isCheap())
      x.width = std::min(x.width, kExpensiveWidth);
    for (const StoreNode &store : stores)
      (columns && !store.vector ? x.numbers : x.vectors).push_back(&store);
    x.rows = x.numbers.empty() ? rowsInTurn(x.width) : 1;
    if (x.rows > 1)
      x.all[x.all.size() - 2].count /= x.rows;
    x.isOneWalk = x.rows == 1 && x.numbers.empty() && isOneWalk(x.all);
    if (x.isOneWalk)
      x.groups = groupsOfThread(x.width);
    x.iterations = matmul(x.all);
    return x;
  }

  SmallVector<SmallVector<Value>> placesFrom(const Elements &x, Value first, int count) {
    SmallVector<SmallVector<Value>> places;
    for (int i = 0; i < count; ++i) {
      if (sizes.empty() && !columns) {
        places.emplace_back();
        continue;
      }
      SmallVector<Value> place = x.isOneWalk ? SmallVector<Value>(x.all.size(), k.i64(0))
                                             : k.delinearize(first, x.all);
      if (x.isOneWalk)
        place.back() = first;
      if (x.rows > 1)
        place[x.all.size() - 2] = k.mul(place[x.all.size() - 2], x.rows);
      place.back() = i ? k.add(place.back(), k.i64(i)) : place.back();
      places.push_back(std::move(place));
    }
    return places;
  }

  void emitGroup(const Elements &x, Value first, int count) {
    Group group(placesFrom(x, first, count));
    if (x.rows > 1) {
      loadRepeated(group);
      return k.loop(k.i64(0), k.i64(x.rows), [&](Value row) {
        SmallVector<SmallVector<Value>> places(group.places);
        for (SmallVector<Value> &place : places)
          place[x.all.size() - 2] = k.add(place[x.all.size() - 2], row);
        Group one(std::move(places));
        one.repeated = &group;
        storeAll(one, x.vectors, phases - 1);
      });
    }
    storeAll(group, x.vectors, phases - 1);
    if (!x.numbers.empty()) // numbers are stored by the thread of the first column
      k.ifTrue(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq,
                                     group.places.front().back(), k.i64(0)),
               [&] {
                 Group one({group.places.front()});
                 storeAll(one, x.numbers, phases - 1);
               });
  }

  /// Emits the group from `begin` on, or the elements that remain there.
  void emitGroupOrTail(const Elements &x, Value begin, Value total) {
    Value end = k.add(begin, k.i64(x.width));
    k.ifTrue(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::sle, end, total),
             [&] { emitGroup(x, begin, x.width); });
    if (x.width > 1 && x.isFlat) { // the remaining elements
      Value tail = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::sgt, end, total);
      k.ifTrue(tail, [&] { k.loop(begin, total, [&](Value index) { emitGroup(x, index, 1); }); });
    }
  }

  void emitGroups(const Elements &x, Value total) {
    // A partial last group is not counted.
    Value count = x.iterations.count % x.width == 0
                      ? k.size(Size{x.iterations.count / x.width, x.iterations.sampled})
                      : Value(arith::DivUIOp::create(k.b, k.loc, total, k.i64(x.width)));
    auto whole = [&](Value first) {
      std::vector<Group> all;
      std::vector<Stored> values;
      all.reserve(size_t(x.groups));
      values.reserve(size_t(x.groups));
      for (int i = 0; i < x.groups; ++i)
        all.emplace_back(placesFrom(
            x, k.add(k.mul(first, x.width), k.i64(int64_t(i) * cuda::kGroupThreads * x.width)),
            x.width));
      for (Group &one : all)
        values.push_back(valuesOf(one, x.vectors, phases - 1));
      for (auto [one, value] : llvm::zip(all, values))
        storeValues(one, x.vectors, value);
    };
    cuda::takeGroups(k, count, x.groups, whole,
                     [&](Value group) { emitGroupOrTail(x, k.mul(group, x.width), total); });
  }

  Kernel emitElements() {
    const Elements x = elements();
    Value total = k.size(x.iterations);
    if (x.groups > 1)
      emitGroups(x, total);
    else
      emitGroupOrTail(x, k.begin, total);
    // As on CPUs: the result of an optimizer update must not depend on the device that computes it.
    return k.finish(hint(), x.iterations, x.groups > 1 ? cuda::kGroupThreads : kBlockThreads,
                    x.width * x.groups, /*takesRegisters=*/false,
                    /*contract=*/false);
  }

  /// Computes the numbers of phase `phase` that are needed later, once per row.
  void makeNumbers(int phase, ArrayRef<Value> indices) {
    for (size_t i = 0; i < nodes().size(); ++i)
      if (nodes()[i].form == Form::PerRow && nodes()[i].phase == phase &&
          nodes()[i].kind != Node::Reduce && needed[i])
        scalarOf(int(i), indices);
  }

  Kernel emitRows(bool contract) {
    Size rowCount = matmul(sizes);
    const bool warp = columns <= kWarpColumns;
    int width = vectorWidth(columns);
    while (width > 1 && 32 * width > columns) // every lane has at least one element
      width /= 2;
    int lanes = 32;
    while (!warp && lanes < 1024 && int64_t(lanes) * width * 2 < columns)
      lanes *= 2;
    const int threads = warp ? 32 * kWarpsPerBlock : lanes;
    Value row = arith::DivUIOp::create(k.b, k.loc, k.begin, k.i64(lanes)),
          lane = arith::RemUIOp::create(k.b, k.loc, k.begin, k.i64(lanes));
    const int64_t held = (columns + int64_t(lanes) * width - 1) / (int64_t(lanes) * width) * width;
    const int64_t inTurn = warp && held >= kLongRow && held <= kKeptColumns ? rowsInTurn(held) : 1;
    auto body = [&](Value row, ArrayRef<CachedColumns> repeated) {
      SmallVector<Value> lead = leadOf(row);
      SmallVector<Value> anywhere(lead);
      anywhere.push_back(Value());
      Value isFirst = arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, lane, k.i64(0));
      kept = keptColumns(lead, lane, lanes, width);
      for (auto [part, same] : llvm::zip(kept, repeated))
        part.group.repeated = &same.group;
      for (int phase = 0; phase < phases; ++phase) {
        makeNumbers(phase, anywhere);
        SmallVector<const StoreNode *> numbers;
        for (const StoreNode &store : stores)
          if (!store.vector && nodes()[size_t(store.node)].phase == phase)
            numbers.push_back(&store);
        if (!numbers.empty())
          k.ifTrue(isFirst, [&] {
            for (const StoreNode *store : numbers)
              k.store(scalarOf(store->node, anywhere), k.pointer(store->operand),
                      k.offset(anywhere, store->strides), store->element, accumulateFlag(*store));
          });
        emitColumns(phase, lead, lane, lanes, width);
      }
    };
    rowCount.count /= inTurn;
    auto bodies = [&] {
      if (inTurn == 1)
        return body(row, {});
      Value first = k.mul(row, inTurn);
      std::vector<CachedColumns> repeated = keptColumns(leadOf(first), lane, lanes, width);
      for (CachedColumns &part : repeated)
        loadRepeated(part.group);
      k.loop(k.i64(0), k.i64(inTurn), [&](Value turn) { body(k.add(first, turn), repeated); });
    };
    if (warp) // some warps have no row
      k.ifTrue(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, row, k.size(rowCount)),
               bodies);
    else
      bodies();
    return k.finish(hint(), Size{rowCount.count * lanes, rowCount.sampled}, threads, 1,
                    /*takesRegisters=*/false, contract);
  }

  SmallVector<Value> leadOf(Value row) {
    return sizes.empty() ? SmallVector<Value>() : k.delinearize(row, sizes);
  }

  /// Positions of columns `first` to first + width - 1.
  SmallVector<SmallVector<Value>> placesInRow(ArrayRef<Value> lead, Value first, int width) {
    SmallVector<SmallVector<Value>> places(width, SmallVector<Value>(lead));
    for (auto [i, place] : llvm::enumerate(places))
      place.push_back(i ? k.add(first, k.i64(int64_t(i))) : first);
    return places;
  }

  void emitColumns(int phase, ArrayRef<Value> lead, Value lane, int lanes, int width) {
    SmallVector<int> reduces;
    SmallVector<const StoreNode *> vectors;
    for (size_t i = 0; i < nodes().size(); ++i)
      if (nodes()[i].kind == Node::Reduce && nodes()[i].phase == phase + 1 && needed[i])
        reduces.push_back(int(i));
    for (const StoreNode &store : stores)
      if (store.vector && nodes()[size_t(store.node)].phase == phase)
        vectors.push_back(&store);
    if (reduces.empty() && vectors.empty())
      return;
    SmallVector<Value> carried;
    for (int reduce : reduces)
      carried.push_back(k.identity(nodes()[size_t(reduce)].reduce, nodes()[size_t(reduce)].type));
    if (!kept.empty()) {
      for (CachedColumns &part : kept) {
        for (size_t e = 0; e < size_t(width); ++e)
          for (auto [reduce, sum] : llvm::zip(reduces, carried)) {
            const Node &node = nodes()[size_t(reduce)];
            Value value = valueOf(node.inputs[0], phase, part.group, e);
            sum = k.combine(node.reduce, sum,
                            part.inside
                                ? k.select(part.inside, value, k.identity(node.reduce, node.type))
                                : value);
          }
        storeAll(part.group, vectors, phase, part.inside);
      }
      return combineRow(reduces, carried, lanes);
    }
    // Steps of all lanes. In the last step, some lanes may have no columns.
    const int64_t stride = int64_t(lanes) * width, steps = columns / stride;
    auto step = [&](Value first, ArrayRef<Value> before) {
      Group group(placesInRow(lead, first, width));
      SmallVector<Value> next(before);
      for (size_t e = 0; e < size_t(width); ++e)
        for (auto [reduce, sum] : llvm::zip(reduces, next))
          sum = k.combine(nodes()[size_t(reduce)].reduce, sum,
                          valueOf(nodes()[size_t(reduce)].inputs[0], phase, group, e));
      storeAll(group, vectors, phase);
      return next;
    };
    Value offset = k.mul(lane, width);
    SmallVector<Value> results(carried);
    if (reduces.empty() && steps <= kStepsInLine)
      for (int64_t index = 0; index < steps; ++index)
        step(k.add(offset, k.i64(index * stride)), {});
    else if (steps > 0)
      results = k.loop(k.i64(0), k.i64(steps), carried, [&](Value index, ArrayRef<Value> before) {
        return step(k.add(k.mul(index, stride), offset), before);
      });
    if (steps * stride < columns) {
      Value first = k.add(k.i64(steps * stride), offset);
      Value inside =
          arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, first, k.i64(columns));
      results = k.ifElse(inside, results, [&] { return step(first, results); });
    }
    combineRow(reduces, results, lanes);
  }

  /// Combines the partial sums of a row's threads.
  void combineRow(ArrayRef<int> reduces, ArrayRef<Value> parts, int lanes) {
    for (auto [reduce, part] : llvm::zip(reduces, parts)) {
      const ReduceKind kind = nodes()[size_t(reduce)].reduce;
      scalars[size_t(reduce)] = lanes == 32 ? k.combineWarp(kind, part)
                                            : k.combineBlock(kind, part, lanes);
    }
  }

  std::vector<CachedColumns> keptColumns(ArrayRef<Value> lead, Value lane, int lanes, int width) {
    std::vector<CachedColumns> kept;
    const int64_t stride = int64_t(lanes) * width, steps = (columns + stride - 1) / stride;
    if (steps * width > kKeptColumns)
      return kept;
    for (int64_t step = 0; step < steps; ++step) {
      Value first = k.add(k.i64(step * stride), k.mul(lane, width)), inside;
      if ((step + 1) * stride > columns) {
        inside =
            arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, first, k.i64(columns));
        first = k.select(inside, first, k.i64(columns - width));
      }
      kept.push_back({Group(placesInRow(lead, first, width)), inside});
    }
    return kept;
  }
};

} // namespace

Kernel cuda::buildRowKernel(const KernelContext &context, int cluster,
                            HalfConversions conversions) {
  CudaKernelBuilder k(context.context, context.resolve, conversions);
  return RowEmitter(k, context, cluster).emit();
}
