// Mutations of rows (which samples), values (which tensor, and whether it is overwritten or added
// to) and tasks (missing or repeated work).
#include "Change.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

bool isSent(const Instruction &e) { return isSend(e) || isCopy(e); }
bool accumulates(const Instruction &, const bundle::FunctionArgument &argument) {
  return argument.mode() == bundle::ACCUMULATE;
}

// ---- rows ----

bool otherSamples(Change &m) {
  auto &call = m.drawCall();
  const int64_t base = m.draw(m.original.plan.batch);
  if (base == call.sample_base())
    return false;
  call.set_sample_base(base);
  return true;
}

bool otherSamplesOfAllCalls(Change &m) {
  const int64_t base = m.draw(m.original.plan.batch);
  if (base == m.compute().calls(0).sample_base())
    return false;
  for (auto &call : *m.compute().mutable_calls())
    call.set_sample_base(base);
  return true;
}

bool otherRows(Change &m) {
  auto &call = m.drawCall();
  call.set_rows(call.rows() > 1 && m.coin() ? call.rows() - 1 : call.rows() + 1);
  return true;
}

/// Removes one row from all calls or from one, and from their arguments.
bool fewerRows(Change &m) {
  const bool all = m.coin();
  auto *calls = m.compute().mutable_calls();
  const int only = m.draw(calls->size());
  for (int c = 0; c < calls->size(); ++c) {
    if (!all && c != only)
      continue;
    auto &call = *calls->Mutable(c);
    const auto &function = m.original.model.functions.functions(int(call.function()));
    call.set_rows(call.rows() - 1);
    for (int s = 0; s < function.arguments_size(); ++s)
      if (uint64_t row = uint64_t(function.arguments(s).bytes().per_row())) {
        EditedArgument argument(m.program(), call, s);
        argument.mutable_region()->set_bytes(argument.region().bytes() - row);
        if (argument.value().end() > argument.value().begin())
          argument.mutable_value()->set_end(argument.value().end() - 1);
      }
  }
  return true;
}

/// Swaps only the cell numbers of two tasks.
bool swapCells(Change &m) {
  Instruction *other = m.other(taskIs(m.compute().task()));
  if (!other)
    return false;
  auto &x = m.compute(), &y = *other->mutable_compute();
  const int cell = x.cell();
  x.set_cell(y.cell());
  y.set_cell(cell);
  return true;
}

/// Swaps the samples of two tasks; their buffers stay.
bool swapSamples(Change &m) {
  auto &own = m.compute();
  Instruction *other = m.other([&](const Instruction &e) {
    return isTask(e, own.task()) && e.compute().calls(0).unit() == own.calls(0).unit() &&
           e.compute().calls(0).rows() == own.calls(0).rows() &&
           e.compute().calls_size() == own.calls_size();
  });
  if (!other)
    return false;
  for (int c = 0; c < own.calls_size(); ++c) {
    auto &x = *own.mutable_calls(c), &y = *other->mutable_compute()->mutable_calls(c);
    const int64_t base = x.sample_base();
    x.set_sample_base(y.sample_base());
    y.set_sample_base(base);
  }
  return true;
}

bool loadOtherSamples(Change &m) {
  auto &load = *m.instruction().mutable_load_input();
  const int64_t batch = m.original.plan.batch, base = m.draw(batch);
  if (base == load.sample_base() || base + load.rows() > batch)
    return false;
  load.set_sample_base(base);
  if (m.coin()) {
    load.mutable_value()->set_begin(base);
    load.mutable_value()->set_end(base + load.rows());
  }
  return true;
}

/// Both halves declare the same wrong rows.
bool sendOtherRows(Change &m) {
  const auto &value = valueOf(m.instruction());
  const int64_t by = m.coin() ? 1 : -1;
  if (value.begin() + by < 0 || value.end() + by > m.original.plan.batch)
    return false;
  m.halves([&](bundle::Program &, Instruction &e) {
    auto &v = valueOf(e);
    v.set_begin(v.begin() + by);
    v.set_end(v.end() + by);
  });
  return true;
}

