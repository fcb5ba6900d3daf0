// Imports RNN, GRU and LSTM, unrolled. One matmul computes the contribution of the inputs for all
// positions. Every position then adds the contribution of the previous state.
#include "Decomposition.h"
#include "Parts.h"

#include "llvm/ADT/StringSwitch.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

constexpr int64_t kMaxPositions = 1024;

struct Cell {
  enum class Kind { Rnn, Gru, Lstm } kind;
  int64_t hidden = 0, gates = 1;
  double clip = 0; ///< bound on the operands of activations; 0: none
  bool inputForgets = false, resetsLast = false;
  std::vector<std::string> activations; ///< activations of one direction
};

/// Operands of one direction; absent if the node does not have them.
struct Weights {
  ImportedValue inputs, state; ///< I x gates*H, H x gates*H
  ImportedValue bias, stateBias, peepholes;
};

class RnnUnroller {
public:
  RnnUnroller(Decomposition &make, const Cell &cell, const Weights &weights)
      : make(make), cell(cell), weights(weights) {}

  ImportedValue hidden, memory; ///< samples x H; absent: zero

  /// Computes the next state.
  /// \param brought  samples x gates*H: contribution of the inputs at this position, with all
  /// biases that are added before the reset gate
  void step(const ImportedValue &brought) {
    switch (cell.kind) {
    case Cell::Kind::Rnn:
      hidden = activate(0, plus(brought, recurrent(hidden, 0, 1)));
      return;
    case Cell::Kind::Gru:
      return gru(brought);
    case Cell::Kind::Lstm:
      return lstm(brought);
    }
  }

private:
  Decomposition &make;
  const Cell &cell;
  const Weights &weights;

  ImportedValue gate(const ImportedValue &all, int64_t index, int64_t axis = 1) {
    return cell.gates == 1 ? all : make.slice(all, axis, index * cell.hidden, cell.hidden);
  }
  /// The contribution of a state to gates [first, first + count).
  ImportedValue recurrent(const ImportedValue &state, int64_t first, int64_t count) {
    if (!state)
      return {};
    ImportedValue matrix = count == cell.gates ? weights.state
                                               : make.slice(weights.state, 1, first * cell.hidden,
                                                            count * cell.hidden);
    return make("MatMul", {state, matrix});
  }
  ImportedValue plus(const ImportedValue &a, const ImportedValue &b) {
    return !a ? b : !b ? a : make("Add", {a, b});
  }
  ImportedValue times(const ImportedValue &a, const ImportedValue &b) {
    return !a || !b ? ImportedValue() : make("Mul", {a, b});
  }
  ImportedValue oneLess(const ImportedValue &x) { return make("Sub", {make.number(1, x), x}); }
  ImportedValue activate(size_t which, ImportedValue x) {
    if (cell.clip > 0)
      x = make("Clip", {x, make.number(-cell.clip, x), make.number(cell.clip, x)});
    return make(cell.activations[which].c_str(), {x});
  }

  void gru(const ImportedValue &brought) { // gates z, r, h
    ImportedValue both = recurrent(hidden, 0, cell.resetsLast ? 3 : 2);
    auto of = [&](int64_t index) {
      return both ? make.slice(both, 1, index * cell.hidden, cell.hidden) : ImportedValue();
    };
    ImportedValue update = activate(0, plus(gate(brought, 0), of(0))),
                  reset = activate(0, plus(gate(brought, 1), of(1)));
    ImportedValue before = cell.resetsLast ? times(reset, plus(of(2), weights.stateBias))
                                           : recurrent(times(reset, hidden), 2, 1);
    ImportedValue candidate = activate(1, plus(gate(brought, 2), before));
    hidden = plus(times(oneLess(update), candidate), times(update, hidden));
  }

  void lstm(const ImportedValue &brought) { // gates i, o, f, c; peepholes i, o, f
    ImportedValue all = plus(brought, recurrent(hidden, 0, 4));
    auto of = [&](int64_t index, const ImportedValue &seen) {
      ImportedValue own = gate(all, index);
      return index < 3 && weights.peepholes && seen
                 ? plus(own,
                        times(make.slice(weights.peepholes, 0, index * cell.hidden, cell.hidden),
                              seen))
                 : own;
    };
    ImportedValue input = activate(0, of(0, memory)),
                  forget = cell.inputForgets ? oneLess(input) : activate(0, of(2, memory));
    memory = plus(times(forget, memory), times(input, activate(1, of(3, {}))));
    hidden = times(activate(0, of(1, memory)), make(cell.activations[2].c_str(), {memory}));
  }
};

