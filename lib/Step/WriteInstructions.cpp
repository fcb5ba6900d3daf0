// Instructions of ops: the operation of each device, and its regions. Calls of cells are added
// after memory is planned: see CellCalls.cpp.

#include "PlanLowering.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

/// One half of an op.
class Describer {
public:
  Describer(const PlanLowering &x, const ScheduledOp &op, uint32_t instructionIndex)
      : x(x), op(op), device(x.instructionQueues[instructionIndex] / kQueues) {
    instruction.id = device; // until placeInstructions
    instruction.queue = x.instructionQueues[instructionIndex] % kQueues;
    describe(instructionIndex);
    if (x.hostStaged.empty() && x.terms.empty())
      return;
    if (auto host = x.hostStaged.find(instructionIndex); host != x.hostStaged.end()) {
      instruction.region = host->second.first;
      instruction.to = host->second.second;
    }
    if (auto terms = x.terms.find(instructionIndex); terms != x.terms.end())
      instruction.parts = terms->second;
    if (auto sends = x.sends.find(instructionIndex); sends != x.sends.end())
      instruction.sends = sends->second;
  }

  Instruction instruction;

private:
  void describe(uint32_t instructionIndex) {
    switch (op.kind) {
    case OpKind::Join:
      return;
    case OpKind::Forward:
      return compute(bundle::Compute::F, bundle::FORWARD, op.subject);
    case OpKind::Backward:
      return compute(bundle::Compute::B, bundle::BACKWARD, op.subject);
    case OpKind::Weights:
      return compute(bundle::Compute::W, bundle::BACKWARD, op.subject);
    case OpKind::SumLoss:
      return compute(bundle::Compute::SUM_LOSS, bundle::FORWARD, op.subject);
    case OpKind::LoadInput:
      return loadInput(x.inputs[op.subject]);
    case OpKind::LoadScalars:
      set(InstructionKind::LoadScalars, bundle::LOAD);
      instruction.region = region(x.scalars[device], 0, kScalarsBlock);
      instruction.value = Value::scalars();
      return;
    case OpKind::ScaleLossGradient:
      return computeState(bundle::Compute::SCALE_LOSS_GRADIENT, bundle::BACKWARD, -1);
    case OpKind::Move:
      return move(x.moves[op.subject]);
    case OpKind::Copy:
      return copy(x.copies[op.subject]);
    case OpKind::Cast:
      return computeState(bundle::Compute::CAST_PARAMETERS, x.copies[op.subject].phase,
                          static_cast<int32_t>(x.copies[op.subject].value.id));
    case OpKind::Collective:
      return collective(x.parts[op.subject + instructionIndex - op.instructions.begin]);
    case OpKind::Norm:
      return computeState(bundle::Compute::NORM, bundle::GRAD_NORM,
                          static_cast<int32_t>(op.subject));
    case OpKind::ClipAndCheck:
      return computeState(bundle::Compute::CLIP_AND_CHECK, bundle::GRAD_NORM, -1);
    case OpKind::Update:
      return computeState(bundle::Compute::UPDATE_GROUP, bundle::UPDATE_STATE,
                          static_cast<int32_t>(x.updates[op.subject].group));
    case OpKind::ReadMetrics:
      set(InstructionKind::ReadMetrics, bundle::READ_METRICS);
      instruction.region = region(x.scalars[device], 0, kScalarsBlock);
      instruction.value = Value::scalars(op.subject);
      return;
    }
  }

  void set(InstructionKind kind, bundle::Phase phase) {
    instruction.kind = kind;
    instruction.phase = phase;
  }

  void compute(bundle::Compute::Task task, bundle::Phase phase, uint32_t cell) {
    set(InstructionKind::Compute, phase);
    instruction.task = task;
    instruction.cell = static_cast<int32_t>(cell);
  }

  void computeState(bundle::Compute::Task task, bundle::Phase phase, int32_t group) {
    set(InstructionKind::Compute, phase);
    instruction.task = task;
    instruction.group = group;
  }