// ---- values ----

bool loadOtherInput(Change &m) {
  auto &load = *m.instruction().mutable_load_input();
  load.set_input((load.input() + 1) % uint32_t(m.original.model.summary.inputs_size()));
  load.mutable_value()->set_id(load.input());
  return true;
}

/// Both halves declare the same wrong value.
bool sendOtherValue(Change &m) {
  const auto fresh = uint32_t(m.draw(m.original.model.summary.values_size()));
  if (fresh == valueOf(m.instruction()).id())
    return false;
  m.halves([&](bundle::Program &, Instruction &e) { valueOf(e).set_id(fresh); });
  return true;
}

bool sendsGradient(const Instruction &e) {
  auto gradient = [](const bundle::Value &v) {
    return v.kind() == bundle::Value::ACTIVATION_GRADIENT;
  };
  return (isSend(e) && gradient(e.send().value())) || (isCopy(e) && gradient(e.copy().value()));
}

bool sendOtherCut(Change &m) {
  const uint32_t by = m.coin() ? 1 : ~0u;
  m.halves([&](bundle::Program &, Instruction &e) { valueOf(e).set_cut(valueOf(e).cut() + by); });
  return true;
}

bool declareOtherKind(Change &m) {
  m.halves([&](bundle::Program &, Instruction &e) {
    auto &v = valueOf(e);
    v.set_kind(v.kind() == bundle::Value::ACTIVATION ? bundle::Value::ACTIVATION_GRADIENT
                                                     : bundle::Value::ACTIVATION);
  });
  return true;
}

bool changeOverwrite(Change &m) {
  m.binding().set_overwrite(!m.binding().overwrite());
  return true;
}

bool wrongFunction(Change &m) {
  auto &call = m.drawCall();
  const auto &functions = m.original.model.functions;
  std::vector<uint32_t> fitting;
  for (int b = 0; b < functions.functions_size(); ++b)
    if (uint32_t(b) != call.function() && functions.functions(b).arguments_size() ==
                                              bundle::ArgumentBindings(m.program(), call).size())
      fitting.push_back(uint32_t(b));
  if (fitting.empty())
    return false;
  call.set_function(fitting[m.draw(fitting.size())]);
  return true;
}

bool wrongUnit(Change &m) {
  auto &call = m.drawCall();
  call.set_unit((call.unit() + 1) % m.original.model.summary.units_size());
  return true;
}

bool wrongInstances(Change &m) {
  auto &call = m.drawCall();
  call.set_rng_id_base(call.rng_id_base() + 1 + m.draw(3));
  return true;
}

// ---- tasks ----

/// Makes `instruction` wait for the last instruction of every other queue.
void waitForAll(const bundle::Program &program, Instruction &instruction) {
  for (int q = 0; q < program.queues_size(); ++q) {
    uint32_t length = 0;
    for (const auto &other : program.instructions())
      length += other.queue() == uint32_t(q);
    if (length && uint32_t(q) != instruction.queue()) {
      auto *wait = instruction.add_waits();
      wait->set_queue(uint32_t(q));
      wait->set_position(length - 1);
    }
  }
}

/// Adds a second report, or moves the report.
bool reportElsewhere(Change &m) {
  Place load = pickInstruction(m.programs, m.random, loadsScalars),
        report = pickInstruction(m.programs, m.random, isReport);
  if (!load || !report || load.program == report.program)
    return false;
  auto &program = m.programs[size_t(load.program)];
  Instruction copy = instructionAt(m.programs, report);
  uint32_t last = 0;
  for (const auto &other : m.programs)
    for (const auto &instruction : other.instructions())
      last = std::max(last, instruction.id());
  copy.set_id(last + 1);
  copy.set_queue(instructionAt(m.programs, load).queue());
  copy.clear_waits();
  *copy.mutable_read_metrics()->mutable_region() =
      instructionAt(m.programs, load).load_scalars().region();
  waitForAll(program, copy);
  m.what = "device " + std::to_string(program.device());
  *program.add_instructions() = copy;
  if (m.coin())
    eraseInstruction(m.programs[size_t(report.program)], report.instruction);
  return true;
}

