// Branches and loops with constant conditions. Branches are resolved and loops are unrolled during
// import.
#include "Decomposition.h"
#include "Initializers.h"
#include "Interpret.h"
#include "Parts.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Max iterations to unroll.
static constexpr int64_t kMaxTurns = 1024;

/// Interprets the body of a node and returns its outputs.
static LogicalResult interpretBody(OpContext &op, GraphBody &body,
                                   const std::vector<ImportedValue> &operands,
                                   std::vector<ImportedValue> &results) {
  if (operands.size() != body.inputs.size())
    return op.error("its body has " + Twine(body.inputs.size()) + " inputs, expects " +
                    Twine(operands.size()));
  for (size_t i = 0; i < operands.size(); ++i)
    op.state.values[body.inputs[i]] = operands[i];
  for (auto &[value, tensor] : body.initializers) {
    auto bytes = op.state.model.bytes(*tensor);
    if (bytes.failed())
      return op.error(bytes.message());
    op.state.values[value] = constantOf(*tensor, *bytes);
  }
  if (failed(interpret(op.state, body, body.outputs)))
    return failure();
  results.clear();
  for (int value : body.outputs) {
    if (!op.state.values[value])
      if (auto initializer = op.state.initializers.find(value);
          initializer != op.state.initializers.end())
        op.state.values[value] = parameter(op.state, *initializer->second);
    results.push_back(op.state.values[value]);
  }
  return success();
}

static LogicalResult importIf(OpContext &op) {
  auto condition = uniformValue(op.state, op.operand(0));
  if (!condition)
    return op.error("its condition depends on data; only constant conditions are supported");
  auto found = op.node.bodies.find(*condition != 0 ? "then_branch" : "else_branch");
  if (found == op.node.bodies.end())
    return op.error("has no branch for its condition");
  std::vector<ImportedValue> results;
  if (failed(interpretBody(op, *found->second, {}, results)))
    return failure();
  for (size_t i = 0; i < results.size(); ++i)
    op.set(i, results[i]);
  return success();
}

FailureOr<ImportedValue>
zorse::onnx_import::stacked(OpContext &op, std::vector<ImportedValue> parts, int64_t axis) {
  if (parts.empty())
    return op.error("makes no turn, and a result that collects its turns; this is not supported");
  const int64_t rank = parts[0].rank() + 1;
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis >= rank)
    return op.error("axis is outside the rank of its result");
  Decomposition make(op);
  for (ImportedValue &part : parts)
    part = make.unsqueeze(part, axis);
  ImportedValue whole = parts.size() == 1 ? parts[0]
                                          : make("Concat", std::move(parts), {{"axis", axis}});
  return make.hasFailed() ? FailureOr<ImportedValue>(failure()) : whole;
}

/// Operands: max iterations, condition, loop-carried values. Results of the body: condition,
/// loop-carried values, collected values.
static LogicalResult importLoop(OpContext &op) {
  auto found = op.node.bodies.find("body");
  if (found == op.node.bodies.end())
    return op.error("has no body");
  GraphBody &body = *found->second;
  std::optional<int64_t> max;
  if (op.has(0)) {
    max = constantInt(op.operand(0));
    if (!max)
      return op.error(
          "expects a constant number of turns; it depends on data. Export with fixed extents");
  }
  ImportedValue condition =
      op.has(1) ? op.operand(1)
                : constantOf(ElementKind::Bool, makeIntFill(ElementKind::Bool, 1, 1), {});
  std::vector<ImportedValue> carried = op.operands(2);
  if (body.outputs.size() < carried.size() + 1)
    return op.error("its body has " + Twine(body.outputs.size()) + " results, expects at least " +
                    Twine(carried.size() + 1));
  std::vector<std::vector<ImportedValue>> collected(body.outputs.size() - 1 - carried.size());
  for (int64_t turn = 0; !max || turn < *max; ++turn) {
    auto goesOn = uniformValue(op.state, condition);
    if (!goesOn)
      return op.error("whether it continues after turn " + Twine(turn) +
                      " depends on data; only constant conditions are supported");
    if (*goesOn == 0)
      break;
    if (turn == kMaxTurns)
      return op.error("makes more than " + Twine(kMaxTurns) +
                      " turns; loops are unrolled up to this limit");
    std::vector<ImportedValue> operands{
        constantOf(ElementKind::I64, makeIntFill(ElementKind::I64, 1, turn), {}), condition},
        results;
    operands.insert(operands.end(), carried.begin(), carried.end());
    if (failed(interpretBody(op, body, operands, results)))
      return failure();
    condition = results[0];
    for (size_t i = 0; i < carried.size(); ++i)
      carried[i] = results[1 + i];
    for (size_t i = 0; i < collected.size(); ++i)
      collected[i].push_back(results[1 + carried.size() + i]);
  }
  for (size_t i = 0; i < carried.size(); ++i)
    op.set(i, carried[i]);
  for (size_t i = 0; i < collected.size(); ++i) {
    const size_t index = carried.size() + i;
    if (index >= op.node.outputs.size() || op.node.outputs[index] < 0)
      continue;
    auto whole = stacked(op, std::move(collected[i]), 0);
    if (failed(whole))
      return failure();
    op.set(index, std::move(*whole));
  }
  return success();
}

