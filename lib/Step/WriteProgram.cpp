// Converts one device's arrays of the step graph to a bundle::Program. Calls list every argument
// that a function could have; only the arguments of the function are bound.
#include "zorse/Step/WriteProgram.h"

#include "ArgumentBindings.h"

#include <algorithm>
#include <cassert>

using namespace zorse;
using namespace zorse::step;

namespace {

/// Writes through `field` (a mutable_x call) only if the region is not empty.
template <typename Field> void write(const Region &region, Field field) {
  if (!region.arena && !region.offset && !region.bytes)
    return;
  bundle::Region *out = field();
  out->set_arena(region.arena);
  out->set_offset(region.offset);
  out->set_bytes(region.bytes);
}

template <typename Field> void write(const Value &value, Field field) {
  if (value.kind == bundle::Value::NONE)
    return;
  bundle::Value *out = field();
  out->set_kind(value.kind);
  out->set_id(value.id);
  out->set_cut(value.cut);
  out->set_begin(value.begin);
  out->set_end(value.end);
  const bool exchanged = value.kind == bundle::Value::EXCHANGED;
  out->set_version(exchanged ? value.exchangeVersion() : value.version);
  out->set_block(exchanged ? value.exchangeBlock() : 0);
}

template <typename Message> Message *place(Message *out, const Value &value, const Region &region) {
  write(value, [&] { return out->mutable_value(); });
  write(region, [&] { return out->mutable_region(); });
  return out;
}

void write(const std::vector<Shard> &shards, bundle::ShardRanges *out) {
  for (const Shard &shard : shards) {
    out->add_members(shard.device);
    out->add_begin(shard.begin);
    out->add_end(shard.end);
  }
}

struct Writer {
  const StepGraph &graph;
  const bundle::FunctionLibrary &functions;
  bundle::ArgumentBinder binder;
  std::vector<bool> exchanges; ///< by function

  Writer(const StepGraph &graph, const bundle::FunctionLibrary &functions, bundle::Program &out)
      : graph(graph), functions(functions), binder(out) {
    for (const bundle::CompiledFunction &function : functions.functions())
      exchanges.push_back(
          std::any_of(function.launches().begin(), function.launches().end(),
                      [](const bundle::Launch &launch) { return launch.has_exchange(); }));
  }

  Status call(const Call &call, bundle::Call *out) {
    if (call.function == UINT32_MAX)
      return userError(
          "the plan calls a function of unit " + std::to_string(call.unit) +
          " that was not compiled (activation recomputation, or a part of a split "
          "backward): compile the model with --compile-all-functions, or choose a plan "
          "without it");
    if (call.function >= static_cast<uint32_t>(functions.functions_size()))
      return userError("the step calls function " + std::to_string(call.function) + " of unit " +
                       std::to_string(call.unit) + ", and there are " +
                       std::to_string(functions.functions_size()));
    out->set_function(call.function);
    out->set_unit(call.unit);
    out->set_rows(call.rows);
    out->set_sample_base(call.sampleBase);
    out->set_rng_id_base(call.rngIdBase);
    out->set_segment(call.segment);
    const bundle::CompiledFunction &function = functions.functions(int(call.function));
    for (const bundle::FunctionArgument &wanted : function.arguments()) {
      const FunctionArgument *found = nullptr;
      for (uint32_t i = call.arguments.begin; i < call.arguments.end && !found; ++i)
        if (graph.arguments[i].kind == wanted.kind() && graph.arguments[i].index == wanted.index())
          found = &graph.arguments[i];
      using Binder = bundle::ArgumentBinder;
      if (!found && exchanges[call.function]) { // the launches of this segment do not access it
        binder.bind(*out, Binder::RegionRow{}, Binder::ValueRow{});
        continue;
      }
      if (!found)
        return userError(
            "function '" + function.name() + "' has an argument " +
            bundle::ArgumentKind_Name(wanted.kind()) + ' ' + std::to_string(wanted.index()) +
            " for which the step has no buffer (unit " + std::to_string(call.unit) + ')');
      const Region &region = found->region;
      const Value &value = found->value;
      binder.bind(*out, Binder::RegionRow{region.arena, region.offset, region.bytes},
                  Binder::ValueRow{uint64_t(value.kind), value.id, value.cut, uint64_t(value.begin),
                                   uint64_t(value.end), value.version},
                  found->overwrite);
    }
    return Status::success();
  }

  Status compute(const Instruction &e, bundle::Compute *out) {
    out->set_task(e.task);
    out->set_cell(e.cell);
    out->set_group(e.group);
    for (uint32_t i = e.calls.begin; i < e.calls.end; ++i)
      if (Status status = call(graph.calls[i], out->add_calls()); status.failed())
        return status;
    return Status::success();
  }

  /// Writes the fields that gathers and scatters share: the owners' extents, the whole group and
  /// this device's part of it.
  template <typename Message> Message *shards(Message *out, const Instruction &e) const {
    const Collective &c = graph.collectives[e.collective];
    out->set_group(c.value.id);
    out->set_type(c.type);
    write(c.shards, out->mutable_shards());
    if constexpr (std::is_same_v<Message, bundle::AllGather>)
      write(c.parts, out->mutable_reads());
    else
      write(c.parts, out->mutable_terms());
    write(e.region, [&] { return out->mutable_full(); });
    write(e.to, [&] { return out->mutable_shard(); });
    write(e.value, [&] { return out->mutable_value(); });
    return out;
  }

