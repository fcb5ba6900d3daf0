#include "GraphOrder.h"

#include "zorse/Dialect/Zorse/EraseDeadOps.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace zorse;

//===----------------------------------------------------------------------===//
// Commutative operands
//===----------------------------------------------------------------------===//

namespace {
/// Sort key of values: kind, depth, then a hash of the structure above. It contains no names and no
/// positions.
struct Rank {
  int kind = 0; ///< 0 computed, 1 argument, 2 splat
  int depth = 0;
  uint64_t hash = 0;
  bool parameter = false; ///< a parameter or a view of one: exporters fold transposes and slices
                          ///< into them, so types are ignored
  bool operator<(const Rank &other) const {
    if (kind != other.kind)
      return kind < other.kind;
    if (depth != other.depth)
      return depth > other.depth;
    return hash < other.hash;
  }
};
} // namespace

/// A hash of text, never of pointers, so that it is the same in every process.
static uint64_t hashText(const std::string &text) { return llvm::xxh3_64bits(text); }

static std::string textOf(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// Formats attributes as text, and large constants as a hash of their bytes.
static std::string textOf(Operation *op) {
  std::string text = op->getName().getStringRef().str();
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
        dense && dense.getNumElements() > 16) {
      ArrayRef<char> bytes = dense.getRawData();
      return text + std::to_string(llvm::xxh3_64bits(StringRef(bytes.data(), bytes.size()))) +
             textOf(dense.getType());
    }
  }
  llvm::raw_string_ostream os(text);
  Attribute properties = op->getPropertiesAsAttribute();
  if (properties)
    os << properties;
  for (Type type : op->getResultTypes())
    os << type;
  return text;
}

void zorse::orderCommutativeOperands(func::FuncOp function) {
  llvm::DenseMap<Value, Rank> ranks;
  for (BlockArgument argument : function.getArguments())
    ranks[argument] = function.getArgAttr(argument.getArgNumber(), attributes::kInput)
                          ? Rank{1, 0, hashText(textOf(argument.getType())), false}
                          : Rank{1, 0, hashText("parameter"), true};
  for (Operation &op : function.front()) {
    if (op.hasTrait<OpTrait::IsCommutative>() && op.getNumOperands() == 2 &&
        ranks[op.getOperand(1)] < ranks[op.getOperand(0)]) {
      Value first = op.getOperand(0), second = op.getOperand(1);
      op.setOperands({second, first});
    }
    // Views cost nothing and do not increase the depth.
    bool view = isView(&op), ofParameter = view && ranks[op.getOperand(0)].parameter;
    if (ofParameter) {
      ranks[op.getResult(0)] = {0, 0, ranks[op.getOperand(0)].hash, true};
      continue;
    }
    bool weighted = isa<MatmulOp>(op) && ranks[op.getOperand(1)].parameter;
    std::string text = weighted ? "weighted " + textOf(op.getResult(0).getType()) : textOf(&op);
    int depth = 0;
    for (Value operand : op.getOperands()) {
      const Rank &rank = ranks[operand];
      depth = std::max(depth, rank.depth);
      text += "/" + llvm::utohexstr(rank.hash);
    }
    uint64_t hash = hashText(text);
    for (OpResult result : op.getResults())
      ranks[result] = {splatValue(result) ? 2 : 0, depth + (view ? 0 : 1),
                       hash + result.getResultNumber(), false};
  }
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

void zorse::orderOps(func::FuncOp function) {
  Block &block = function.front();
  llvm::SetVector<Operation *> order;
  llvm::DenseSet<Operation *> open;
  // Depth first without recursion, because a graph may be thousands of operations deep.
  SmallVector<std::pair<Operation *, unsigned>> stack{{block.getTerminator(), 0}};
  open.insert(block.getTerminator());
  while (!stack.empty()) {
    auto &[op, next] = stack.back();
    if (next == op->getNumOperands()) {
      order.insert(op);
      stack.pop_back();
      continue;
    }
    Operation *producer = op->getOperand(next++).getDefiningOp();
    if (producer && open.insert(producer).second)
      stack.push_back({producer, 0});
  }
  for (Operation *op : order)
    op->moveBefore(&block, block.end());
  eraseDeadOps(block); // dead ops precede the others, users after their operands
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

void zorse::orderParameters(func::FuncOp function) {
  auto isParameter = [&](unsigned index) {
    return function.getArgAttr(index, attributes::kParameter) != nullptr;
  };
  Block &block = function.front();
  llvm::DenseMap<Value, int64_t> firstUse;
  int64_t position = 0;
  for (Operation &op : block)
    for (Value operand : op.getOperands())
      firstUse.try_emplace(operand, position++);

  SmallVector<unsigned> order, parameters;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (!isParameter(i)) {
      order.push_back(i);
      continue;
    }
    auto trainable = function.getArgAttrOfType<BoolAttr>(i, attributes::kTrainable);
    if (function.getArgument(i).use_empty() && trainable && !trainable.getValue())
      continue;
    parameters.push_back(i);
  }
  auto useOf = [&](unsigned index) {
    auto found = firstUse.find(function.getArgument(index));
    return found == firstUse.end() ? std::numeric_limits<int64_t>::max() : found->second;
  };
  llvm::stable_sort(parameters, [&](unsigned a, unsigned b) { return useOf(a) < useOf(b); });
  llvm::append_range(order, parameters);
  bool same = order.size() == function.getNumArguments() && llvm::is_sorted(order);
  if (same)
    return;

  SmallVector<Type> types;
  SmallVector<DictionaryAttr> attributes;
  for (unsigned index : order) {
    BlockArgument old = function.getArgument(index);
    types.push_back(old.getType());
    attributes.push_back(function.getArgAttrDict(index)
                             ? function.getArgAttrDict(index)
                             : DictionaryAttr::get(function.getContext()));
    BlockArgument fresh = block.addArgument(old.getType(), old.getLoc());
    old.replaceAllUsesWith(fresh);
  }
  block.eraseArguments(0, block.getNumArguments() - order.size());
  function.setFunctionType(
      FunctionType::get(function.getContext(), types, function.getFunctionType().getResults()));
  function.setAllArgAttrs(attributes);
}