bool doubleCall(Change &m) {
  const bundle::Call &copy = m.drawCall();
  *m.compute().add_calls() = copy;
  return true;
}

/// Moves the instruction to another device, but not its buffers.
bool computeElsewhere(Change &m) {
  if (m.programs.size() < 2)
    return false;
  const size_t chosen = m.draw(m.programs.size());
  auto &target = m.programs[chosen];
  if (int(chosen) == m.place.program || target.queues_size() == 0)
    return false;
  const Instruction copy = rebound(target, m.instruction(), m.program());
  m.what += " to " + std::to_string(target.device());
  eraseInstruction(m.program(), m.place.instruction);
  insertById(target, copy);
  return true;
}

} // namespace

void test::addValueMutations(MutationList &list) {
  addRows(
      list, "rows",
      {
          {"wrong samples in one call", isUnitTask, otherSamples},
          {"wrong micro-batch", isUnitTask, otherSamplesOfAllCalls},
          {"a row more or less over the same buffers", isUnitTask, otherRows},
          {"a row less, buffers and values with it",
           [](const Instruction &e) { return isUnitTask(e) && e.compute().calls(0).rows() > 1; },
           fewerRows},
          {"tasks of two cells exchanged", isUnitTask, swapCells},
          {"micro-batches of two tasks exchanged", isUnitTask, swapSamples},
          {"wrong samples loaded", loadsInput, loadOtherSamples},
          {"other rows sent or copied", isSent, sendOtherRows},
      });
  addRows(list, "values",
          {
              {"wrong input loaded", loadsInput, loadOtherInput},
              {"another value sent or copied", isSent, sendOtherValue},
              {"gradient of other units sent or copied", sendsGradient, sendOtherCut},
              {"another kind declared", isSent, declareOtherKind},
              swapArguments("saved blocks of two tasks exchanged", ofKinds({bundle::SAVED})),
              swapArguments("activations of two tasks exchanged",
                            ofKinds({bundle::BOUNDARY_IN, bundle::BOUNDARY_OUT, bundle::INPUT,
                                     bundle::LOSS})),
              swapArguments("gradients of two tasks exchanged",
                            ofKinds({bundle::BOUNDARY_IN_GRADIENT, bundle::BOUNDARY_OUT_GRADIENT,
                                     bundle::PARAMETER_GRADIENT})),
              swapArguments("parameters of two tasks exchanged", ofKinds({bundle::PARAMETER})),
              {"overwrite and accumulate exchanged", argumentWhere(accumulates), changeOverwrite},
              {"contribution elsewhere",
               argumentOf({bundle::PARAMETER_GRADIENT, bundle::BOUNDARY_IN_GRADIENT,
                           bundle::LOCAL_METRICS}),
               freshRegion},
              {"wrong function", isCompute, wrongFunction},
              {"wrong unit", isUnitTask, wrongUnit},
              {"wrong random instances", isUnitTask, wrongInstances},
          });
  auto isCommit = [](const Instruction &e) { return addsToSums(e) || isDecision(e); };
  addRows(list, "tasks",
          {
              {"forward dropped", taskIs(Compute::F), dropInstruction},
              {"backward dropped", isB, dropInstruction},
              {"norm, decision or loss sum dropped", isCommit, dropInstruction},
              {"report dropped", isReport, dropInstruction},
              {"forward doubled", taskIs(Compute::F), doubleInstruction},
              {"backward doubled", isB, doubleInstruction},
              {"norm, decision or loss sum doubled", isCommit, doubleInstruction},
              {"report doubled", isReport, doubleInstruction},
              {"load doubled", isLoad, doubleInstruction},
              {"report on another device", nullptr, reportElsewhere},
              {"call dropped", hasCalls, dropCall},
              {"call doubled", isCompute, doubleCall},
              {"task on another device", isUnitTask, computeElsewhere},
          });
}
