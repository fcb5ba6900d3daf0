// A serialised program as an exec.program. The program may be broken: what the text would not show is an error.
#include "ExecBuilder.h"

#include "SlotBindings.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::conversion;

namespace {

struct Converter {
  ExecBuilder &out;
  const bundle::Program &program;
  const ExecNames &names;

  exec::ValueAttr value(const bundle::Value &v) { return out.value(v.kind(), v.id(), v.cut(), v.begin(), v.end(), v.version()); }

  Attribute slot(const bundle::Call &call, int index, const bundle::SlotBinding &binding) {
    bundle::AccessMode mode = bundle::ACCESS_UNSPECIFIED;
    if (names.bodies && call.body() < static_cast<uint32_t>(names.bodies->bodies_size()))
      if (const bundle::Body &body = names.bodies->bodies(call.body()); index < body.slots_size())
        mode = body.slots(index).mode();
    return out.binding(mode, binding.overwrite, value(binding.value), out.region(binding.region));
  }

  ArrayAttr extents(const bundle::Extents &extents) {
    SmallVector<Attribute> list;
    for (int i = 0; i < extents.members_size(); ++i)
      list.push_back(out.extent(extents.members(i), i < extents.begin_size() ? extents.begin(i) : 0, i < extents.end_size() ? extents.end(i) : 0));
    return out.array(list);
  }

  LogicalResult entry(const bundle::Entry &e) {
    if (!out.hasQueue(e.queue()))
      return out.error() << "entry " << e.id() << ": expects a queue of the program, got number " << e.queue();
    ExecBuilder::Common common{e.id(), out.queueOf(e.queue()), e.phase(), {}, e.planned_start(), e.planned_end()};
    for (const bundle::Wait &wait : e.waits()) {
      if (!out.hasQueue(wait.queue()))
        return out.error() << "entry " << e.id() << ": expects to wait on a queue of the program, got number " << wait.queue();
      common.waits.push_back(exec::WaitAttr::get(out.context(), out.queueOf(wait.queue()), wait.position(), wait.previous_step()));
    }

    switch (e.what_case()) {
    case bundle::Entry::kCompute: {
      out.compute(common, e.compute().task(), e.compute().cell(), e.compute().group());
      for (const bundle::Call &call : e.compute().calls()) {
        SmallVector<Attribute> slots;
        const bundle::SlotBindings bindings(program, call);
        for (int i = 0; i < bindings.size(); ++i)
          slots.push_back(slot(call, i, bindings[i]));
        out.call(call.body(), call.unit(), call.rows(), call.sample_base(), call.instance_base(), slots);
      }
      out.endCompute();
      return success();
    }
    case bundle::Entry::kCopy:
      out.entry<exec::CopyOp>(common, value(e.copy().value()), out.region(e.copy().from()), out.region(e.copy().to()));
      return success();
    case bundle::Entry::kSend:
      out.entry<exec::SendOp>(common, value(e.send().value()), out.device(e.send().peer()), out.region(e.send().region()));
      return success();
    case bundle::Entry::kReceive:
      out.entry<exec::ReceiveOp>(common, value(e.receive().value()), out.device(e.receive().peer()), out.region(e.receive().region()));
      return success();
    case bundle::Entry::kLoadInput: {
      const bundle::LoadInput &load = e.load_input();
      const bundle::Value &v = load.value();
      if (v.id() != load.input() || v.begin() != load.sample_base() || v.end() - v.begin() != load.rows())
        return out.error() << "entry " << e.id() << ": expects the value to be the rows it loads, [" << load.sample_base() << ':'
                           << load.sample_base() + load.rows() << "] of input " << load.input() << ", got [" << v.begin() << ':' << v.end() << "] of "
                           << v.id();
      out.entry<exec::LoadInputOp>(common, value(v), out.region(load.region()));
      return success();
    }
    case bundle::Entry::kLoadScalars:
      out.entry<exec::LoadScalarsOp>(common, value(e.load_scalars().value()), out.region(e.load_scalars().region()));
      return success();
    case bundle::Entry::kAllGather: {
      const bundle::AllGather &g = e.all_gather();
      out.entry<exec::AllGatherOp>(common, value(g.value()), out.number(g.group()), out.type(g.type()), extents(g.shards()),
                                   out.deviceList(g.readers()), out.region(g.full()), out.region(g.shard()));
      return success();
    }
    case bundle::Entry::kReduceScatter: {
      const bundle::ReduceScatter &r = e.reduce_scatter();
      out.entry<exec::ReduceScatterOp>(common, value(r.value()), out.number(r.group()), out.type(r.type()), out.order(r.order()),
                                       out.deviceList(r.contributors()), extents(r.shards()), out.region(r.full()), out.region(r.shard()),
                                       out.optionalRegion(r.parts()), r.chunk() ? out.number(r.chunk()) : IntegerAttr());
      return success();
    }
    case bundle::Entry::kAllReduce: {
      const bundle::AllReduce &r = e.all_reduce();
      out.entry<exec::AllReduceOp>(common, value(r.from()), value(r.to()), out.type(r.type()), out.order(r.order()), out.deviceList(r.members()),
                                   out.region(r.region()), out.optionalRegion(r.parts()));
      return success();
    }
    case bundle::Entry::kReport:
      out.entry<exec::ReportOp>(common, value(e.report().value()), out.region(e.report().region()));
      return success();
    case bundle::Entry::WHAT_NOT_SET:
      break;
    }
    return out.error() << "entry " << e.id() << ": expects something to do, got an empty entry or one of a later format";
  }
};

} // namespace

FailureOr<OwningOpRef<ModuleOp>> zorse::conversion::programToExec(MLIRContext *context, const bundle::Program &program, const ExecNames &names) {
  ExecBuilder out(context, names);
  Converter converter{out, program, names};
  out.start(program.device(), program.device_name(), program.planned_bytes());
  for (const bundle::Arena &arena : program.arenas())
    out.arena(arena.kind(), arena.bytes());
  for (const bundle::Queue &queue : program.queues())
    out.queue(queue.kind(), queue.id());
  for (const bundle::PersistentState &state : program.state())
    out.state(converter.value(state.value()), out.region(state.region()), state.type());
  for (const bundle::Entry &entry : program.entries())
    if (failed(converter.entry(entry)))
      return failure();
  return out.finish();
}
