#include "Device.h"

using namespace zorse;
using namespace zorse::verify;

const char *verify::name(Code code) {
  switch (code) {
  case Code::Malformed:
    return "malformed";
  case Code::Plan:
    return "plan";
  case Code::Unsupported:
    return "unsupported";
  case Code::Unmatched:
    return "unmatched";
  case Code::Mismatched:
    return "mismatched";
  case Code::Order:
    return "order";
  case Code::Race:
    return "race";
  case Code::Alias:
    return "alias";
  case Code::Reach:
    return "reach";
  case Code::Launch:
    return "launch";
  case Code::Bounds:
    return "bounds";
  case Code::Limit:
    return "limit";
  case Code::Residence:
    return "residence";
  case Code::Alignment:
    return "alignment";
  case Code::Size:
    return "size";
  case Code::Task:
    return "task";
  case Code::Call:
    return "call";
  case Code::Declared:
    return "declared";
  case Code::Undefined:
    return "undefined";
  case Code::Stale:
    return "stale";
  case Code::WrongValue:
    return "wrong-value";
  case Code::Contributions:
    return "contributions";
  case Code::Update:
    return "update";
  case Code::Loss:
    return "loss";
  case Code::Norm:
    return "norm";
  case Code::Report:
    return "report";
  }
  return "unknown";
}

std::string verify::toString(const Finding &finding, const PlanView &plan) {
  std::string text = "verify: ";
  if (finding.device >= 0)
    text += (size_t(finding.device) < plan.devices.size()
                 ? plan.devices[finding.device].name
                 : "device " + std::to_string(finding.device)) +
            ": ";
  return text + finding.message + " [" + name(finding.code) + "]";
}

static std::string range(int64_t begin, int64_t end) {
  return std::to_string(begin) + "-" + std::to_string(end);
}

template <typename List>
static std::string named(const char *what, const List &list, uint32_t index) {
  if (index < uint32_t(list.size()) && !list.Get(int(index)).name().empty())
    return std::string(what) + " '" + list.Get(int(index)).name() + "'";
  return std::string(what) + " " + std::to_string(index);
}

std::string Device::deviceName(uint32_t device) const {
  return device < model.plan.devices.size() ? model.plan.devices[device].name
                                            : "device " + std::to_string(device);
}

std::string verify::describeValue(const Model &model, const bundle::Value &value) {
  const auto &summary = model.summary;
  std::string rows = range(value.begin(), value.end());
  switch (value.kind()) {
  case bundle::Value::NONE:
    return "scratch";
  case bundle::Value::PARAMETERS:
    return "parameters of " + named("group", summary.groups(), value.id()) + ", elements " + rows +
           ", version " + std::to_string(value.version());
  case bundle::Value::LOW_PRECISION_PARAMETERS:
    return "copy of the parameters of " + named("group", summary.groups(), value.id()) +
           ", elements " + rows;
  case bundle::Value::GRADIENTS:
    return "gradient accumulator of " + named("group", summary.groups(), value.id()) +
           ", elements " + rows;
  case bundle::Value::REDUCED_GRADIENTS:
    return "reduced gradients of " + named("group", summary.groups(), value.id()) + ", elements " +
           rows;
  case bundle::Value::MOMENTS:
    return "moments " + std::to_string(value.cut()) + " of " +
           named("group", summary.groups(), value.id()) + ", elements " + rows + ", version " +
           std::to_string(value.version());
  case bundle::Value::ACTIVATION:
    return named("value", summary.values(), value.id()) + ", samples " + rows;
  case bundle::Value::ACTIVATION_GRADIENT:
    return "gradient of " + named("value", summary.values(), value.id()) +
           " from units >= " + std::to_string(value.cut()) + ", samples " + rows;
  case bundle::Value::SAVED_BLOCK:
    return "saved block of " + named("unit", summary.units(), value.id()) + ", samples " + rows;
  case bundle::Value::SAVED_FOR_WEIGHT_GRAD_BLOCK:
    return "deferred block of " + named("unit", summary.units(), value.id()) + ", samples " + rows;
  case bundle::Value::INPUT_ROWS:
    return named("input", summary.inputs(), value.id()) + ", samples " + rows;
  case bundle::Value::STEP_SCALARS:
    return value.id() == 2 ? "step scalars with scaled seeds"
           : value.id()    ? "step scalars with the decision"
                           : "step scalars";
  case bundle::Value::LOSS_ROWS:
    return "loss term " + std::to_string(value.cut()) + " of " +
           named("unit", summary.units(), value.id()) + ", samples " + rows;
  case bundle::Value::LOCAL_METRICS:
    return "this device's sums";
  case bundle::Value::GLOBAL_METRICS:
    return "global sums";
  case bundle::Value::OPTIMIZER_STEP:
    return "optimizer step, version " + std::to_string(value.version());
  default:
    return "value of unknown kind " + std::to_string(int(value.kind()));
  }
}

