#include "ExecBuilder.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::conversion;

// Enumerations of the dialect and of the schema are cast into each other.
static_assert(int(exec::ValueKind::Deferred) == bundle::Value::DEFERRED_BLOCK && int(exec::Phase::Report) == bundle::REPORT);
static_assert(int(exec::Task::Cast) == bundle::Compute::CAST_PARAMETERS && int(exec::ValueKind::ParameterCopy) == bundle::Value::PARAMETER_COPY);
static_assert(int(exec::Task::SumLoss) == bundle::Compute::SUM_LOSS && int(exec::QueueKind::Io) == bundle::IO &&
              int(exec::QueueKind::Direct) == bundle::DIRECT);
static_assert(int(exec::MemoryKind::Nvme) == bundle::NVME && int(exec::Access::Accumulate) == bundle::ACCUMULATE);
static_assert(int(exec::Order::Transport) == bundle::TRANSPORT);

void ExecBuilder::start(uint32_t device, StringRef name, uint64_t plannedBytes) {
  self = device;
  selfName = name.str();
  context()->loadDialect<exec::ExecDialect>();
  module = ModuleOp::create(loc);
  builder.setInsertionPointToStart(module->getBody());
  SmallVector<Attribute> table;
  for (uint32_t index = 0; index < std::max<uint32_t>(names.devices.size(), device + 1); ++index)
    table.push_back(this->device(index));
  auto program = exec::ProgramOp::create(builder, loc, builder.getStringAttr(deviceName(device)), number(device), builder.getArrayAttr(table),
                                         number(plannedBytes));
  builder.setInsertionPointToStart(&program.getBody().emplaceBlock());
}

std::string ExecBuilder::deviceName(uint32_t index) const {
  if (index == self && !selfName.empty())
    return selfName;
  return index < names.devices.size() ? names.devices[index] : "device" + std::to_string(index);
}

void ExecBuilder::arena(bundle::MemoryKind kind, uint64_t bytes) {
  exec::ArenaOp::create(builder, loc, exec::MemoryKindAttr::get(context(), static_cast<exec::MemoryKind>(kind)), number(bytes));
}

void ExecBuilder::queue(bundle::QueueKind kind, uint32_t id) {
  queues.push_back(exec::QueueAttr::get(context(), static_cast<exec::QueueKind>(kind), id));
  exec::QueueOp::create(builder, loc, queues.back());
}

void ExecBuilder::state(exec::ValueAttr value, exec::RegionAttr region, bundle::ElementType elementType) {
  exec::StateOp::create(builder, loc, value, region, type(elementType));
}

void ExecBuilder::compute(const Common &c, bundle::Compute::Task task, int32_t cell, int32_t group) {
  open = exec::ComputeOp::create(builder, loc, id(c), exec::TaskAttr::get(context(), static_cast<exec::Task>(task)), number(cell), number(group),
                                 c.queue, phase(c), waits(c), time(c.start, c), time(c.finish, c));
  builder.setInsertionPointToStart(&open.getCalls().emplaceBlock());
}

void ExecBuilder::endCompute() { builder.setInsertionPointAfter(open); }

void ExecBuilder::call(uint32_t body, int32_t unit, int64_t rows, int64_t sampleBase, uint64_t instanceBase, ArrayRef<Attribute> slots) {
  StringRef bodyName, unitName;
  if (names.bodies && body < static_cast<uint32_t>(names.bodies->bodies_size()))
    bodyName = names.bodies->bodies(body).name();
  if (names.summary && unit >= 0 && unit < names.summary->units_size())
    unitName = names.summary->units(unit).name();
  exec::CallOp::create(builder, loc, number(body), builder.getStringAttr(bodyName), number(unit), builder.getStringAttr(unitName), number(rows),
                       number(sampleBase), number(static_cast<int64_t>(instanceBase)), builder.getArrayAttr(slots));
}

exec::ValueAttr ExecBuilder::value(bundle::Value::Kind kind, uint32_t id, uint32_t cut, int64_t begin, int64_t end, uint32_t version) {
  StringRef name;
  auto nameIn = [&](const auto &table) {
    if (id < static_cast<uint32_t>(table.size()))
      name = table[id].name();
  };
  if (names.summary) {
    const bundle::ModelSummary &s = *names.summary;
    switch (kind) {
    case bundle::Value::PARAMETERS:
    case bundle::Value::PARAMETER_COPY:
    case bundle::Value::GRADIENTS:
    case bundle::Value::REDUCED_GRADIENTS:
    case bundle::Value::MOMENTS:
      nameIn(s.groups());
      break;
    case bundle::Value::ACTIVATION:
    case bundle::Value::ACTIVATION_GRADIENT:
      nameIn(s.values());
      break;
    case bundle::Value::SAVED_BLOCK:
    case bundle::Value::DEFERRED_BLOCK:
    case bundle::Value::LOSS_ROWS:
      nameIn(s.units());
      break;
    case bundle::Value::INPUT_ROWS:
      nameIn(s.inputs());
      break;
    default:
      break;
    }
  }
  return exec::ValueAttr::get(context(), static_cast<exec::ValueKind>(kind), id, cut, begin, end, version, name);
}

TypeAttr ExecBuilder::type(bundle::ElementType type) {
  switch (type) {
  case bundle::F64:
    return TypeAttr::get(builder.getF64Type());
  case bundle::BF16:
    return TypeAttr::get(builder.getBF16Type());
  case bundle::F16:
    return TypeAttr::get(builder.getF16Type());
  case bundle::I64:
    return TypeAttr::get(builder.getI64Type());
  case bundle::I32:
    return TypeAttr::get(builder.getI32Type());
  case bundle::I1:
    return TypeAttr::get(builder.getI1Type());
  case bundle::F32:
    return TypeAttr::get(builder.getF32Type());
  default:
    return TypeAttr::get(builder.getNoneType()); // unspecified
  }
}
