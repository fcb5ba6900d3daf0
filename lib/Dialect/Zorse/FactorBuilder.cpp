#include "FactorBuilder.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace zorse;

static OpFactors::Value unrelated(Value value) {
  OpFactors::Value dimensions;
  if (auto type = dyn_cast<RankedTensorType>(value.getType()))
    for (int64_t size : type.getShape())
      dimensions.push_back({FactorBuilder::nothing(size)});
  return dimensions;
}

FactorBuilder::FactorBuilder(Operation *op) {
  for (Value operand : op->getOperands())
    rule.operands.push_back(unrelated(operand));
  for (Value result : op->getResults())
    rule.results.push_back(unrelated(result));
}

OpFactors::Segment FactorBuilder::add(FactorKind kind, int64_t size, Combiner combiner) {
  if (size == 1)
    return nothing(1);
  rule.factors.push_back({kind, size, combiner});
  return {{static_cast<unsigned>(rule.factors.size() - 1)}, size};
}

SmallVector<OpFactors::Segment> FactorBuilder::parallel(ArrayRef<int64_t> shape) {
  return llvm::map_to_vector(shape, [&](int64_t size) { return parallel(size); });
}

OpFactors::Segment FactorBuilder::product(const Segment &outer, const Segment &inner) {
  Segment both{outer.factors, outer.size * inner.size};
  both.factors.append(inner.factors);
  return both;
}

void FactorBuilder::countAlong(const Segment &segment, std::optional<unsigned> operand) {
  for (unsigned factor : segment.factors)
    if (rule.factors[factor].size != ShapedType::kDynamic)
      rule.offsets.push_back({factor, operand});
}

void FactorBuilder::set(OpFactors::Value &value, ArrayRef<Segment> dimensions) {
  for (auto [dimension, segment] : llvm::zip(value, dimensions))
    dimension = {segment};
}

OpFactors zorse::elementwiseFactors(Operation *op) {
  FactorBuilder builder(op);
  Value model = op->getNumResults() ? op->getResult(0) : op->getOperand(0);
  auto type = dyn_cast<RankedTensorType>(model.getType());
  if (!type)
    return builder.take();
  SmallVector<OpFactors::Segment> dimensions = builder.parallel(type.getShape());
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    FactorBuilder::set(builder.operand(i), dimensions);
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    FactorBuilder::set(builder.result(i), dimensions);
  return builder.take();
}

//===----------------------------------------------------------------------===//
// Check
//===----------------------------------------------------------------------===//

static std::string checkDimension(const OpFactors &factors, const OpFactors::Dimension &dimension,
                                  int64_t size, bool result) {
  int64_t covered = 0;
  for (const OpFactors::Segment &segment : dimension) {
    int64_t points = 1;
    for (unsigned index : segment.factors) {
      const OpFactors::Factor &factor = factors.factors[index];
      if (factor.size == ShapedType::kDynamic &&
          (size != ShapedType::kDynamic || segment.factors.size() != 1 || dimension.size() != 1))
        return "the sample axis is not alone in its dimension";
      if (result && factor.kind == FactorKind::Reduced)
        return "a reduced factor is in a result";
      points = factor.size == ShapedType::kDynamic ? factor.size : points * factor.size;
    }
    if (!segment.factors.empty() && points != segment.size)
      return "factors multiply to " + std::to_string(points) + " in a segment of " +
             std::to_string(segment.size);
    covered = segment.size == ShapedType::kDynamic ? segment.size : covered + segment.size;
  }
  return covered == size
             ? ""
             : "segments cover " + std::to_string(covered) + " of " + std::to_string(size);
}

std::string zorse::check(const OpFactors &factors, Operation *op) {
  auto checkAll = [&](ArrayRef<OpFactors::Value> rules, ValueRange values,
                      bool results) -> std::string {
    if (rules.size() != values.size())
      return "it speaks of " + std::to_string(rules.size()) + " values of " +
             std::to_string(values.size());
    for (auto [i, rule, value] : llvm::enumerate(rules, values)) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      std::string where = std::string(results ? "result " : "operand ") + std::to_string(i);
      if (static_cast<int64_t>(rule.size()) != (type ? type.getRank() : 0))
        return where + ": not one rule for each dimension";
      for (auto [d, dimension] : llvm::enumerate(rule))
        if (std::string problem = checkDimension(factors, dimension, type.getDimSize(d), results);
            !problem.empty())
          return where + ", dimension " + std::to_string(d) + ": " + problem;
    }
    return "";
  };
  std::string problem = checkAll(factors.operands, op->getOperands(), false);
  return problem.empty() ? checkAll(factors.results, op->getResults(), true) : problem;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string nameOf(unsigned factor) {
  return std::string(1, static_cast<char>(factor < 18 ? 'i' + factor : 'a' + factor - 18));
}

static std::string toString(const OpFactors::Segment &segment) {
  std::string text;
  for (unsigned factor : segment.factors)
    text += nameOf(factor);
  return text.empty() ? "_" : text;
}

static void print(llvm::raw_ostream &os, ArrayRef<OpFactors::Value> values) {
  os << '(';
  llvm::interleaveComma(values, os, [&](const OpFactors::Value &value) {
    os << '[';
    llvm::interleaveComma(value, os, [&](const OpFactors::Dimension &dimension) {
      llvm::interleave(
          dimension, os, [&](const OpFactors::Segment &segment) { os << ::toString(segment); },
          "|");
    });
    os << ']';
  });
  os << ')';
}

static StringRef wordFor(const OpFactors::Factor &factor) {
  if (factor.kind != FactorKind::Reduced)
    return factor.kind == FactorKind::Parallel ? "parallel" : "indivisible";
  static constexpr StringLiteral kWords[] = {"sum", "max", "min", "product", "log-sum-exp"};
  return kWords[static_cast<size_t>(factor.combiner)];
}

std::string zorse::toString(const OpFactors &factors) {
  std::string text;
  llvm::raw_string_ostream os(text);
  print(os, factors.operands);
  os << " -> ";
  print(os, factors.results);
  for (StringRef word :
       {"parallel", "sum", "max", "min", "product", "log-sum-exp", "indivisible"}) {
    bool first = true;
    for (auto [i, factor] : llvm::enumerate(factors.factors))
      if (wordFor(factor) == word)
        os << (first ? " " + word.str() + ":" : "") << ' ' << nameOf(i), first = false;
  }
  for (const OpFactors::Offset &offset : factors.offsets) {
    os << (&offset == factors.offsets.begin() ? " offset: " : ", ") << nameOf(offset.factor);
    if (offset.operand)
      os << " in operand " << *offset.operand;
  }
  return text;
}