  void loadInput(const InputRows &rows) {
    set(InstructionKind::LoadInput, bundle::LOAD);
    instruction.input = rows.input;
    instruction.sampleBase = rows.begin;
    instruction.rows = rows.end - rows.begin;
    instruction.region = region(
        rows.buffer, 0,
        static_cast<uint64_t>(instruction.rows) *
            static_cast<uint64_t>(x.summary.inputs(static_cast<int>(rows.input)).bytes_per_row()));
    instruction.value = Value::inputRows(rows.input, {rows.begin, rows.end});
  }

  void move(const Move &m) {
    const bool gradient = m.cut != kNone;
    const auto row = static_cast<uint64_t>(
                   x.summary.values(static_cast<int>(m.value)).bytes_per_row()),
               count = static_cast<uint64_t>(m.end - m.begin);
    const Region from =
        region(m.from, static_cast<uint64_t>(m.begin - m.fromBase) * row, count * row);
    const Region to = region(m.to, static_cast<uint64_t>(m.begin - m.toBase) * row, count * row);
    const bool local = op.work == Work::Fixed, sends = !local && device == op.from;
    set(local   ? InstructionKind::Copy
        : sends ? InstructionKind::Send
                : InstructionKind::Receive,
        gradient ? bundle::BACKWARD : bundle::FORWARD);
    const Samples samples{m.begin, m.end};
    instruction.value = gradient ? Value::activationGradient(m.value, m.cut, samples)
                                 : Value::activation(m.value, samples);
    instruction.region = local || sends ? from : to;
    if (local)
      instruction.to = to;
    else
      instruction.peer = sends ? op.to : op.from;
  }

  void copy(const CopyOp &made) {
    set(InstructionKind::Copy, made.phase);
    instruction.region = made.from;
    instruction.to = made.to;
    instruction.value = made.value;
  }

  void collective(const Part &part) {
    const Collective &of = x.graph.collectives[op.from];
    set(op.work == Work::Gather    ? InstructionKind::AllGather
        : op.work == Work::Scatter ? InstructionKind::ReduceScatter
                                   : InstructionKind::AllReduce,
        of.phase);
    instruction.collective = op.from;
    instruction.value = of.value;
    instruction.region = part.whole;
    instruction.to = part.shard;
    if (op.work == Work::Sum)
      instruction.toValue = Value::globalSum();
  }

  const PlanLowering &x;
  const ScheduledOp &op;
  const uint32_t device;
};

/// Adds calls that access only state. They belong to the instruction added last.
class StateCalls {
public:
  explicit StateCalls(PlanLowering &x) : x(x) {}

  void add(const ScheduledOp &op, uint32_t device) {
    switch (op.kind) {
    case OpKind::Cast:
      return cast(x.copies[op.subject]);
    case OpKind::ScaleLossGradient:
      return scaleLossGradient(device);
    case OpKind::Norm:
      return norm(op.subject, device);
    case OpKind::ClipAndCheck:
      return decide(device, op.subject != 0);
    case OpKind::Update:
      return update(x.updates[op.subject]);
    default:
      return;
    }
  }

private:
  uint64_t size(uint32_t g) const {
    return elementBytes(x.summary.groups(static_cast<int>(g)).type());
  }
  void addScalars(uint32_t device, bundle::AccessMode mode) {
    x.addArgument(bundle::SCALARS, 0, mode, region(x.scalars[device], 0, kScalarsBytes),
                  Value::scalars());
  }
  void addStep(uint32_t device, bundle::AccessMode mode) {
    x.addArgument(bundle::OPTIMIZER_STEP, 0, mode,
                  region(x.optimizerStep[device], 0, zorse::optimizerStepBytes(x.summary)),
                  Value::optimizerStep());
  }

  void cast(const CopyOp &made) {
    const Value &of = made.value;
    x.addCall(x.summary.cast_function(), -1, of.end - of.begin, 0);
    x.addArgument(bundle::STATE, 0, bundle::READ, made.from, of);
    x.addArgument(bundle::PARAMETER, 0, bundle::WRITE, made.to,
                  Value::parametersToRead(/*copied=*/true, of.id, {of.begin, of.end}));
  }

  void scaleLossGradient(uint32_t device) {
    x.addCall(x.summary.scale_loss_gradient_function(), -1, 1, 0);
    addScalars(device, bundle::UPDATE);
    addStep(device, bundle::READ);
  }

