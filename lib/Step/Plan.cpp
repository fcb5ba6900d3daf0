#include "zorse/Step/Plan.h"

#include <algorithm>

using namespace zorse::step;

int32_t Plan::findDevice(const std::string &name) const {
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].name == name)
      return static_cast<int32_t>(i);
  return -1;
}

namespace {

bool names(const std::vector<uint32_t> &list, uint32_t index) {
  return list.empty() || std::binary_search(list.begin(), list.end(), index);
}

} // namespace

zorse::Result<GradientWire> zorse::step::gradientWireNamed(const std::string &name) {
  const auto *found = std::find(kGradientWireNames.begin(), kGradientWireNames.end(), name);
  if (found != kGradientWireNames.end())
    return static_cast<GradientWire>(found - kGradientWireNames.begin());
  return userError(std::string("expects bf16 (in sums between nodes), bf16:sites (in sums between "
                               "sites) or f32 (off), got '") +
                   name + "'" +
                   (name.compare(0, 3, "f16") == 0 ? ": gradients overflow in f16" : ""));
}

StatePlacement Plan::placementOf(uint32_t device, uint32_t group) const {
  StatePlacement at;
  for (const OffloadRule &rule : offload)
    if (names(rule.devices, device) && names(rule.groups, group)) {
      at.parameters = rule.parameters.value_or(at.parameters);
      at.moments = rule.optimizerStates.value_or(at.moments);
      at.gradients = rule.gradients.value_or(at.gradients);
      at.update = rule.optimizer.value_or(at.update);
    }
  if (at.update == MemoryTier::Host)
    at.gradients = MemoryTier::Host;
  return at;
}

bool Plan::reshardAfterForward(uint32_t group) const {
  bool reshard = false;
  for (const OffloadRule &rule : offload)
    if (names(rule.groups, group))
      reshard = rule.reshardAfterForward.value_or(reshard);
  return reshard;
}

uint32_t Plan::bufferCountOf(uint32_t device) const {
  uint32_t images = kDefaultBufferCount;
  for (const OffloadRule &rule : offload)
    if (names(rule.devices, device))
      images = rule.bufferCount.value_or(images);
  return images;
}

uint32_t zorse::step::numberInFile(const Plan &plan, uint32_t index) {
  if (index >= plan.cells.size())
    return index;
  const auto before = std::count_if(plan.cells.begin(), plan.cells.begin() + index, isListed);
  return static_cast<uint32_t>(before) - !isListed(plan.cells[index]);
}

std::string zorse::step::describeCell(const Plan &plan, uint32_t index) {
  const Cell &cell = plan.cells[index];
  std::string device = cell.device < plan.devices.size() ? plan.devices[cell.device].name
                                                         : "#" + std::to_string(cell.device);
  return "cell " + std::to_string(numberInFile(plan, index)) + " (units " +
         std::to_string(cell.unitBegin) + "-" + std::to_string(cell.unitEnd) + ", samples " +
         std::to_string(cell.sampleBegin * plan.samplesPerRow) + "-" +
         std::to_string(cell.sampleEnd * plan.samplesPerRow) + ", device " + device + ")";
}
