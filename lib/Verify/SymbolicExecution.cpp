#include "SymbolicExecution.h"

using namespace zorse;
using namespace zorse::verify;

/// Returns the content of an argument that a function with exchanges writes, between two of its
/// segments: nothing else may change it.
static Logical unfinished(const bundle::Call &call, int argument) {
  Logical value;
  value.kind = bundle::Value::EXCHANGED;
  value.id = uint32_t(call.unit());
  value.cut = 1u << 29 | call.function() << 8 | uint32_t(argument);
  value.begin = call.sample_base();
  value.end = call.sample_base() + call.rows();
  return value;
}

void SymbolicExecution::continueSegment(const bundle::Call &call, const uint32_t *numbers) {
  const auto &function = model.functions.functions(int(call.function()));
  for (int s = 0; s < function.arguments_size(); ++s) {
    const auto &argument = function.arguments(s);
    if (numbers[s] == AddressIntervals::kAbsent)
      continue;
    const bool first = model.isFirst(call.function(), call.segment(), s);
    if (argument.mode() == bundle::WRITE && !first)
      require(addresses[numbers[s]], unfinished(call, s));
  }
}

void SymbolicExecution::readArguments(const bundle::Call &call, const Logical *values,
                                      const uint32_t *numbers) {
  const auto &function = model.functions.functions(int(call.function()));
  for (int s = 0; s < function.arguments_size(); ++s) {
    const auto &argument = function.arguments(s);
    if (argument.kind() == bundle::WORKSPACE || numbers[s] == AddressIntervals::kAbsent ||
        (argument.mode() != bundle::READ && argument.mode() != bundle::UPDATE))
      continue;
    const IntervalRange range = addresses[numbers[s]];
    if (argument.kind() == bundle::EXCHANGE) {
      if (values[s].version)
        require(range, values[s]);
    } else if (argument.kind() == bundle::SCALARS)
      requireScalars(range,
                     call.unit() < 0 && argument.mode() == bundle::READ &&
                         model.isUpdate(call.function()),
                     seedsFor(call));
    else if (argument.kind() == bundle::LOCAL_METRICS) {
      if (argument.mode() == bundle::READ)
        model.plan.commitsByGroup
            ? requireNoSums(range)
            : requireSums(range, /*global=*/true, /*norm=*/true, /*loss=*/true);
    } else
      forArgumentRuns(
          call, argument, range, values[s],
          [&](const IntervalRange &run, const Logical &value) { requireArgument(run, value); });
  }
}

void SymbolicExecution::findSums(const bundle::Call &call, const Logical *values,
                                 std::vector<Contribution> &norm, std::vector<Contribution> &loss) {
  const auto &function = model.functions.functions(int(call.function()));
  for (int s = 0; s < function.arguments_size() && call.unit() < 0; ++s) {
    if (function.arguments(s).kind() == bundle::LOSS)
      loss.push_back({values[s].id, values[s].cut, values[s].begin, values[s].end});
    if (function.arguments(s).kind() == bundle::STATE && function.arguments(s).index() == 1) {
      int64_t real = 0;
      model.forPieces(values[s].id, values[s].begin, values[s].end,
                      [&](int64_t begin, int64_t end, uint32_t) {
                        norm.push_back({values[s].id, 0, begin, end});
                        real += end - begin;
                      });
      if (call.function() == model.summary.norm_function() &&
          real != values[s].end - values[s].begin)
        fail(Code::Norm, "takes the norm of padding, elements " + std::to_string(values[s].begin) +
                             "-" + std::to_string(values[s].end) + " of group '" +
                             model.summary.groups(int(values[s].id)).name() +
                             "': padding holds anything");
    }
  }
}

void SymbolicExecution::checkOpenSum(const bundle::Call &call, int argument, bool overwrites) {
  const std::tuple key(call.unit(), int64_t(call.sample_base()), argument);
  if (model.isFirst(call.function(), call.segment(), argument))
    openSums[key] = overwrites;
  else if (openSums[key] != overwrites)
    fail(Code::WrongValue,
         "adds to argument '" +
             model.functions.functions(int(call.function())).arguments(argument).name() +
             "' in one segment, and overwrites it in another");
}

