// An exec.program as the serialised program the runtime reads. Empty regions and values of kind `none` are absent fields.
#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Dialect/Exec/Exec.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace zorse;

namespace {

struct Writer {
  bundle::Program program;
  llvm::DenseMap<Attribute, uint32_t> devices, queues;

  uint32_t device(Attribute symbol) const { return devices.lookup(symbol); }

  /// Writes through `field` (a mutable_x call) only if there is something to say.
  template <typename Field> static void region(exec::RegionAttr region, Field field) {
    if (!region.getArena() && !region.getOffset() && !region.getBytes())
      return;
    bundle::Region *out = field();
    out->set_arena(region.getArena());
    out->set_offset(region.getOffset());
    out->set_bytes(region.getBytes());
  }

  template <typename Field> static void value(exec::ValueAttr value, Field field) {
    if (value.getKind() == exec::ValueKind::None)
      return;
    bundle::Value *out = field();
    out->set_kind(static_cast<bundle::Value::Kind>(value.getKind()));
    out->set_id(value.getId());
    out->set_cut(value.getCut());
    out->set_begin(value.getBegin());
    out->set_end(value.getEnd());
    out->set_version(value.getVersion());
  }

  template <typename Message> static void place(Message *out, exec::ValueAttr v, exec::RegionAttr r) {
    value(v, [&] { return out->mutable_value(); });
    region(r, [&] { return out->mutable_region(); });
  }

  static bundle::ElementType type(Type type) {
    if (type.isF32())
      return bundle::F32;
    if (type.isF64())
      return bundle::F64;
    if (type.isBF16())
      return bundle::BF16;
    if (type.isF16())
      return bundle::F16;
    if (type.isInteger(64))
      return bundle::I64;
    if (type.isInteger(32))
      return bundle::I32;
    if (type.isInteger(1))
      return bundle::I1;
    return bundle::ELEMENT_TYPE_UNSPECIFIED;
  }

  void extents(ArrayAttr shards, bundle::Extents *out) const {
    for (auto shard : shards.getAsRange<exec::ExtentAttr>()) {
      out->add_members(device(shard.getMember()));
      out->add_begin(shard.getBegin());
      out->add_end(shard.getEnd());
    }
  }

  template <typename Add> void members(ArrayAttr list, Add add) const {
    for (Attribute member : list)
      add(device(member));
  }

  void call(exec::CallOp op, bundle::Call *out) const {
    out->set_body(op.getBody());
    out->set_unit(static_cast<int32_t>(op.getUnit()));
    out->set_rows(op.getRows());
    out->set_sample_base(op.getSampleBase());
    out->set_instance_base(op.getInstanceBase());
    for (auto slot : op.getSlots().getAsRange<exec::BindingAttr>()) {
      bundle::SlotBinding *binding = out->add_slots();
      place(binding, slot.getValue(), slot.getRegion());
      binding->set_overwrite(slot.getOverwrite());
    }
  }

  void compute(exec::ComputeOp op, bundle::Compute *to) const {
    to->set_task(static_cast<bundle::Compute::Task>(op.getTask()));
    to->set_cell(static_cast<int32_t>(op.getCell()));
    to->set_group(static_cast<int32_t>(op.getGroup()));
    for (auto inner : op.getCalls().getOps<exec::CallOp>())
      call(inner, to->add_calls());
  }

  static void copy(exec::CopyOp op, bundle::Copy *to) {
    region(op.getFrom(), [&] { return to->mutable_from(); });
    region(op.getTo(), [&] { return to->mutable_to(); });
    value(op.getValue(), [&] { return to->mutable_value(); });
  }

  static void loadInput(exec::LoadInputOp op, bundle::LoadInput *to) {
    to->set_input(op.getValue().getId());
    to->set_sample_base(op.getValue().getBegin());
    to->set_rows(op.getValue().getEnd() - op.getValue().getBegin());
    place(to, op.getValue(), op.getRegion());
  }

  void allGather(exec::AllGatherOp op, bundle::AllGather *to) const {
    to->set_group(op.getGroup());
    to->set_type(type(op.getType()));
    extents(op.getShards(), to->mutable_shards());
    members(op.getReaders(), [&](uint32_t m) { to->add_readers(m); });
    region(op.getFull(), [&] { return to->mutable_full(); });
    region(op.getShard(), [&] { return to->mutable_shard(); });
    value(op.getValue(), [&] { return to->mutable_value(); });
  }

  void reduceScatter(exec::ReduceScatterOp op, bundle::ReduceScatter *to) const {
    to->set_group(op.getGroup());
    to->set_type(type(op.getType()));
    to->set_order(static_cast<bundle::ReductionOrder>(op.getOrder()));
    members(op.getContributors(), [&](uint32_t m) { to->add_contributors(m); });
    extents(op.getShards(), to->mutable_shards());
    region(op.getFull(), [&] { return to->mutable_full(); });
    region(op.getShard(), [&] { return to->mutable_shard(); });
    value(op.getValue(), [&] { return to->mutable_value(); });
    if (exec::RegionAttr parts = op.getPartsAttr())
      region(parts, [&] { return to->mutable_parts(); });
    if (IntegerAttr chunk = op.getChunkAttr())
      to->set_chunk(chunk.getInt());
  }

