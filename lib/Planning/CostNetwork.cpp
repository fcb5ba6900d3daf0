#include "CostNetwork.h"

#include <cstdio>
#include <cstdlib>

using namespace zorse;
using namespace zorse::planning;

#ifdef ZORSE_NO_SIMULATION
CostNetwork::CostNetwork(const bundle::Topology &) {}
#else
CostNetwork::CostNetwork(const bundle::Topology &topology) : network(std::make_shared<const sim::Network>(topology)) {}
#endif

const sim::Network &CostNetwork::get() const {
  if (!network) {
    std::fputs("internal error: this build has no simulated network\n", stderr);
    std::abort();
  }
  return *network;
}
