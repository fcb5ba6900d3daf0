// Nodes and sites by their names in a plan. The tree of a reduction follows from them alone, so
// that the verifier, which reads plans itself, finds the same one.
#pragma once

#include "zorse/Collectives/Tree.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace zorse::collectives {

/// Returns nodes and sites, numbered by their first device; all links have the same speed.
/// \param places  names of node and site, by device. Nodes of equal name in other sites differ
inline Placement placementOf(const std::vector<std::pair<std::string, std::string>> &places) {
  Placement made;
  std::vector<std::pair<std::string, std::string>> nodes;
  std::vector<std::string> sites;
  auto numberIn = [](auto &list, const auto &name) {
    for (size_t i = list.size(); i-- > 0;) // devices of a node follow each other
      if (list[i] == name)
        return uint32_t(i);
    list.push_back(name);
    return uint32_t(list.size() - 1);
  };
  for (const auto &place : places) {
    const uint32_t node = numberIn(nodes, place);
    made.nodeOf.push_back(node);
    if (node == made.siteOf.size())
      made.siteOf.push_back(numberIn(sites, place.second));
  }
  made.port.assign(places.size(), 1);
  made.cardIn.assign(nodes.size(), 1);
  made.cardOut.assign(nodes.size(), 1);
  made.uplink.assign(sites.size(), 0);
  return made;
}

/// Whether devices are on several nodes.
inline bool crossNodes(const Placement &placement, const std::vector<uint32_t> &devices) {
  return std::any_of(devices.begin(), devices.end(), [&](uint32_t device) {
    return placement.nodeOf[device] != placement.nodeOf[devices.front()];
  });
}

/// Whether devices are on several sites.
inline bool crossSites(const Placement &placement, const std::vector<uint32_t> &devices) {
  return std::any_of(devices.begin(), devices.end(), [&](uint32_t device) {
    return placement.siteOfDevice(device) != placement.siteOfDevice(devices.front());
  });
}

} // namespace zorse::collectives