std::string activationCalled(llvm::StringRef name) {
  return llvm::StringSwitch<std::string>(name.lower())
      .Case("sigmoid", "Sigmoid")
      .Case("tanh", "Tanh")
      .Case("relu", "Relu")
      .Case("softsign", "Softsign")
      .Case("softplus", "Softplus")
      .Default("");
}

class Recurrence {
public:
  explicit Recurrence(OpContext &op)
      : op(op), make(op), x(op.operand(0)), inputs(op.operand(1)), recurrent(op.operand(2)),
        first(op.integer("layout") != 0), outer(first ? 1 : 0) {}

  LogicalResult apply() {
    if (failed(readShapes()) || failed(readActivations()))
      return failure();
    if (first)
      x = make.transpose(x, {1, 0, 2});
    outputs.resize(static_cast<size_t>(positions));
    for (int64_t d = 0; d < directions && !make.hasFailed(); ++d)
      unroll(d);
    return make.hasFailed() ? failure() : writeResults();
  }

private:
  OpContext &op;
  Decomposition make;
  ImportedValue x, inputs, recurrent;
  const bool first;    ///< the sample axis is the first
  const int64_t outer; ///< the axis of positions in x, and of directions in states
  Cell cell;
  std::string direction;
  int64_t directions = 1, positions = 0;
  size_t perDirection = 0; ///< activations per direction
  std::vector<std::string> activations;
  std::vector<std::vector<ImportedValue>> outputs; ///< indexed by position, then direction: samples
                                                   ///< x H
  std::vector<ImportedValue> lastHidden, lastMemory;

  LogicalResult readShapes() {
    if (!x.isArray() || x.rank() != 3 || inputs.rank() != 3 || recurrent.rank() != 3)
      return op.error("expects inputs and two weights of rank 3");
    cell.kind = op.node.op == "LSTM"  ? Cell::Kind::Lstm
                : op.node.op == "GRU" ? Cell::Kind::Gru
                                      : Cell::Kind::Rnn;
    cell.gates = cell.kind == Cell::Kind::Lstm ? 4 : cell.kind == Cell::Kind::Gru ? 3 : 1;
    cell.hidden = recurrent.view.size(2);
    cell.clip = op.real("clip");
    cell.inputForgets = cell.kind == Cell::Kind::Lstm && op.integer("input_forget") != 0;
    cell.resetsLast = cell.kind == Cell::Kind::Gru && op.integer("linear_before_reset") != 0;
    direction = op.text("direction");
    directions = direction == "bidirectional" ? 2 : 1;
    positions = x.view.size(outer);
    if (op.integer("hidden_size", cell.hidden) != cell.hidden ||
        inputs.view.size(0) != directions || recurrent.view.size(0) != directions ||
        inputs.view.size(1) != cell.gates * cell.hidden ||
        recurrent.view.size(1) != cell.gates * cell.hidden || inputs.view.size(2) != x.view.size(2))
      return op.error("expects weights for " + Twine(directions) +
                      (directions == 1 ? " direction, " : " directions, ") + Twine(cell.gates) +
                      " gates of hidden_size and inputs of " + Twine(x.view.size(2)));
    if (x.view.sampleAxis() == outer)
      return op.error("runs over the samples; every op must treat samples apart");
    if (positions < 1 || positions > kMaxPositions)
      return op.error("has " + Twine(positions) + " positions; 1 to " + Twine(kMaxPositions) +
                      " are unrolled");
    if (op.operand(4)) {
      auto lengths = constantInts(op.operand(4));
      if (!lengths || std::any_of(lengths->begin(), lengths->end(),
                                  [&](int64_t length) { return length != positions; }))
        return op.error("has lengths of sequences that are not all " + Twine(positions) +
                        ", the number of positions; this is not supported");
    }
    return success();
  }

  LogicalResult readActivations() {
    perDirection = cell.kind == Cell::Kind::Lstm ? 3 : cell.kind == Cell::Kind::Gru ? 2 : 1;
    std::vector<std::string> called = {"Sigmoid", "Tanh", "Tanh"};
    if (cell.kind == Cell::Kind::Rnn)
      called = {"Tanh"};
    called.resize(perDirection);
    if (const onnx::Attribute *given = op.attribute("activations"))
      for (const std::string &name : given->strings()) {
        activations.push_back(activationCalled(name));
        if (activations.back().empty())
          return op.error("has the activation '" + name +
                          "'; Sigmoid, Tanh, Relu, Softsign and Softplus are supported");
      }
    else
      for (int64_t d = 0; d < directions; ++d)
        activations.insert(activations.end(), called.begin(), called.end());
    if (activations.size() != perDirection * static_cast<size_t>(directions))
      return op.error("expects " + Twine(perDirection) + " activations for a direction, found " +
                      Twine(activations.size()) + " in all");
    return success();
  }