void SymbolicExecution::call(const bundle::Call &call) {
  const auto &function = model.functions.functions(int(call.function()));
  const Logical *values = arguments.data() + nextArgument;
  const uint32_t *numbers = bound.data() + nextArgument;
  const bundle::ArgumentBindings bindings(program, call);
  nextArgument += size_t(bindings.size());

  const bool segmented = model.hasSegments(call.function());
  if (segmented)
    continueSegment(call, numbers);
  readArguments(call, values, numbers); // arguments of one call do not overlap if one is written
  std::vector<Contribution> norm, loss;
  findSums(call, values, norm, loss);
  for (int s = 0; s < bindings.size(); ++s) {
    const auto &argument = function.arguments(s);
    if (numbers[s] == AddressIntervals::kAbsent ||
        (argument.mode() == bundle::READ && argument.kind() != bundle::WORKSPACE))
      continue;
    const IntervalRange range = addresses[numbers[s]];
    bool overwrite = bindings[s].overwrite || argument.mode() == bundle::WRITE;
    if (argument.kind() == bundle::EXCHANGE) {
      if (!values[s].version)
        write(range, values[s]);
    } else if (segmented && argument.mode() == bundle::WRITE &&
               !model.isLast(call.function(), call.segment(), s)) {
      write(range, unfinished(call, s));
    } else if (segmented && argument.mode() == bundle::ACCUMULATE &&
               !model.isLast(call.function(), call.segment(), s)) {
      // The contribution counts from the last segment on. Until then the sum is not complete.
      checkOpenSum(call, s, overwrite);
      if (overwrite)
        write(range, unfinished(call, s));
    } else if (argument.kind() == bundle::WORKSPACE) {
      scratch(range);
    } else if (argument.kind() == bundle::LOCAL_METRICS) {
      bool isNorm = call.function() == model.summary.norm_function();
      Content sums;
      sums.kind = bundle::Value::LOCAL_METRICS;
      sums.delta = -range.begin;
      sums.writer = current;
      for (const Contribution &contribution : isNorm ? norm : loss) {
        accumulateBytes(isNorm ? part(range, 0, Block::normBytes)
                               : part(range, Block::normBytes, Block::sumsBytes),
                        sums, contribution, overwrite, nullptr);
        overwrite = false;
      }
    } else if (argument.kind() == bundle::SCALARS) { // decision or seeds
      Logical decided;
      decided.kind = bundle::Value::STEP_SCALARS;
      Content content = contentOf(decided, range.begin);
      const bool scales = model.isScaling(call.unit(), call.function());
      content.id = scales ? 2 : 1;
      writeBytes(scales ? part(range, Block::seedsBegin, Block::scalarsEnd)
                        : part(range, Block::decidedBegin, Block::decidedEnd),
                 content);
    } else if (argument.kind() == bundle::PARAMETER_GRADIENT ||
               argument.kind() == bundle::BOUNDARY_IN_GRADIENT) {
      bool parameter = argument.kind() == bundle::PARAMETER_GRADIENT;
      if (segmented && !model.isFirst(call.function(), call.segment(), s)) {
        checkOpenSum(call, s, overwrite);
        if (overwrite)
          require(range, unfinished(call, s));
      }
      Contribution contribution{uint32_t(call.unit()), 0, parameter ? call.sample_base() : 0,
                                parameter ? call.sample_base() + call.rows() : 0};
      forArgumentRuns(
          call, argument, range, values[s], [&](const IntervalRange &run, const Logical &value) {
            accumulateBytes(run, contentOf(value, run.begin), contribution, overwrite, &argument);
          });
    } else if (argument.mode() == bundle::UPDATE) {
      Logical next = values[s];
      if (argument.kind() == bundle::STATE || argument.kind() == bundle::OPTIMIZER_STEP) {
        ++next.version;
        write(range, next);
      } else {
        scratch(range); // consumed
      }
    } else {
      write(range, values[s]);
    }
  }
}

SymbolicExecution::LossGradientScaling SymbolicExecution::seedsFor(const bundle::Call &call) const {
  if (!model.scales() || model.isScaling(call.unit(), call.function()))
    return LossGradientScaling::Loaded;
  const bundle::UnitInfo *unit = call.unit() >= 0 ? &model.unitOf(program.device(), call.unit())
                                                  : nullptr;
  const bool begins =
      unit && unit->loss_terms_size() &&
      call.function() != model.functionOf(*unit, bundle::UnitFunction::FORWARD) &&
      !(extentBytes(model.classOf(*unit).saved_bytes(), 1) > 0 &&
        call.function() == model.functionOf(*unit, bundle::UnitFunction::RECOMPUTE));
  return begins ? LossGradientScaling::Scaled : LossGradientScaling::Either;
}

