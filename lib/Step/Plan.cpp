#include "zorse/Step/Plan.h"

using namespace zorse::step;

int32_t Plan::findDevice(const std::string &name) const {
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].name == name)
      return static_cast<int32_t>(i);
  return -1;
}

std::string zorse::step::describeCell(const Plan &plan, uint32_t index) {
  const Cell &cell = plan.cells[index];
  std::string device = cell.device < plan.devices.size() ? plan.devices[cell.device].name : "#" + std::to_string(cell.device);
  return "cell " + std::to_string(index) + " (units " + std::to_string(cell.unitBegin) + "-" + std::to_string(cell.unitEnd) + ", samples " +
         std::to_string(cell.sampleBegin) + "-" + std::to_string(cell.sampleEnd) + ", device " + device + ")";
}
