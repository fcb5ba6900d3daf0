#include "Classes.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

bool units::drawsRandomNumbers(Operation *op) {
  if (auto attention = dyn_cast<AttentionOp>(op))
    return attention.getDropout().convertToDouble() > 0.0;
  return isa<DropoutOp>(op);
}

namespace {

/// Text of an operation without its operands: name, inherent attributes except `rng_id`, result
/// types.
std::string signature(Operation *op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << op->getName() << '{';
  for (NamedAttribute attribute : op->getAttrDictionary())
    if (attribute.getName() != "rng_id" && !op->getDiscardableAttr(attribute.getName()))
      os << attribute.getName().getValue() << '=' << attribute.getValue() << ';';
  os << '}' << op->getResultTypes();
  return text;
}

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

class Outliner {
public:
  Outliner(const ModelGraph &graph, int begin, int end) : graph(graph), begin(begin), end(end) {}

  Outline run() {
    for (int i = begin; i < end; ++i)
      for (Value result : graph.order[i]->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) {
              return graph.onSpine(user) && graph.position.lookup(user) >= end;
            }))
          outline.valuesOut.push_back(result);
    llvm::stable_sort(outline.valuesOut, [&](Value a, Value b) { return hash(a) < hash(b); });
    bool last = end == int(graph.order.size());
    for (const Numerator &numerator : graph.numerators)
      if (graph.onSpine(numerator.value) ? inside(numerator.value.getDefiningOp()) : last)
        outline.losses.push_back(numerator);

    llvm::raw_string_ostream os(outline.key);
    for (Value value : outline.valuesOut)
      os << "out " << reference(value) << (graph.active.contains(value) ? " gradient" : "")
         << lowPrecisionText(value) << '\n';
    for (const Numerator &numerator : outline.losses)
      os << "loss " << numerator.term << ' ' << reference(numerator.value) << '\n';
    outline.key = body + outline.key;
    return std::move(outline);
  }

private:
  bool inside(Operation *op) const {
    auto it = graph.position.find(op);
    return it != graph.position.end() && it->second >= begin && it->second < end;
  }
  /// Whether an earlier unit computes the value.
  bool isBoundary(Value value) const {
    return graph.onSpine(value) && !inside(value.getDefiningOp());
  }

  std::string lowPrecisionText(Value value) const {
    Type lowPrecision = graph.lowPrecision.lookup(value);
    return lowPrecision ? " as " + typeText(lowPrecision) : "";
  }

  std::string leafText(Value value) const {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return std::string(graph.isParameter(argument)
                             ? (graph.isTrained(argument) ? "parameter " : "constant ")
                             : "input ") +
             typeText(value.getType()) + lowPrecisionText(value);
    return std::string(graph.active.contains(value) ? "value " : "value without gradient ") +
           typeText(value.getType()) + lowPrecisionText(value);
  }

  bool isLeaf(Value value) const { return isa<BlockArgument>(value) || isBoundary(value); }

  /// Returns a hash of the structure below a value, independent of the identity of parameters.
  /// Iterative, because a unit may be a chain of any length.
  uint64_t hash(Value top) {
    SmallVector<Value> waiting{top};
    while (!waiting.empty()) {
      Value value = waiting.back();
      if (hashes.contains(value)) {
        waiting.pop_back();
        continue;
      }
      if (isLeaf(value)) {
        hashes[value] = llvm::xxh3_64bits(leafText(value));
        continue;
      }
      Operation *op = value.getDefiningOp();
      SmallVector<uint64_t> parts;
      for (Value operand : op->getOperands())
        if (auto known = hashes.find(operand); known != hashes.end())
          parts.push_back(known->second);
        else
          waiting.push_back(operand);
      if (waiting.back() != value)
        continue;
      if (op->hasTrait<OpTrait::IsCommutative>())
        llvm::sort(parts);
      parts.push_back(llvm::xxh3_64bits(signature(op)));
      parts.push_back(cast<OpResult>(value).getResultNumber());
      hashes[value] = llvm::xxh3_64bits(ArrayRef<uint8_t>(
          reinterpret_cast<const uint8_t *>(parts.data()), parts.size() * sizeof(uint64_t)));
    }
    return hashes.lookup(top);
  }

  /// Returns the name of a leaf; numbers it on the first visit.
  const std::string &leafName(Value value) {
    std::string &name = leaves[value];
    if (!name.empty())
      return name;
    auto number = [&](auto &list, const char *prefix, auto entry) {
      name = prefix + std::to_string(list.size());
      list.push_back(entry);
    };
    if (auto argument = dyn_cast<BlockArgument>(value); !argument)
      number(outline.valuesIn, "v", value);
    else if (graph.isParameter(argument))
      number(outline.parameters, "p", argument);
    else
      number(outline.inputs, "i", argument);
    body += name + " = " + leafText(value) + "\n";
    return name;
  }

  std::string resultName(Value value) const {
    return "%" + std::to_string(numbers.lookup(value.getDefiningOp())) + "#" +
           std::to_string(cast<OpResult>(value).getResultNumber());
  }

  /// An operation that is being numbered. Its operands are numbered first, in this order.
  struct Visit {
    Operation *op;
    SmallVector<Value> operands;
    std::string line;
    size_t next = 0;
  };

  Visit visitOf(Operation *op) {
    SmallVector<Value> operands(op->getOperands());
    if (op->hasTrait<OpTrait::IsCommutative>())
      llvm::stable_sort(operands, [&](Value a, Value b) { return hash(a) < hash(b); });
    return {op, std::move(operands), signature(op)};
  }

  /// Returns the canonical name of a value. Numbers it and everything below it on the first visit.
  std::string reference(Value value) {
    if (isLeaf(value))
      return leafName(value);
    std::vector<Visit> visits;
    if (!numbers.count(value.getDefiningOp()))
      visits.push_back(visitOf(value.getDefiningOp()));
    while (!visits.empty()) {
      Visit &visit = visits.back();
      if (visit.next < visit.operands.size()) {
        Value operand = visit.operands[visit.next];
        if (!isLeaf(operand) && !numbers.count(operand.getDefiningOp())) {
          visits.push_back(visitOf(operand.getDefiningOp()));
          continue;
        }
        visit.line += " " + (isLeaf(operand) ? leafName(operand) : resultName(operand));
        ++visit.next;
        continue;
      }
      numbers[visit.op] = outline.ops.size();
      outline.ops.push_back(visit.op);
      outline.randomOps += drawsRandomNumbers(visit.op);
      body += visit.line + "\n";
      visits.pop_back();
    }
    return resultName(value);
  }

  const ModelGraph &graph;
  int begin, end;
  Outline outline;
  std::string body;
  DenseMap<Value, uint64_t> hashes;
  DenseMap<Value, std::string> leaves;
  DenseMap<Operation *, int> numbers;
};

} // namespace