/// Operands: loop-carried values, then tensors that each iteration reads one element of, along an
/// axis. Results: loop-carried values, then collected values.
static LogicalResult importScan(OpContext &op) {
  auto found = op.node.bodies.find("body");
  const int64_t scans = op.integer("num_scan_inputs"),
                states = static_cast<int64_t>(op.node.inputs.size()) - scans;
  if (found == op.node.bodies.end() || scans < 1 || states < 0)
    return op.error("expects a body and at least one operand to go through");
  GraphBody &body = *found->second;
  const int64_t outputs = static_cast<int64_t>(body.outputs.size()) - states;
  if (outputs < 0)
    return op.error("its body has " + Twine(body.outputs.size()) + " results, expects at least " +
                    Twine(states));
  auto perOperand = [&](const char *name, int64_t count) {
    std::vector<int64_t> values = op.integers(name).value_or(std::vector<int64_t>());
    values.resize(count, 0);
    return values;
  };
  std::vector<int64_t> inAxes = perOperand("scan_input_axes", scans),
                       backwards = perOperand("scan_input_directions", scans);
  std::vector<int64_t> outAxes = perOperand("scan_output_axes", outputs),
                       outBackwards = perOperand("scan_output_directions", outputs);
  std::vector<ImportedValue> carried;
  carried.reserve(states);
  for (int64_t i = 0; i < states; ++i)
    carried.push_back(op.operand(i));
  int64_t turns = -1;
  for (int64_t i = 0; i < scans; ++i) {
    const ImportedValue &x = op.operand(states + i);
    inAxes[i] = inAxes[i] < 0 ? inAxes[i] + x.rank() : inAxes[i];
    if (inAxes[i] < 0 || inAxes[i] >= x.rank())
      return op.error("axis is outside the rank of operand " + Twine(states + i));
    if (x.view.sampleAxis() == inAxes[i])
      return op.error("goes through the samples; every op must treat samples apart");
    const int64_t size = x.view.size(inAxes[i]);
    if (turns >= 0 && size != turns)
      return op.error("goes through operands of " + Twine(turns) + " and " + Twine(size) +
                      " elements");
    turns = size;
  }
  if (turns > kMaxTurns)
    return op.error("makes " + Twine(turns) + " turns; loops are unrolled, at most " +
                    Twine(kMaxTurns) + " of them");
  std::vector<std::vector<ImportedValue>> collected(outputs);
  Decomposition make(op);
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::vector<ImportedValue> operands = carried, results;
    for (int64_t i = 0; i < scans; ++i)
      operands.push_back(make.squeeze(
          make.slice(op.operand(states + i), inAxes[i], backwards[i] ? turns - 1 - turn : turn, 1),
          inAxes[i]));
    if (make.hasFailed() || failed(interpretBody(op, body, operands, results)))
      return failure();
    for (int64_t i = 0; i < states; ++i)
      carried[i] = results[i];
    for (int64_t i = 0; i < outputs; ++i)
      collected[i].insert(outBackwards[i] ? collected[i].begin() : collected[i].end(),
                          results[states + i]);
  }
  for (int64_t i = 0; i < states; ++i)
    op.set(i, carried[i]);
  for (int64_t i = 0; i < outputs; ++i) {
    if (states + i >= static_cast<int64_t>(op.node.outputs.size()) ||
        op.node.outputs[states + i] < 0)
      continue;
    auto whole = stacked(op, std::move(collected[i]), outAxes[i]);
    if (failed(whole))
      return failure();
    op.set(states + i, std::move(*whole));
  }
  return success();
}

void zorse::onnx_import::registerControlOps(OperatorRegistry &registry) {
  registry.add({
      {{"If"}, 1, 1, {required(body("then_branch")), required(body("else_branch"))}, importIf},
      {{"Loop"}, 0, kAny, {required(body("body"))}, importLoop},
      {{"Scan"},
       1,
       kAny,
       {required(body("body")), required(integer("num_scan_inputs")), integers("scan_input_axes"),
        integers("scan_input_directions"), integers("scan_output_axes"),
        integers("scan_output_directions")},
       importScan},
  });
}