  void allReduce(exec::AllReduceOp op, bundle::AllReduce *to) const {
    members(op.getMembers(), [&](uint32_t m) { to->add_members(m); });
    to->set_type(type(op.getType()));
    to->set_order(static_cast<bundle::ReductionOrder>(op.getOrder()));
    region(op.getRegion(), [&] { return to->mutable_region(); });
    value(op.getFrom(), [&] { return to->mutable_from(); });
    value(op.getTo(), [&] { return to->mutable_to(); });
    if (exec::RegionAttr parts = op.getPartsAttr())
      region(parts, [&] { return to->mutable_parts(); });
  }

  void entry(exec::EntryOp op) {
    bundle::Entry *out = program.add_entries();
    out->set_id(op.getId());
    out->set_queue(queues.lookup(op.getQueue()));
    out->set_phase(static_cast<bundle::Phase>(op.getPhase()));
    if (ArrayAttr waits = op.getWaitsAttr())
      for (auto wait : waits.getAsRange<exec::WaitAttr>()) {
        bundle::Wait *to = out->add_waits();
        to->set_queue(queues.lookup(wait.getQueue()));
        to->set_position(wait.getPosition());
        to->set_previous_step(wait.getPreviousStep());
      }
    if (FloatAttr start = op.getStartAttr())
      out->set_planned_start(start.getValueAsDouble());
    if (FloatAttr finish = op.getFinishAttr())
      out->set_planned_end(finish.getValueAsDouble());

    llvm::TypeSwitch<Operation *>(op.getOperation())
        .Case([&](exec::ComputeOp op) { compute(op, out->mutable_compute()); })
        .Case([&](exec::CopyOp op) { copy(op, out->mutable_copy()); })
        .Case([&](exec::SendOp op) {
          out->mutable_send()->set_peer(device(op.getPeerAttr()));
          place(out->mutable_send(), op.getValue(), op.getRegion());
        })
        .Case([&](exec::ReceiveOp op) {
          out->mutable_receive()->set_peer(device(op.getPeerAttr()));
          place(out->mutable_receive(), op.getValue(), op.getRegion());
        })
        .Case([&](exec::LoadInputOp op) { loadInput(op, out->mutable_load_input()); })
        .Case([&](exec::LoadScalarsOp op) { place(out->mutable_load_scalars(), op.getValue(), op.getRegion()); })
        .Case([&](exec::AllGatherOp op) { allGather(op, out->mutable_all_gather()); })
        .Case([&](exec::ReduceScatterOp op) { reduceScatter(op, out->mutable_reduce_scatter()); })
        .Case([&](exec::AllReduceOp op) { allReduce(op, out->mutable_all_reduce()); })
        .Case([&](exec::ReportOp op) { place(out->mutable_report(), op.getValue(), op.getRegion()); })
        .Default([](Operation *) { llvm_unreachable("every entry op is listed"); });
  }
};

} // namespace

FailureOr<bundle::Program> zorse::conversion::execToProgram(ModuleOp module) {
  auto programs = llvm::to_vector(module.getOps<exec::ProgramOp>());
  if (programs.size() != 1)
    return module.emitError("expects one exec.program, got ") << programs.size();
  exec::ProgramOp op = programs.front();

  Writer writer;
  bundle::Program &out = writer.program;
  for (auto [index, device] : llvm::enumerate(op.getDevices()))
    writer.devices[device] = index;
  out.set_device(op.getDevice());
  out.set_device_name(op.getSymName().str());
  out.set_planned_bytes(op.getPlannedBytes());
  for (Operation &inner : op.getBody().front()) {
    if (auto arena = dyn_cast<exec::ArenaOp>(inner)) {
      bundle::Arena *to = out.add_arenas();
      to->set_kind(static_cast<bundle::MemoryKind>(arena.getKind()));
      to->set_bytes(arena.getBytes());
    } else if (auto queue = dyn_cast<exec::QueueOp>(inner)) {
      writer.queues[queue.getQueue()] = out.queues_size();
      bundle::Queue *to = out.add_queues();
      to->set_kind(static_cast<bundle::QueueKind>(queue.getQueue().getKind()));
      to->set_id(queue.getQueue().getId());
    } else if (auto state = dyn_cast<exec::StateOp>(inner)) {
      bundle::PersistentState *to = out.add_state();
      Writer::place(to, state.getValue(), state.getRegion());
      to->set_type(Writer::type(state.getType()));
    } else {
      writer.entry(cast<exec::EntryOp>(inner));
    }
  }
  return std::move(writer.program);
}
