// The step graph's arrays of one device as an exec.program. Calls list every slot a function could have; a body's own slots decide which are bound.
#include "ExecBuilder.h"

#include "zorse/Step/StepGraph.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::conversion;

namespace {

struct Converter {
  ExecBuilder &out;
  const step::StepGraph &graph;
  const bundle::BodyLibrary &bodies;

  exec::ValueAttr value(const step::Value &v) { return out.value(v.kind, v.id, v.cut, v.begin, v.end, v.version); }

  LogicalResult call(const step::Call &call) {
    if (call.body >= static_cast<uint32_t>(bodies.bodies_size()))
      return out.error() << "the step calls body " << call.body << " of unit " << call.unit << ", and there are " << bodies.bodies_size();
    const bundle::Body &body = bodies.bodies(call.body);
    SmallVector<Attribute> slots;
    for (const bundle::Slot &wanted : body.slots()) {
      const step::Slot *found = nullptr;
      for (uint32_t i = call.slots.begin; i < call.slots.end && !found; ++i)
        if (graph.slots[i].kind == wanted.kind() && graph.slots[i].index == wanted.index())
          found = &graph.slots[i];
      if (!found)
        return out.error() << "body '" << body.name() << "' has a slot " << bundle::SlotKind_Name(wanted.kind()) << ' ' << wanted.index()
                           << " for which the step has no buffer (unit " << call.unit << ')';
      slots.push_back(out.binding(wanted.mode(), found->overwrite, value(found->value), out.region(found->region)));
    }
    out.call(call.body, call.unit, call.rows, call.sampleBase, call.instanceBase, slots);
    return success();
  }

  LogicalResult entry(const step::Entry &e) {
    ExecBuilder::Common common{e.id, out.queueOf(e.queue), e.phase, {}, e.plannedStart, e.plannedEnd};
    for (uint32_t i = e.waits.begin; i < e.waits.end; ++i) {
      const step::Wait &wait = graph.waits[i];
      common.waits.push_back(exec::WaitAttr::get(out.context(), out.queueOf(wait.queue), wait.position, wait.previousStep));
    }
    auto region = out.region(e.region);
    auto to = out.region(e.to);
    auto shards = [&](const step::Collective &c) {
      SmallVector<Attribute> list;
      for (const step::Collective::Shard &shard : c.shards)
        list.push_back(out.extent(shard.device, shard.begin, shard.end));
      return out.array(list);
    };

    switch (e.kind) {
    case step::EntryKind::Compute:
      out.compute(common, e.task, e.cell, e.group);
      for (uint32_t i = e.calls.begin; i < e.calls.end; ++i)
        if (failed(call(graph.calls[i])))
          return failure();
      out.endCompute();
      break;
    case step::EntryKind::Copy:
      out.entry<exec::CopyOp>(common, value(e.value), region, to);
      break;
    case step::EntryKind::Send:
      out.entry<exec::SendOp>(common, value(e.value), out.device(e.peer), region);
      break;
    case step::EntryKind::Receive:
      out.entry<exec::ReceiveOp>(common, value(e.value), out.device(e.peer), region);
      break;
    case step::EntryKind::LoadInput:
      out.entry<exec::LoadInputOp>(common, value(e.value), region);
      break;
    case step::EntryKind::LoadScalars:
      out.entry<exec::LoadScalarsOp>(common, value(e.value), region);
      break;
    case step::EntryKind::AllGather: {
      const step::Collective &c = graph.collectives[e.collective];
      out.entry<exec::AllGatherOp>(common, value(e.value), out.number(c.group), out.type(c.type), shards(c), out.deviceList(c.members), region, to);
      break;
    }
    case step::EntryKind::ReduceScatter: {
      const step::Collective &c = graph.collectives[e.collective];
      out.entry<exec::ReduceScatterOp>(common, value(e.value), out.number(c.group), out.type(c.type), out.order(c.order), out.deviceList(c.members),
                                       shards(c), region, to);
      break;
    }
    case step::EntryKind::AllReduce: {
      const step::Collective &c = graph.collectives[e.collective];
      out.entry<exec::AllReduceOp>(common, value(e.value), value(e.toValue), out.type(c.type), out.order(c.order), out.deviceList(c.members), region);
      break;
    }
    case step::EntryKind::Report:
      out.entry<exec::ReportOp>(common, value(e.value), region);
      break;
    }
    return success();
  }
};

} // namespace

FailureOr<OwningOpRef<ModuleOp>> zorse::conversion::stepToExec(MLIRContext *context, const step::StepGraph &graph, uint32_t device, const ExecNames &given) {
  assert(given.bodies && device < graph.devices.size() && "a body library and a device of the step");
  ExecNames names = given;
  names.devices.clear();
  for (const step::DeviceProgram &d : graph.devices)
    names.devices.push_back(d.name);

  const step::DeviceProgram &program = graph.devices[device];
  ExecBuilder out(context, names);
  Converter converter{out, graph, *names.bodies};
  out.start(device, program.name, graph.devices.size(), program.plannedBytes);
  for (const step::Arena &arena : program.arenas)
    out.arena(arena.kind, arena.bytes);
  for (const step::Queue &queue : program.queues)
    out.queue(queue.kind, queue.id);
  for (uint32_t i = program.state.begin; i < program.state.end; ++i)
    out.state(converter.value(graph.state[i].value), out.region(graph.state[i].region), graph.state[i].type);
  for (uint32_t i = program.entries.begin; i < program.entries.end; ++i)
    if (failed(converter.entry(graph.entries[i])))
      return failure();
  return out.finish();
}
