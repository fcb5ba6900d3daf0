// Imports Einsum as transpositions, reshapes and matmuls of two operands at a time, from left to
// right.
#include "Arithmetic.h"
#include "Decomposition.h"

#include <algorithm>
#include <map>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

using Labels = std::string;

bool holds(const Labels &labels, char label) { return labels.find(label) != Labels::npos; }

/// An operand and the label of each of its dimensions.
struct LabelledOperand {
  ImportedValue value;
  Labels labels;

  int64_t size(char label) const {
    return value.view.size(static_cast<int64_t>(labels.find(label)));
  }
};

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

/// Labels of the dimensions of an ellipsis, the last one first. None is a letter.
constexpr const char *kEllipsis = "0123456789;:<=";

/// Parses `text` for operands of the given ranks. Returns a description of the error, or "".
std::string parse(StringRef text, ArrayRef<int64_t> ranks, Equation &equation) {
  std::string compact;
  for (char c : text)
    if (c != ' ')
      compact += c;
  auto [left, right] = StringRef(compact).split("->");
  const bool saysResult = compact.find("->") != std::string::npos;
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  if (terms.size() != ranks.size())
    return "has " + std::to_string(terms.size()) + " terms for " + std::to_string(ranks.size()) +
           " operands";
  size_t widest = 0;
  auto expand = [&](StringRef term, std::optional<int64_t> rank, Labels &labels) -> std::string {
    size_t dots = term.find("...");
    StringRef front = term.take_front(dots),
              back = dots == StringRef::npos ? StringRef() : term.drop_front(dots + 3);
    const size_t named = front.size() + back.size();
    for (char c : (front + back).str())
      if (!llvm::isAlpha(c))
        return "has a label that is no letter: '" + std::string(1, c) + "'";
    size_t hidden = rank ? static_cast<size_t>(*rank) - named : widest;
    if (rank && (static_cast<size_t>(*rank) < named ||
                 (dots == StringRef::npos && static_cast<size_t>(*rank) != named) ||
                 hidden >= StringRef(kEllipsis).size()))
      return "has the term '" + term.str() + "' for an operand of rank " + std::to_string(*rank);
    labels = front.str();
    if (dots != StringRef::npos) {
      widest = std::max(widest, hidden);
      for (size_t i = hidden; i-- > 0;)
        labels += kEllipsis[i];
    }
    labels += back.str();
    return {};
  };
  for (auto [term, rank] : llvm::zip(terms, ranks)) {
    equation.operands.emplace_back();
    if (std::string problem = expand(term, rank, equation.operands.back()); !problem.empty())
      return problem;
  }
  if (saysResult) {
    if (std::string problem = expand(right, std::nullopt, equation.result); !problem.empty())
      return problem;
  } else {
    std::map<char, int> counts;
    for (const Labels &labels : equation.operands)
      for (char label : labels)
        ++counts[label];
    for (size_t i = widest; i-- > 0;)
      equation.result += kEllipsis[i];
    for (auto [label, count] : counts)
      if (count == 1 && llvm::isAlpha(label))
        equation.result += label;
  }
  for (char label : equation.result)
    if (std::count(equation.result.begin(), equation.result.end(), label) > 1 ||
        llvm::none_of(equation.operands, [&](const Labels &own) { return holds(own, label); }))
      return std::string("has the label '") + label + "' in its result twice, or in no operand";
  return {};
}

/// The operand with its dimensions permuted to the order of `labels`.
LabelledOperand ordered(Decomposition &make, const LabelledOperand &x, const Labels &labels) {
  std::vector<int64_t> permutation;
  for (char label : labels)
    permutation.push_back(static_cast<int64_t>(x.labels.find(label)));
  return {make.transpose(x.value, permutation), labels};
}