void SymbolicExecution::transfer() {
  const bundle::Instruction &e = instruction();
  const Logical &value = transfers[nextTransfer++];
  switch (e.what_case()) {
  case bundle::Instruction::kCopy: {
    copy(rangeOf(e.copy().from()), rangeOf(e.copy().to()), value);
    return;
  }
  case bundle::Instruction::kSend:
    require(rangeOf(e.send().region()), value);
    return;
  case bundle::Instruction::kReceive:
    write(rangeOf(e.receive().region()), value);
    return;
  case bundle::Instruction::kLoadInput:
    write(rangeOf(e.load_input().region()), value);
    return;
  case bundle::Instruction::kLoadScalars:
    writeScalars(rangeOf(e.load_scalars().region()));
    return;
  case bundle::Instruction::kAllGather: {
    const bundle::Collective gather = *bundle::collectiveOf(e);
    const Held held = heldBy(program.device(), gather);
    const bool exchanged = value.kind == bundle::Value::EXCHANGED;
    forRuns(held.shards, gather, gather.shard, exchanged ? terms[current] : value,
            [&](const IntervalRange &range, const Logical &shard) { require(range, shard); });
    forRuns(held.whole, gather, gather.full, value,
            [&](const IntervalRange &range, const Logical &run) { write(range, run); });
    return;
  }
  case bundle::Instruction::kReduceScatter: {
    const bundle::Collective reduction = *bundle::collectiveOf(e);
    const Held held = heldBy(program.device(), reduction);
    forRuns(held.whole, reduction, reduction.full, terms[current],
            [&](const IntervalRange &range, const Logical &term) { require(range, term); });
    forRuns(held.shards, reduction, reduction.shard, value,
            [&](const IntervalRange &range, const Logical &sum) { write(range, sum); });
    for (const bundle::Region *buffer :
         {&e.reduce_scatter().receive_buffer(), &e.reduce_scatter().send_buffer()})
      if (buffer->bytes())
        scratch(rangeOf(*buffer));
    return;
  }
  case bundle::Instruction::kAllReduce: {
    const IntervalRange range = rangeOf(e.all_reduce().region());
    if (!requireSums(range, /*global=*/false, true, true))
      return;
    Content sums;
    sums.kind = bundle::Value::GLOBAL_METRICS;
    sums.delta = -range.begin;
    sums.writer = current;
    writeBytes(range, sums);
    if (e.all_reduce().receive_buffer().bytes())
      scratch(rangeOf(e.all_reduce().receive_buffer()));
    return;
  }
  case bundle::Instruction::kReadMetrics: {
    const IntervalRange block = rangeOf(e.read_metrics().region());
    if (requireScalars(block, /*decided=*/model.decides() && !evaluating,
                       model.scales() ? LossGradientScaling::Either
                                      : LossGradientScaling::Loaded) &&
        requireSums(part(block, Block::scalarsEnd, Block::sumsEnd), /*global=*/true, /*norm=*/true,
                    /*loss=*/true))
      (evaluating ? device.getResult().reportsEvaluation : device.getResult().reportsTraining) =
          true;
    return;
  }
  default:
    return;
  }
}

/// Copies a value. Copies of accumulators must be complete; they are accumulators themselves.
void SymbolicExecution::copy(const IntervalRange &from, const IntervalRange &to,
                             const Logical &value) {
  if (value.kind == bundle::Value::STEP_SCALARS)
    return copyScalars(from, to);
  if (value.kind == bundle::Value::LOCAL_METRICS
          ? !requireSums(from, /*global=*/false, /*norm=*/true, /*loss=*/true)
          : !require(from, value))
    return;
  auto list = [&](const IntervalRange &range) {
    uint32_t found = 0;
    memory.forEach(range.intervals,
                   [&](Intervals, const Content &content) { found = content.list; });
    return found;
  };
  if (value.kind == bundle::Value::GRADIENTS) {
    model.forPieces(value.id, value.begin, value.end, [&](int64_t begin, int64_t end, uint32_t) {
      const int64_t first = (begin - value.begin) * value.stride,
                    last = (end - value.begin) * value.stride;
      Content content = contentOf(value, to.begin);
      content.list = list(part(from, first, last));
      writeBytes(part(to, first, last), content);
    });
  } else if (value.kind == bundle::Value::LOCAL_METRICS) {
    for (auto [first, last] :
         {std::pair(int64_t(0), Block::normBytes), std::pair(Block::normBytes, Block::sumsBytes)}) {
      Content content = contentOf(value, to.begin);
      content.list = list(part(from, first, last));
      writeBytes(part(to, first, last), content);
    }
  } else {
    write(to, value);
  }
}

