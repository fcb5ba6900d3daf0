#include "zorse/runtime/Bundle.h"

#include "ArgumentBindings.h"

#include <cctype>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

namespace {

/// Returns " cell 3 (units 0-2, samples 8-16)", from the ranges of the task's calls.
std::string cellOf(const bundle::Compute &compute) {
  std::string text;
  if (compute.cell() >= 0)
    text += "cell " + std::to_string(compute.cell());
  int32_t first = INT32_MAX, last = -1;
  int64_t begin = INT64_MAX, end = -1;
  for (const bundle::Call &call : compute.calls())
    if (call.unit() >= 0) {
      first = std::min(first, call.unit());
      last = std::max(last, call.unit());
      begin = std::min(begin, call.sample_base());
      int64_t behind; // bundles are described before they are checked
      end = std::max(end, __builtin_add_overflow(call.sample_base(), call.rows(), &behind)
                              ? INT64_MAX
                              : behind);
    }
  if (last >= 0)
    text += (text.empty() ? "units " : ", units ") + std::to_string(first) + "-" +
            std::to_string(last + 1) + ", samples " + std::to_string(begin) + "-" +
            std::to_string(end);
  return text;
}

bool isOfGroup(bundle::Value::Kind kind) {
  return kind == bundle::Value::PARAMETERS || kind == bundle::Value::MOMENTS ||
         kind == bundle::Value::GRADIENTS || kind == bundle::Value::REDUCED_GRADIENTS ||
         kind == bundle::Value::LOW_PRECISION_PARAMETERS;
}

/// "reduced gradients"
std::string wordsOf(bundle::Value::Kind kind) {
  std::string words = bundle::Value::Kind_Name(kind);
  for (char &c : words)
    c = c == '_' ? ' ' : char(std::tolower(c));
  return words;
}

} // namespace

std::string zorse::runtime::describeInstruction(const Bundle &bundle, uint32_t device,
                                                const Instruction &instruction) {
  auto name = [&](uint32_t d) {
    return d < bundle.devices.size() ? bundle.devices[d].name : std::to_string(d);
  };
  auto group = [&](uint32_t g) {
    return "group " +
           (g < uint32_t(bundle.summary.groups_size()) && !bundle.summary.groups(g).name().empty()
                ? bundle.summary.groups(g).name()
                : std::to_string(g));
  };
  auto whole = [&](const bundle::Value &value) {
    return isOfGroup(value.kind()) ? group(value.id()) : wordsOf(value.kind());
  };
  switch (instruction.what_case()) {
  case Instruction::kCompute: {
    const bundle::Compute &compute = instruction.compute();
    switch (compute.task()) {
    case bundle::Compute::NORM:
      return compute.group() >= 0 ? "norm of " + group(compute.group()) : "norm";
    case bundle::Compute::CLIP_AND_CHECK:
      return "clip and check";
    case bundle::Compute::UPDATE_GROUP:
      return "update of " + group(compute.group());
    case bundle::Compute::SCALE_LOSS_GRADIENT:
      return "scaling of the loss gradient";
    case bundle::Compute::CAST_PARAMETERS:
      return "cast of " + group(compute.group());
    case bundle::Compute::SUM_LOSS:
      return "sum of the loss (" + cellOf(compute) + ")";
    default:
      return bundle::Compute::Task_Name(compute.task()) + "(" + cellOf(compute) + ")";
    }
  }
  case Instruction::kCopy: {
    const bundle::Program &program = bundle.programs[device];
    auto onHost = [&](const bundle::Region &region) {
      return region.arena() < uint32_t(program.arenas_size()) &&
             program.arenas(int(region.arena())).kind() != bundle::DEVICE;
    };
    const bundle::Value &value = instruction.copy().value();
    return "copy of " + wordsOf(value.kind()) +
           (isOfGroup(value.kind()) ? " of " + group(value.id()) : "") +
           (onHost(instruction.copy().from()) ? " from the host"
            : onHost(instruction.copy().to()) ? " to the host"
                                              : "");
  }
  case Instruction::kSend:
    return "send to " + name(instruction.send().peer());
  case Instruction::kReceive:
    return "receive from " + name(instruction.receive().peer());
  case Instruction::kLoadInput:
    return "load of input '" +
           (instruction.load_input().input() < uint32_t(bundle.summary.inputs_size())
                ? bundle.summary.inputs(instruction.load_input().input()).name()
                : "?") +
           "'";
  case Instruction::kLoadScalars:
    return "load of the step scalars";
  case Instruction::kAllGather:
    return "gather of " + whole(instruction.all_gather().value());
  case Instruction::kReduceScatter:
    return "reduction of " + whole(instruction.reduce_scatter().value());
  case Instruction::kAllReduce:
    return "sum over devices";
  case Instruction::kReadMetrics:
    return "read metrics";
  case Instruction::WHAT_NOT_SET:
    break;
  }
  return "unknown instruction";
}

/// If groups are updated separately, CLIP_AND_CHECK runs before the sums are known. It then reads
/// bytes other than the sums, which the load of the scalars clears.
bool zorse::runtime::commitsByGroup(const Bundle &bundle) {
  for (const bundle::Program &program : bundle.programs) {
    uint64_t block = UINT64_MAX;
    for (const bundle::Instruction &instruction : program.instructions()) {
      if (instruction.has_load_scalars())
        block = instruction.load_scalars().region().offset();
      if (instruction.compute().task() != bundle::Compute::CLIP_AND_CHECK ||
          instruction.compute().calls_size() == 0)
        continue;
      const bundle::Call &call = instruction.compute().calls(0);
      const bundle::ArgumentBindings bindings(program, call);
      for (int s = 0; s < bindings.size(); ++s)
        if (bundle.functions.functions(int(call.function())).arguments(s).kind() ==
            bundle::LOCAL_METRICS)
          return bindings[s].region.offset() != block + kScalarsBytes;
    }
  }
  return false;
}