std::string Device::describe(const bundle::Instruction &instruction) const {
  switch (instruction.what_case()) {
  case bundle::Instruction::kCompute: {
    const auto &compute = instruction.compute();
    std::string cell;
    if (compute.cell() >= 0 && size_t(compute.cell()) < model.plan.cells.size()) {
      const auto &c = model.plan.cells[compute.cell()];
      cell = "(units " + range(c.firstUnit, c.endUnit) + ", samples " +
             range(c.firstSample, c.endSample) + ")";
    }
    switch (compute.task()) {
    case bundle::Compute::F:
      return "F" + cell;
    case bundle::Compute::B:
      return "B" + cell;
    case bundle::Compute::W:
      return "W" + cell;
    case bundle::Compute::R:
      return "R" + cell;
    case bundle::Compute::NORM:
      return "norm";
    case bundle::Compute::CLIP_AND_CHECK:
      return "decision";
    case bundle::Compute::UPDATE_GROUP:
      return "update of " + (compute.group() >= 0
                                 ? named("group", model.summary.groups(), uint32_t(compute.group()))
                                 : std::string("no group"));
    case bundle::Compute::CAST_PARAMETERS:
      return "cast of " + (compute.group() >= 0
                               ? named("group", model.summary.groups(), uint32_t(compute.group()))
                               : std::string("no group"));
    case bundle::Compute::SCALE_LOSS_GRADIENT:
      return "scaling of seeds";
    case bundle::Compute::SUM_LOSS:
      return "loss sum" + cell;
    default:
      return "compute";
    }
  }
  case bundle::Instruction::kCopy:
    return "copy of " + describe(instruction.copy().value());
  case bundle::Instruction::kSend:
    return "send of " + describe(instruction.send().value()) + " to " +
           deviceName(instruction.send().peer());
  case bundle::Instruction::kReceive:
    return "receive of " + describe(instruction.receive().value()) + " from " +
           deviceName(instruction.receive().peer());
  case bundle::Instruction::kLoadInput:
    return "load of " + describe(instruction.load_input().value());
  case bundle::Instruction::kLoadScalars:
    return "load of the step scalars";
  case bundle::Instruction::kAllGather:
    return "all-gather of " + describe(instruction.all_gather().value());
  case bundle::Instruction::kReduceScatter:
    return "reduce-scatter of " + describe(instruction.reduce_scatter().value());
  case bundle::Instruction::kAllReduce:
    return "all-reduce of " + describe(instruction.all_reduce().from());
  case bundle::Instruction::kReadMetrics:
    return "report of " + describe(instruction.read_metrics().value());
  default:
    return "nothing";
  }
}

std::string Device::where(const bundle::Instruction &instruction) const {
  return "instruction " + std::to_string(instruction.id()) + ", " + describe(instruction) + " on " +
         deviceName(program.device());
}