  void allReduce(const Instruction &e, bundle::AllReduce *out) const {
    const Collective &c = graph.collectives[e.collective];
    out->mutable_members()->Add(c.members.begin(), c.members.end());
    out->set_type(c.type);
    out->set_order(c.order);
    write(e.region, [&] { return out->mutable_region(); });
    write(e.value, [&] { return out->mutable_from(); });
    write(e.toValue, [&] { return out->mutable_to(); });
    write(e.parts, [&] { return out->mutable_receive_buffer(); });
  }

  Status instruction(const Instruction &e, bundle::Instruction *out) {
    out->set_id(e.id);
    out->set_queue(e.queue);
    out->set_phase(e.phase);
    for (uint32_t i = e.waits.begin; i < e.waits.end; ++i) {
      bundle::Wait *to = out->add_waits();
      to->set_queue(graph.waits[i].queue);
      to->set_position(graph.waits[i].position);
      to->set_previous_step(graph.waits[i].previousStep);
    }
    out->set_planned_start(e.plannedStart);
    out->set_planned_end(e.plannedEnd);
    switch (e.kind) {
    case InstructionKind::Compute:
      return compute(e, out->mutable_compute());
    case InstructionKind::Copy: {
      bundle::Copy *to = out->mutable_copy();
      write(e.region, [&] { return to->mutable_from(); });
      write(e.to, [&] { return to->mutable_to(); });
      write(e.value, [&] { return to->mutable_value(); });
      break;
    }
    case InstructionKind::Send:
      place(out->mutable_send(), e.value, e.region)->set_peer(e.peer);
      break;
    case InstructionKind::Receive:
      place(out->mutable_receive(), e.value, e.region)->set_peer(e.peer);
      break;
    case InstructionKind::LoadInput: {
      bundle::LoadInput *to = place(out->mutable_load_input(), e.value, e.region);
      to->set_input(e.input);
      to->set_sample_base(e.sampleBase);
      to->set_rows(e.rows);
      break;
    }
    case InstructionKind::LoadScalars:
      place(out->mutable_load_scalars(), e.value, e.region);
      break;
    case InstructionKind::AllGather: {
      const std::vector<uint32_t> &readers = graph.collectives[e.collective].members;
      shards(out->mutable_all_gather(), e)->mutable_readers()->Add(readers.begin(), readers.end());
      break;
    }
    case InstructionKind::ReduceScatter: {
      const Collective &c = graph.collectives[e.collective];
      bundle::ReduceScatter *to = shards(out->mutable_reduce_scatter(), e);
      to->set_order(c.order);
      to->mutable_contributors()->Add(c.members.begin(), c.members.end());
      to->set_chunk(c.chunk);
      if (c.bf16Terms)
        to->set_term_type(bundle::BF16);
      write(e.parts, [&] { return to->mutable_receive_buffer(); });
      write(e.sends, [&] { return to->mutable_send_buffer(); });
      break;
    }
    case InstructionKind::AllReduce:
      allReduce(e, out->mutable_all_reduce());
      break;
    case InstructionKind::ReadMetrics:
      place(out->mutable_read_metrics(), e.value, e.region);
      break;
    }
    return Status::success();
  }
};

} // namespace

Status zorse::step::writeProgram(const StepGraph &graph, uint32_t device,
                                 const bundle::FunctionLibrary &functions, bundle::Program &out) {
  assert(device < graph.devices.size() && "a device of the step");
  const DeviceProgram &from = graph.devices[device];
  out.set_device(device);
  out.set_device_name(from.name);
  out.set_planned_bytes(from.plannedBytes);
  for (const Arena &arena : from.arenas) {
    bundle::Arena *to = out.add_arenas();
    to->set_kind(arena.kind);
    to->set_bytes(arena.bytes);
  }
  for (const Queue &queue : from.queues) {
    bundle::Queue *to = out.add_queues();
    to->set_kind(queue.kind);
    to->set_id(queue.id);
  }
  for (uint32_t i = from.state.begin; i < from.state.end; ++i)
    place(out.add_state(), graph.state[i].value, graph.state[i].region)
        ->set_type(graph.state[i].type);
  Writer writer(graph, functions, out);
  out.mutable_instructions()->Reserve(int(from.instructions.size()));
  for (uint32_t i = from.instructions.begin; i < from.instructions.end; ++i)
    if (Status status = writer.instruction(graph.instructions[i], out.add_instructions());
        status.failed())
      return userError("program of device " + from.name + ": " + status.message());
  return Status::success();
}

Result<bundle::Program> zorse::step::writeProgram(const StepGraph &graph, uint32_t device,
                                                  const bundle::FunctionLibrary &functions) {
  bundle::Program out;
  if (Status status = writeProgram(graph, device, functions, out); status.failed())
    return status;
  return out;
}
