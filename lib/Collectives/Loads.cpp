#include "zorse/Collectives/Schedule.h"

#include <algorithm>
#include <numeric>

using namespace zorse::collectives;

Loads zorse::collectives::loadsOf(const Placement &placement, const Schedule &schedule) {
  const size_t devices = placement.nodeOf.size(), nodes = placement.siteOf.size(),
               sites = placement.uplink.size();
  Loads loads;
  for (auto *list : {&loads.portIn, &loads.portOut})
    list->assign(devices, 0);
  for (auto *list : {&loads.cardIn, &loads.cardOut})
    list->assign(nodes, 0);
  for (auto *list : {&loads.uplinkIn, &loads.uplinkOut})
    list->assign(sites, 0);
  loads.messages.assign(devices, 0);
  for (const Part &part : schedule.parts)
    for (uint32_t t = part.firstTerm; t < part.firstTerm + part.terms; ++t) {
      const uint32_t from = schedule.terms[t].device, to = part.device;
      if (from == to)
        continue;
      const int64_t elements = part.end - part.begin;
      ++loads.messages[from];
      ++loads.messages[to];
      const uint32_t a = placement.nodeOf[from], b = placement.nodeOf[to];
      if (a == b) {
        loads.portOut[from] += elements;
        loads.portIn[to] += elements;
        continue;
      }
      loads.cardOut[a] += elements;
      loads.cardIn[b] += elements;
      if (placement.siteOf[a] != placement.siteOf[b]) {
        loads.uplinkOut[placement.siteOf[a]] += elements;
        loads.uplinkIn[placement.siteOf[b]] += elements;
      }
    }
  return loads;
}

double zorse::collectives::busiestLink(const Placement &placement, const Loads &loads,
                                       double bytes) {
  double most = 0;
  for (size_t n = 0; n < loads.cardIn.size(); ++n)
    most = std::max({most, double(loads.cardIn[n]) * bytes / placement.cardIn[n],
                     double(loads.cardOut[n]) * bytes / placement.cardOut[n]});
  for (size_t s = 0; s < loads.uplinkIn.size(); ++s)
    if (placement.uplink[s] > 0)
      most = std::max(most, double(std::max(loads.uplinkIn[s], loads.uplinkOut[s])) * bytes /
                                placement.uplink[s]);
  return most;
}

namespace {

/// The bound at nodes, or at sites. Links of speed 0 are unlimited.
template <typename PlaceOf>
double boundAt(PlaceOf placeOf, const std::vector<double> &in, const std::vector<double> &out,
               const std::vector<uint32_t> &contributors, const Cover &owners, double bytes) {
  std::vector<int64_t> owned(in.size(), 0);
  std::vector<uint8_t> gives(in.size(), 0);
  int64_t elements = 0, crossing = 0;
  for (const Extent &owner : owners) {
    owned[placeOf(owner.device)] += owner.length();
    elements += owner.length();
  }
  for (uint32_t device : contributors)
    gives[placeOf(device)] = 1;
  const int giving = std::accumulate(gives.begin(), gives.end(), 0);
  double bound = 0, all = 0;
  for (size_t p = 0; p < in.size(); ++p) {
    const int64_t leaves = gives[p] ? elements - owned[p] : 0,
                  comes = giving > int(gives[p]) ? owned[p] : 0;
    if (out[p] > 0)
      bound = std::max(bound, double(leaves) * bytes / out[p]);
    if (in[p] > 0)
      bound = std::max(bound, double(comes) * bytes / in[p]);
    crossing += leaves;
    all += in[p];
  }
  const bool limited = std::none_of(in.begin(), in.end(), [](double speed) { return speed == 0; });
  return limited ? std::max(bound, double(crossing) * bytes / all) : bound;
}

} // namespace

double zorse::collectives::lowerBound(const Placement &placement,
                                      const std::vector<uint32_t> &contributors,
                                      const Cover &owners, double bytes) {
  const double ofNodes = boundAt([&](uint32_t d) { return placement.nodeOf[d]; }, placement.cardIn,
                                 placement.cardOut, contributors, owners, bytes),
               ofSites = boundAt([&](uint32_t d) { return placement.siteOfDevice(d); },
                                 placement.uplink, placement.uplink, contributors, owners, bytes);
  return std::max(ofNodes, ofSites);
}