/// Copies the scalars with the decision. Their parts keep their contents.
void SymbolicExecution::copyScalars(const IntervalRange &from, const IntervalRange &to) {
  if (!requireScalars(from, /*decided=*/true,
                      model.scales() ? LossGradientScaling::Either : LossGradientScaling::Loaded))
    return;
  Logical value;
  value.kind = bundle::Value::STEP_SCALARS;
  value.id = 2;
  const bool scaled = holds(lastScalars[2].intervals, contentOf(value, from.begin));
  auto leave = [&](int64_t begin, int64_t end, uint32_t id) {
    value.id = id;
    writeBytes(part(to, begin, end), contentOf(value, to.begin));
  };
  leave(0, Block::decidedBegin, 0);
  leave(Block::decidedBegin, Block::decidedEnd, 1);
  leave(Block::seedsBegin, Block::scalarsEnd, scaled ? 2 : 0);
}

/// Computes the logical values of all arguments and transfers, once for all steps. Returns false
/// after any finding; sizes are then unreliable.
bool SymbolicExecution::prepare() {
  bool good = true;
  UnitArguments units(model);
  arguments.reserve(bound.size());
  transfers.reserve(size_t(program.instructions_size()));
  for (current = 0; current < program.instructions_size() && !device.full(); ++current) {
    if (instruction().has_compute())
      for (const bundle::Call &call : instruction().compute().calls())
        good = fromCall(device, units, instruction(), call, arguments) && good;
    else
      good = declareTransfer() && good;
    good = checkMoved() && good;
  }
  return good;
}

bool SymbolicExecution::declare(const bundle::Value &value, uint64_t bytes) {
  Logical logical;
  const bool good = fromDeclared(device, instruction(), value, bytes, logical);
  transfers.push_back(logical);
  return good;
}

bool SymbolicExecution::declareTransfer() {
  const bundle::Instruction &e = instruction();
  switch (e.what_case()) {
  case bundle::Instruction::kCopy:
    return declare(e.copy().value(), e.copy().from().bytes());
  case bundle::Instruction::kSend:
    return declare(e.send().value(), e.send().region().bytes());
  case bundle::Instruction::kReceive:
    return declare(e.receive().value(), e.receive().region().bytes());
  case bundle::Instruction::kLoadInput: {
    const auto &load = e.load_input();
    const bool good = declare(load.value(), load.region().bytes());
    if (load.value().kind() != bundle::Value::INPUT_ROWS || load.value().id() != load.input() ||
        load.value().begin() != load.sample_base() || load.rows() < 0 || load.rows() > kMaxSize ||
        load.sample_base() > kMaxSize || load.value().end() != load.sample_base() + load.rows())
      return fail(Code::Declared, "loads samples " + std::to_string(load.sample_base()) + " + " +
                                      std::to_string(load.rows()) + " of input " +
                                      std::to_string(load.input()));
    return good;
  }
  case bundle::Instruction::kLoadScalars: {
    const bool good = declare(e.load_scalars().value(), e.load_scalars().region().bytes());
    if (transfers.back().kind != bundle::Value::STEP_SCALARS || transfers.back().id ||
        transfers.back().bytes != Block::bytes)
      return fail(Code::Declared,
                  "expects the step scalars, " + std::to_string(Block::bytes) + " bytes");
    return good;
  }
  case bundle::Instruction::kAllGather:
  case bundle::Instruction::kReduceScatter:
    return declareCollective(*bundle::collectiveOf(e));
  case bundle::Instruction::kAllReduce: {
    const auto &reduce = e.all_reduce();
    const bool good = declare(reduce.from(), reduce.region().bytes());
    if (reduce.from().kind() != bundle::Value::LOCAL_METRICS ||
        reduce.to().kind() != bundle::Value::GLOBAL_METRICS || reduce.type() != bundle::F64)
      return fail(Code::Declared, "expects this device's sums to become those of all, in f64");
    return good;
  }
  case bundle::Instruction::kReadMetrics: { // the host copies the whole block
    bool good = declare(e.read_metrics().value(), e.read_metrics().region().bytes());
    if (transfers.back().kind != bundle::Value::STEP_SCALARS ||
        transfers.back().bytes != Block::bytes)
      good = fail(Code::Report, "expects the whole block of scalars and sums, " +
                                    std::to_string(Block::bytes) + " bytes");
    device.getResult().reports.push_back(int64_t(e.id()));
    return good;
  }
  default:
    return true;
  }
}