Outline units::outlineUnit(const ModelGraph &graph, int begin, int end) {
  return Outliner(graph, begin, end).run();
}

func::FuncOp units::buildForward(OpBuilder &builder, const ModelGraph &graph,
                                 const Outline &outline) {
  SmallVector<Value> arguments;
  SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
  auto argument = [&](ArgumentAttr attribute, bool gradient = false, Type lowPrecision = {}) {
    NamedAttrList list;
    list.set(attributes::kArgument, attribute);
    if (gradient)
      list.set(autodiff::kGradientAttr, builder.getUnitAttr());
    if (lowPrecision)
      list.set(autodiff::kLowPrecisionAttr, TypeAttr::get(lowPrecision));
    return list.getDictionary(builder.getContext());
  };
  auto at = [&](ArgumentKind kind, size_t index) {
    return ArgumentAttr::get(builder.getContext(), kind, uint32_t(index));
  };
  auto add = [&](const auto &values, ArgumentKind kind, auto gradient) {
    for (auto [i, value] : llvm::enumerate(values)) {
      arguments.push_back(value);
      argumentAttributes.push_back(
          argument(at(kind, i), gradient(value), graph.lowPrecision.lookup(value)));
    }
  };
  add(outline.parameters, ArgumentKind::Parameter,
      [&](BlockArgument a) { return graph.isTrained(a); });
  add(outline.inputs, ArgumentKind::Input, [](BlockArgument) { return false; });
  add(outline.valuesIn, ArgumentKind::BoundaryIn,
      [&](Value v) { return graph.active.contains(v); });

  DenseMap<int64_t, SmallVector<Value>> known; // values that become one argument, by position in
                                               // ModelSummary.known
  for (Operation *op : outline.ops)
    if (auto number = dyn_cast<KnownOp>(op)) {
      int64_t index = llvm::find(graph.known, number.getExpression()) - graph.known.begin();
      if (known[index].empty()) {
        arguments.push_back(number);
        argumentAttributes.push_back(argument(ArgumentAttr::get(
            builder.getContext(), ArgumentKind::Scalars, uint32_t(index), ScalarField::Known)));
      }
      known[index].push_back(number);
    }

  SmallVector<Value> results;
  for (auto [i, value] : llvm::enumerate(outline.valuesOut)) {
    results.push_back(value);
    resultAttributes.push_back(argument(at(ArgumentKind::BoundaryOut, i),
                                        graph.active.contains(value),
                                        graph.lowPrecision.lookup(value)));
  }
  for (auto [i, numerator] : llvm::enumerate(outline.losses)) {
    results.push_back(numerator.value);
    resultAttributes.push_back(argument(at(ArgumentKind::Loss, i)));
  }

  Location loc = builder.getUnknownLoc();
  FunctionType type =
      builder.getFunctionType(TypeRange(ValueRange(arguments)), TypeRange(ValueRange(results)));
  auto function = func::FuncOp::create(builder, loc, stringifyTask(Task::Forward), type);
  function.setAllArgAttrs(argumentAttributes);
  function.setAllResultAttrs(resultAttributes);

  OpBuilder::InsertionGuard guard(builder);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(arguments, block->getArguments())) {
    mapping.map(from, to);
    to.setLoc(from.getLoc());
  }
  for (const auto &[index, values] : known)
    for (Value value : values)
      mapping.map(value, mapping.lookup(values.front()));
  int64_t rngId = 0;
  for (Operation *op : outline.ops) {
    if (isa<KnownOp>(op))
      continue;
    Operation *copy = builder.clone(*op, mapping);
    if (drawsRandomNumbers(copy))
      copy->setAttr("rng_id", builder.getI64IntegerAttr(rngId++));
  }
  SmallVector<Value> returned;
  for (Value value : results)
    returned.push_back(mapping.lookup(value));
  func::ReturnOp::create(builder, loc, returned);
  return function;
}

StringRef units::kindOf(const Outline &outline, bool first) {
  bool attention = false, activation = false, heavy = false, table = false;
  for (Operation *op : outline.ops) {
    attention |= isa<AttentionOp, SoftmaxOp>(op);
    activation |= op->hasTrait<IsActivation>() || isa<arith::MaximumFOp>(op);
    heavy |= isComputeIntensive(op);
    table |= isa<GatherOp>(op);
  }
  if (!outline.losses.empty())
    return "head";
  if (first && !attention && (table || !heavy))
    return "embedding";
  if (attention)
    return activation ? "block" : "attention";
  return heavy ? "mlp" : "layer";
}
