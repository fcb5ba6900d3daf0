// What is connected to what, for CostModel.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/Profile.h"
#include "zorse/Simulation/Network.h"

#include <memory>
#include <vector>

namespace zorse::planning {

class CostNetwork {
public:
  CostNetwork() = default;
  explicit CostNetwork(const bundle::Topology &topology);
  const sim::Network &get() const;

private:
  std::shared_ptr<const sim::Network> network;
};

} // namespace zorse::planning