/// Declares the values of a collective. Its runs and shards specify the elements of the whole that
/// each device has.
bool SymbolicExecution::declareCollective(const bundle::Collective &collective) {
  const bundle::Region &full = collective.full, &region = collective.shard;
  Logical whole, term;
  bool good = fromCollective(device, instruction(), collective, whole, term);
  transfers.push_back(whole);
  if (!good)
    return false;
  if (!collective.gathers || whole.kind == bundle::Value::EXCHANGED)
    terms[current] = term;
  const int64_t element = elementSize(collective.type);
  const Held held = heldBy(program.device(), collective);
  if (const int64_t bytes = held.whole.elements() * element; int64_t(full.bytes()) != bytes)
    good = fail(Code::Size, "its whole has " + std::to_string(full.bytes()) + " bytes, expects " +
                                std::to_string(bytes));
  if (const int64_t bytes = held.shards.elements() * element; int64_t(region.bytes()) != bytes)
    return fail(Code::Size, "its shard has " + std::to_string(region.bytes()) + " bytes, expects " +
                                std::to_string(bytes));
  if (held.inside || !region.bytes() || !full.bytes())
    return good;
  if (region.arena() == full.arena() && region.offset() < full.offset() + full.bytes() &&
      full.offset() < region.offset() + region.bytes())
    return fail(Code::Alias, "its shard lies inside the whole, but not at its place");
  if (collective.gathers && collective.parts.members().empty() &&
      !held.shards.inside(held.whole).empty())
    return fail(Code::Alias, "an owner that reads must hold its shard inside the whole");
  return good;
}

/// Checks that only finished values are transferred. Sums and unreduced gradients stay on their
/// device, but may be copied to its host and back.
bool SymbolicExecution::checkMoved() {
  const bundle::Instruction &e = instruction();
  if ((e.has_send() || e.has_receive()) && transfers.back().stays)
    return fail(Code::Unsupported, "such a value is not moved by transfers");
  if (e.has_copy() && transfers.back().kind == bundle::Value::STEP_SCALARS &&
      (transfers.back().id != 1 || transfers.back().bytes != Block::scalarsEnd))
    return fail(Code::Declared, "expects the scalars with the decision, " +
                                    std::to_string(Block::scalarsEnd) + " bytes");
  return true;
}

void SymbolicExecution::checkState(uint32_t version) {
  current = -1;
  for (const auto &state : program.state()) {
    Logical value;
    const auto &declared = state.value();
    value.kind = declared.kind();
    value.id = declared.id();
    value.cut = declared.cut();
    value.begin = declared.begin();
    value.end = declared.end();
    value.version = version;
    value.stride = value.kind == bundle::Value::OPTIMIZER_STEP
                       ? 0
                       : elementSize(model.typeOf(value.kind, value.id, value.cut));
    size_t before = device.getResult().findings.size();
    require(rangeOf(state.region()), value);
    for (size_t f = before; f < device.getResult().findings.size(); ++f)
      device.getResult().findings[f].code = Code::Update;
  }
}

/// Resets the arenas to their contents before the first step: state only.
void SymbolicExecution::load() {
  current = -1;
  Content nothing;
  nothing.writer = Content::kNobody;
  memory = IntervalMap<Content>(addresses.count(), nothing);
  for (const auto &state : program.state()) {
    Logical value;
    const auto &declared = state.value();
    value.kind = declared.kind();
    value.id = declared.id();
    value.cut = declared.cut();
    value.begin = declared.begin();
    value.end = declared.end();
    value.stride = value.kind == bundle::Value::OPTIMIZER_STEP
                       ? 0
                       : elementSize(model.typeOf(value.kind, value.id, value.cut));
    write(rangeOf(state.region()), value);
  }
}

// One training step and one evaluation, each from loaded state, prove any number of them in any
// order: everything that is read is either state at its place or was written earlier in the same
// step. After a step, state is again at its place, one update later or unchanged. The next step
// therefore starts from the same contents.
void SymbolicExecution::run() {
  if (!prepare())
    return;
  for (bool evaluation : {false, true}) {
    evaluating = evaluation;
    load();
    nextArgument = nextTransfer = 0;
    for (current = 0; current < program.instructions_size() && !device.full(); ++current) {
      const bundle::Instruction &e = instruction();
      bool runs = !evaluating || e.phase() == bundle::LOAD || e.phase() == bundle::GATHER ||
                  e.phase() == bundle::FORWARD || e.phase() == bundle::READ_METRICS;
      if (!e.has_compute()) {
        runs ? transfer() : (void)++nextTransfer;
      } else {
        for (const bundle::Call &c : e.compute().calls())
          runs ? call(c)
               : (void)(nextArgument += size_t(bundle::ArgumentBindings(program, c).size()));
      }
    }
    if (device.full())
      return;
    checkState(evaluating ? 0 : 1);
    if (!device.getResult().findings.empty())
      return;
  }
}

void verify::replayValues(Device &device) { SymbolicExecution(device).run(); }