LabelledOperand summed(Decomposition &make, const LabelledOperand &x, const Labels &kept) {
  std::vector<int64_t> axes;
  Labels labels;
  for (size_t i = 0; i < x.labels.size(); ++i)
    if (holds(kept, x.labels[i]))
      labels += x.labels[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  return axes.empty() ? x : LabelledOperand{make.reduce("ReduceSum", x.value, axes), labels};
}

Labels allOf(std::initializer_list<StringRef> parts) {
  Labels all;
  for (StringRef part : parts)
    all += part.str();
  return all;
}

std::vector<int64_t> sizesOf(const LabelledOperand &x, const Labels &labels) {
  std::vector<int64_t> sizes;
  for (char label : labels)
    sizes.push_back(x.size(label));
  return sizes;
}

int64_t countAlong(const LabelledOperand &x, const Labels &labels) {
  int64_t count = 1;
  for (char label : labels)
    count *= x.size(label);
  return count;
}

std::vector<int64_t> joined(std::initializer_list<std::vector<int64_t>> parts) {
  std::vector<int64_t> all;
  for (const std::vector<int64_t> &part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The elementwise product over all labels of both operands.
LabelledOperand elementwise(Decomposition &make, const LabelledOperand &a,
                            const LabelledOperand &b) {
  Labels all = a.labels;
  for (char label : b.labels)
    if (!holds(all, label))
      all += label;
  auto spread = [&](const LabelledOperand &x) {
    Labels own;
    std::vector<int64_t> missing;
    for (size_t i = 0; i < all.size(); ++i)
      if (holds(x.labels, all[i]))
        own += all[i];
      else
        missing.push_back(static_cast<int64_t>(i));
    ImportedValue value = ordered(make, x, own).value;
    return missing.empty() ? value : make("Unsqueeze", {value, make.ints(missing)});
  };
  return {make("Mul", {spread(a), spread(b)}), all};
}

class Einsum {
public:
  explicit Einsum(OpContext &op) : op(op), make(op) {}

  LogicalResult apply() {
    if (failed(readOperands()) || failed(readSizes()))
      return failure();
    expandOnes();
    dropRepeats();
    if (make.hasFailed())
      return failure();
    LabelledOperand left = summed(make, operands[0], neededBehind(1));
    for (size_t next = 1; next < operands.size() && !make.hasFailed(); ++next) {
      const Labels needed = neededBehind(next + 1);
      left = product(left, summed(make, operands[next], needed + left.labels), needed);
    }
    if (make.hasFailed())
      return failure();
    if (left.value.isLoss())
      return make.result(left.value);
    left = summed(make, left, equation.result);
    return make.result(left.value.isLoss() ? left.value : arranged(left));
  }

private:
  OpContext &op;
  Decomposition make;
  std::string text;
  Equation equation;
  std::vector<LabelledOperand> operands;
  std::map<char, int64_t> sizes; ///< by label

  LogicalResult readOperands() {
    std::vector<int64_t> ranks;
    for (size_t i = 0; i < op.node.inputs.size(); ++i) {
      const ImportedValue &operand = op.operand(i);
      if (!operand.isArray() || !isFloat(operand.type) || operand.view.elements() == 0)
        return op.error("expects tensors of floats that are not empty");
      operands.push_back({operand, {}});
      ranks.push_back(operand.rank());
    }
    text = op.text("equation");
    if (std::string problem = parse(text, ranks, equation); !problem.empty())
      return op.error("its equation '" + text + "' " + problem);
    return success();
  }

  LogicalResult readSizes() {
    for (auto [operand, labels] : llvm::zip(operands, equation.operands)) {
      operand.labels = labels;
      for (size_t i = 0; i < labels.size(); ++i) {
        if (labels.find(labels[i]) != i)
          return op.error("its equation '" + text + "' takes a diagonal ('" + Twine(labels[i]) +
                          "' twice in one term), which is not supported");
        int64_t &size = sizes.try_emplace(labels[i], 1).first->second,
                own = operand.value.view.size(static_cast<int64_t>(i));
        if (own != 1 && size != 1 && own != size)
          return op.error("label '" + Twine(labels[i]) + "' of its equation '" + text + "' is " +
                          Twine(size) + " in one operand and " + Twine(own) + " in another");
        size = std::max(size, own);
      }
    }
    return success();
  }

  /// Broadcasts dimensions of size 1 to the size of their label.
  void expandOnes() {
    for (LabelledOperand &operand : operands) {
      std::vector<int64_t> whole;
      for (char label : operand.labels)
        whole.push_back(sizes[label]);
      if (operand.value.shape() != whole)
        operand.value = make("Expand", {operand.value, make.ints(whole)});
    }
  }

  /// Drops dimensions along which an operand repeats, so that repeats are not multiplied. If
  /// another operand has samples there, a constant needs no copy per sample.
  void dropRepeats() {
    for (LabelledOperand &operand : operands) {
      ImportedValue small = operand.value.isConstant() ? compressed(op.state, operand.value)
                                                       : operand.value;
      for (size_t i = operand.labels.size(); i-- > 0 && operand.labels.size() > 1;) {
        const char label = operand.labels[i];
        FactorList &along = small.view.dims[i];
        const bool repeats =
            !along.empty() &&
            std::all_of(along.begin(), along.end(), [](const Factor &f) { return f.stride == 0; });
        const bool forSamples = repeats && !isBatched(small) && along.size() == 1 &&
                                along[0].sample;
        const auto holders =
            std::count_if(operands.begin(), operands.end(),
                          [&](const LabelledOperand &other) { return holds(other.labels, label); });
        if (!repeats ||
            (!forSamples &&
             std::any_of(along.begin(), along.end(), [](const Factor &f) { return f.sample; })) ||
            (holders < 2 && (forSamples || !holds(equation.result, label))) || make.hasFailed())
          continue;
        const auto axis = static_cast<int64_t>(i);
        if (forSamples)
          along.clear(); // the value that all samples share
        operand.value = small =
            make.squeeze(forSamples ? small : make.slice(small, axis, 0, 1), axis);
        operand.labels.erase(i, 1);
      }
    }
  }

  /// Labels of the result and of the operands from `next` on.
  Labels neededBehind(size_t next) const {
    Labels needed = equation.result;
    for (size_t i = next; i < operands.size(); ++i)
      needed += operands[i].labels;
    return needed;
  }

  /// Multiplies both operands and sums over their common labels that are not in `needed`.
  LabelledOperand product(LabelledOperand left, LabelledOperand right, const Labels &needed) {
    Labels batch, rows, inner, columns;
    for (char label : left.labels)
      (!holds(right.labels, label) ? rows : holds(needed, label) ? batch : inner) += label;
    for (char label : right.labels)
      if (!holds(left.labels, label))
        columns += label;
    if (inner.empty())
      return elementwise(make, left, right);
    if (isBatched(right.value) && !isBatched(left.value)) {
      std::swap(left, right);
      std::swap(rows, columns);
    }
    const int64_t depth = countAlong(left, inner), width = countAlong(right, columns),
                  groups = countAlong(left, batch);
    const bool isWeight = isBatched(left.value) && !isBatched(right.value);
    if (isWeight || batch.empty()) {
      // [rows..., groups, inner] with one matrix per group
      ImportedValue x = make.reshape(ordered(make, left, allOf({rows, batch, inner})).value,
                                     joined({sizesOf(left, rows), {groups, depth}}));
      ImportedValue w = make.reshape(ordered(make, right, allOf({batch, inner, columns})).value,
                                     {groups, depth, width});
      ImportedValue y = batch.empty() && !make.hasFailed()
                            ? make("MatMul", {make.squeeze(x, x.rank() - 2), make.squeeze(w, 0)})
                            : groupedProduct(make, x, w);
      std::vector<int64_t> shape =
          joined({sizesOf(left, rows), sizesOf(left, batch), sizesOf(right, columns)});
      return {make.reshape(y, shape), allOf({rows, batch, columns})};
    }
    ImportedValue a = make.reshape(ordered(make, left, allOf({batch, rows, inner})).value,
                                   joined({sizesOf(left, batch), {countAlong(left, rows), depth}}));
    ImportedValue b = make.reshape(ordered(make, right, allOf({batch, inner, columns})).value,
                                   joined({sizesOf(left, batch), {depth, width}}));
    std::vector<int64_t> shape =
        joined({sizesOf(left, batch), sizesOf(left, rows), sizesOf(right, columns)});
    return {make.reshape(make("MatMul", {a, b}), shape), allOf({batch, rows, columns})};
  }

  /// Permutes the dimensions to the order of the result and adds copies along the labels that are
  /// missing.
  ImportedValue arranged(const LabelledOperand &x) {
    Labels present;
    std::vector<int64_t> missing, shape;
    for (char label : equation.result) {
      if (holds(x.labels, label))
        present += label;
      else
        missing.push_back(static_cast<int64_t>(shape.size()));
      shape.push_back(sizes[label]);
    }
    ImportedValue result = ordered(make, x, present).value;
    if (!missing.empty())
      result = make("Expand", {make("Unsqueeze", {result, make.ints(missing)}), make.ints(shape)});
    return result;
  }
};

} // namespace

static LogicalResult importEinsum(OpContext &op) { return Einsum(op).apply(); }

void zorse::onnx_import::registerEinsumOps(OperatorRegistry &registry) {
  registry.add({
      {{"Einsum"}, 1, kAny, {required(text("equation"))}, importEinsum},
  });
}