  void norm(uint32_t g, uint32_t device) {
    if (x.summary.groups(static_cast<int>(g)).running_stat()) // no gradients: nothing to add to
                                                              // their norm
      return;
    const GroupState &h = *x.findGroupState(device, g);
    for (const Compact::Run &owned : h.owned.runs())
      for (const PlanLowering::Run &run : x.runsOf(g, owned.begin, owned.end)) {
        const int64_t count = run.end - run.begin,
                      place = h.reducedPosition(owned) + run.begin - owned.begin;
        x.addCall(x.summary.norm_function(), -1, count, 0);
        x.addArgument(bundle::STATE, 1, bundle::READ,
                      elementRegion(h.reduced, place, count, size(g)),
                      Value::reducedGradients(g, {run.begin, run.end}));
        x.addArgument(bundle::LOCAL_METRICS, 0, bundle::ACCUMULATE,
                      region(x.scalars[device], kScalarsBytes, kSumsBytes), Value::sums());
      }
  }

  /// \param first  decides before sums exist: it reads bytes that the load of the scalars clears
  ///               and to which no instruction adds
  void decide(uint32_t device, bool first) {
    x.addCall(x.summary.clip_and_check_function(), -1, 1, 0);
    addScalars(device, bundle::UPDATE);
    x.addArgument(bundle::LOCAL_METRICS, 0, bundle::READ,
                  region(x.scalars[device], kScalarsBytes + (first ? kSumsBytes : 0), kSumsBytes),
                  Value::globalSum());
    addStep(device, bundle::UPDATE);
  }

  void update(const UpdateOp &made) {
    const uint32_t g = made.group;
    for (const PlanLowering::Run &run : x.runsOf(g, made.begin, made.end)) {
      const Elements elements{run.begin, run.end};
      auto at = [&](const UpdateOp::BufferRange &array) {
        return elementRegion(array.buffer, run.begin - array.base, run.end - run.begin, size(g));
      };
      const auto &rule = x.summary.update_rules(int(run.rule));
      x.addCall(rule.function(), -1, run.rows, 0);
      if (made.workspace != kNone)
        x.addArgument(bundle::WORKSPACE, 0, bundle::WRITE,
                      region(made.workspace, 0, x.buffers[made.workspace].bytes), Value());
      x.addArgument(bundle::SCALARS, 0, bundle::READ, region(made.scalars, 0, kScalarsBytes),
                    Value::scalars(1));
      x.addArgument(bundle::STATE, 0, bundle::UPDATE, at(made.arrays[0]),
                    Value::parameters(g, elements));
      x.addArgument(bundle::STATE, 1, bundle::READ, at(made.arrays[1]),
                    Value::reducedGradients(g, elements));
      for (uint32_t m = 0; m < static_cast<uint32_t>(rule.states_size()); ++m) {
        const zorse::StateLayout &layout = x.stateLayout(g, m);
        const Elements entries{layout.begin(run.begin), layout.end(run.end)};
        const UpdateOp::BufferRange &array = made.arrays[2 + m];
        x.addArgument(bundle::STATE, 2 + m, bundle::UPDATE,
                      elementRegion(array.buffer, entries.begin - array.base,
                                    entries.end - entries.begin, elementBytes(layout.type())),
                      Value::moments(g, m, entries));
      }
      x.addArgument(bundle::OPTIMIZER_STEP, 0, bundle::READ, region(made.step, 0, 8),
                    Value::optimizerStep().next());
    }
  }

  PlanLowering &x;
};

} // namespace

Instruction zorse::step::instructionOf(const PlanLowering &x, const ScheduledOp &op,
                                       uint32_t instructionIndex) {
  return Describer(x, op, instructionIndex).instruction;
}

void zorse::step::writeInstructions(PlanLowering &x) {
  x.graph.instructions.reserve(x.instructionQueues.size());
  StateCalls calls(x);
  for (const ScheduledOp &op : x.ops)
    for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h) {
      x.graph.instructions.push_back(instructionOf(x, op, h));
      Instruction &instruction = x.graph.instructions.back();
      instruction.calls.begin = instruction.calls.end = static_cast<uint32_t>(x.graph.calls.size());
      calls.add(op, instruction.id);
    }
}
