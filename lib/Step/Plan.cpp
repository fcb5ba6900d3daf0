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

bool names(const std::vector<uint32_t> &list, uint32_t index) { return list.empty() || std::binary_search(list.begin(), list.end(), index); }

} // namespace

Residence Plan::residenceOf(uint32_t device, uint32_t group) const {
  Residence at;
  for (const ResidencyRule &rule : residency)
    if (names(rule.devices, device) && names(rule.groups, group)) {
      at.parameters = rule.parameters.value_or(at.parameters);
      at.moments = rule.moments.value_or(at.moments);
      at.gradients = rule.gradients.value_or(at.gradients);
      at.update = rule.update.value_or(at.update);
    }
  if (at.update == Tier::Host)
    at.gradients = Tier::Host;
  return at;
}

Gather Plan::gatherOf(uint32_t group) const {
  Gather gather = Gather::Step;
  for (const ResidencyRule &rule : residency)
    if (names(rule.groups, group))
      gather = rule.gather.value_or(gather);
  return gather;
}

uint32_t Plan::imagesOf(uint32_t device) const {
  uint32_t images = kDefaultImages;
  for (const ResidencyRule &rule : residency)
    if (names(rule.devices, device))
      images = rule.images.value_or(images);
  return images;
}

std::string zorse::step::describeCell(const Plan &plan, uint32_t index) {
  const Cell &cell = plan.cells[index];
  std::string device = cell.device < plan.devices.size() ? plan.devices[cell.device].name : "#" + std::to_string(cell.device);
  return "cell " + std::to_string(index) + " (units " + std::to_string(cell.unitBegin) + "-" + std::to_string(cell.unitEnd) + ", samples " +
         std::to_string(cell.sampleBegin * plan.samplesPerRow) + "-" + std::to_string(cell.sampleEnd * plan.samplesPerRow) + ", device " + device +
         ")";
}