  ImportedValue own(const ImportedValue &all, int64_t d) {
    return make.squeeze(make.slice(all, 0, d, 1), 0);
  }

  /// The initial state. Absent if it is zero everywhere.
  ImportedValue initial(size_t index, int64_t d) {
    const ImportedValue given = op.operand(index);
    if (!given || uniformValue(op.state, given) == std::optional<double>(0))
      return ImportedValue();
    return make.squeeze(make.slice(given, outer, d, 1), outer);
  }

  /// The contribution of the inputs for all positions, and all biases that are added before the
  /// reset gate.
  ImportedValue broughtBy(Weights &weights, int64_t d) {
    ImportedValue brought = make("MatMul", {x, weights.inputs});
    if (op.operand(3)) {
      ImportedValue biases = own(op.operand(3), d);
      const int64_t all = cell.gates * cell.hidden;
      brought = make("Add", {brought, make.slice(biases, 0, 0, all)});
      // If a GRU applies the reset gate last, the gate also scales the second bias of the
      // candidate.
      if (cell.kind == Cell::Kind::Gru && cell.resetsLast) {
        weights.stateBias = make.slice(biases, 0, all + 2 * cell.hidden, cell.hidden);
        ImportedValue others = make.slice(biases, 0, all, 2 * cell.hidden),
                      nothing = make("Expand", {make.number(0, biases), make.ints({cell.hidden})});
        brought = make("Add", {brought, make("Concat", {others, nothing}, {{"axis", int64_t(0)}})});
      } else {
        brought = make("Add", {brought, make.slice(biases, 0, all, all)});
      }
    }
    return brought;
  }

  void unroll(int64_t d) {
    cell.activations.assign(activations.begin() + static_cast<long>(perDirection) * d,
                            activations.begin() + static_cast<long>(perDirection) * (d + 1));
    Weights weights;
    weights.inputs = make.transpose(own(inputs, d), {1, 0});
    weights.state = make.transpose(own(recurrent, d), {1, 0});
    const ImportedValue brought = broughtBy(weights, d);
    if (cell.kind == Cell::Kind::Lstm && op.operand(7))
      weights.peepholes = own(op.operand(7), d);
    RnnUnroller unrolled(make, cell, weights);
    unrolled.hidden = initial(5, d);
    if (cell.kind == Cell::Kind::Lstm)
      unrolled.memory = initial(6, d);
    const bool backwards = direction == "reverse" || d == 1;
    for (int64_t turn = 0; turn < positions && !make.hasFailed(); ++turn) {
      const int64_t t = backwards ? positions - 1 - turn : turn;
      unrolled.step(make.squeeze(make.slice(brought, 0, t, 1), 0));
      outputs[static_cast<size_t>(t)].push_back(unrolled.hidden);
    }
    lastHidden.push_back(unrolled.hidden);
    lastMemory.push_back(unrolled.memory);
  }

  /// Stacks the directions, after the sample axis or before it.
  FailureOr<ImportedValue> joined(std::vector<ImportedValue> parts) {
    return stacked(op, std::move(parts), outer);
  }

  LogicalResult writeResults() {
    auto wanted = [&](size_t index) {
      return index < op.node.outputs.size() && op.node.outputs[index] >= 0;
    };
    if (wanted(0)) {
      std::vector<ImportedValue> all;
      for (std::vector<ImportedValue> &position : outputs) {
        auto whole = joined(std::move(position));
        if (failed(whole))
          return failure();
        all.push_back(*whole);
      }
      auto whole = joined(std::move(all));
      if (failed(whole))
        return failure();
      op.set(0, *whole);
    }
    for (size_t index : {1, 2})
      if (wanted(index)) {
        auto whole = joined(index == 1 ? lastHidden : lastMemory);
        if (failed(whole))
          return failure();
        op.set(index, *whole);
      }
    return success();
  }
};

} // namespace

static LogicalResult importRecurrent(OpContext &op) { return Recurrence(op).apply(); }

void zorse::onnx_import::registerRecurrentOps(OperatorRegistry &registry) {
  const std::vector<AttributeInfo> common = {
      ignored(reals("activation_alpha")),
      ignored(reals("activation_beta")),
      texts("activations"),
      real("clip", 0),
      only(text("direction", "forward"), {"forward", "reverse", "bidirectional"}),
      integer("hidden_size"),
      integer("layout", 0)};
  registry.add({
      {{"RNN"}, 3, 6, with(common, {}), importRecurrent},
      {{"GRU"}, 3, 6, with(common, {integer("linear_before_reset", 0)}), importRecurrent},
      {{"LSTM"}, 3, 8, with(common, {integer("input_forget", 0)}), importRecurrent},
  });
}
