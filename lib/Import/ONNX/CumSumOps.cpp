// Imports CumSum and CumProd.
#include "Arithmetic.h"
#include "Decomposition.h"
#include "Known.h"
#include "Lengths.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static ImportedValue runningSumOfConstant(ImportState &state, ImportedValue x, int64_t axis) {
  // Operands may repeat: only the axis itself and axes that do not repeat need storage.
  x = compressed(state, x);
  ImportedValue small = x;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) {
      FactorList kept;
      for (const Factor &factor : small.view.dims[i])
        if (factor.stride != 0)
          kept.push_back(factor);
      small.view.dims[i] = kept;
    }
  std::vector<int64_t> shape = small.shape();
  int64_t inner = 1, size = shape[axis];
  for (size_t i = axis + 1; i < shape.size(); ++i)
    inner *= shape[i];
  const auto summed = [&](auto values, auto add) {
    for (size_t i = 0; i < values.size(); ++i)
      if (static_cast<int64_t>(i) / inner % size)
        values[i] = add(values[i], values[i - inner]);
    return values;
  };
  const auto addFloats = [&](double a, double b) { return roundTo(x.type, a + b); };
  ImportedValue sums = constantOf(
      x.type,
      isFloat(x.type)
          ? makeFloats(x.type, summed(*constantFloats(small, int64_t(1) << 25), addFloats))
          : makeInts(x.type, summed(*constantInts(small, int64_t(1) << 25), addInts)),
      shape);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) {
      // Put the repeats back between the factors that move. A merged axis keeps its order.
      FactorList list;
      FactorList moving = sums.view.dims[i];
      bool repeatsOnly = moving.empty();
      for (const Factor &factor : x.view.dims[i])
        if (factor.stride == 0)
          list.push_back(factor);
        else if (!repeatsOnly) {
          list.insert(list.end(), moving.begin(), moving.end());
          moving.clear();
        }
      coalesce(list);
      sums.view.dims[i] = list;
    }
  return sums;
}

// Cumulative sum over samples of a constant: n times the element. n is the number of samples up to
// this one, or from it on.
static ImportedValue runningOverSamples(Decomposition &make, bool reverse, bool exclusive,
                                        const ImportedValue &x, const ImportedValue &before,
                                        const ImportedValue &all) {
  ImportedValue copies = reverse ? make("Sub", {all, before}) : before; // number of samples before
                                                                        // this one, or from it on
  if (reverse == exclusive)
    copies = make(reverse ? "Sub" : "Add", {copies, make.number(1, x)});
  return make("Mul", {x, copies});
}

/// Scan by doubling: after the step of 2^i, an element combines the last 2^(i+1) elements up to it.
/// Its gradient consists of the same steps in reverse.
static LogicalResult importRunning(OpContext &op) {
  ImportedValue x = op.operand(0);
  auto given = constantInt(op.operand(1));
  if (!x.isArray() || !given)
    return op.error("expects a tensor and a constant axis");
  int64_t axis = *given < 0 ? *given + x.rank() : *given;
  if (axis < 0 || axis >= x.rank())
    return op.error("axis is outside the rank");
  const bool sums = op.node.op == "CumSum", reverse = op.integer("reverse") != 0,
             exclusive = op.integer("exclusive") != 0;
  if (x.view.sampleAxis() == axis && x.isConstant() && x.view.dims[axis].size() == 1 &&
      x.sampleStep() == 0 && sums) {
    Decomposition make(op);
    ImportedValue number = fillOver(ElementKind::I64, 0, x.view);
    number.constant().sampleStep = 1;
    return make.result(
        runningOverSamples(make, reverse, exclusive, x, make.cast(number, x.type),
                           castKnown(knownScalar(ElementKind::I64, Number::samples()), x.type)));
  }
  if (x.view.sampleAxis() == axis)
    return op.error("runs over the samples; every op must treat samples apart");
  if (x.view.elements() == 0)
    return importIdentity(op);
  if (x.isConstant() && sums && !reverse && !exclusive && x.view.elements() <= (int64_t(1) << 25))
    return op.result(runningSumOfConstant(op.state, x, axis));
  Decomposition make(op);
  const int64_t size = x.view.size(axis);
  // Shifts the elements by `count` positions and fills with the neutral element.
  auto shifted = [&](const ImportedValue &value, int64_t count) {
    std::vector<int64_t> shape = x.shape();
    shape[axis] = std::min(count, size);
    ImportedValue filler = make("Expand", {make.number(sums ? 0 : 1, x), make.ints(shape)});
    if (count >= size)
      return filler;
    ImportedValue rest = make.slice(value, axis, reverse ? count : 0, size - count);
    return make("Concat",
                reverse ? std::vector<ImportedValue>{rest, filler}
                        : std::vector<ImportedValue>{filler, rest},
                {{"axis", axis}});
  };
  ImportedValue running = exclusive ? shifted(x, 1) : x;
  for (int64_t step = 1; step < size && !make.hasFailed(); step *= 2)
    running = make(sums ? "Add" : "Mul", {running, shifted(running, step)});
  return make.result(running);
}

void zorse::onnx_import::registerRunningOps(OperatorRegistry &registry) {
  registry.add({
      {{"CumSum", "CumProd"},
       2,
       2,
       {integer("exclusive", 0), integer("reverse", 0)},
       importRunning},
  });
}
