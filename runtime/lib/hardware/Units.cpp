// Assigns a GPU of its host to every device.
#include "Units.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Normalizes a UUID or bus address to its digits, so that "MIG-5F1C..." and "GPU-5f1c..." are
/// equal.
std::string plain(const std::string &id) {
  std::string text;
  for (char c : id.rfind("GPU-", 0) == 0 || id.rfind("MIG-", 0) == 0 ? id.substr(4) : id)
    text += char(std::tolower(static_cast<unsigned char>(c)));
  if (text.size() > 12 && text.rfind("00000000:", 0) == 0) // nvidia-smi writes the PCI domain with
                                                           // eight digits
    text.erase(0, 4);
  return text;
}

/// Assigns the GPUs of one host to the devices of one kind.
class Host {
public:
  Host(const Bundle &bundle, std::vector<RankHardware> &ranks,
       const std::vector<std::string> &named, std::vector<size_t> here)
      : bundle_(bundle), ranks_(ranks), named_(named), here_(std::move(here)) {
    for (size_t r : here_)
      findCandidates(r);
  }

  Status assign(bool share) {
    for (size_t r : here_) {
      RankHardware &hardware = ranks_[r];
      hardware.ordinal = hardware.units.empty() ? -1 : 0;
      hardware.cpu = hardware.units.empty() ? "none" : newest(hardware.units);
      if (!hardware.units.empty() && candidates_[r].empty() && (!named_[r].empty() || runsSome(r)))
        return userError(whyNone(r));
    }
    // An assigned device moves to another GPU if a device needs its GPU (augmenting paths: Kuhn's
    // algorithm). All devices therefore get a GPU if that is possible.
    std::vector<size_t> left;
    for (size_t r : hardestFirst()) {
      std::set<std::string> seen;
      if (!candidates_[r].empty() && !place(r, seen))
        left.push_back(r);
    }
    if (!left.empty() && !share)
      return userError(tooFew(left));
    orderAlike();
    for (const auto &[id, rank] : owner_)
      take(rank, id);
    for (size_t r : left)
      take(r, minUsed(r));
    return Status::success();
  }

private:
  const Bundle &bundle_;
  std::vector<RankHardware> &ranks_;
  const std::vector<std::string> &named_;
  const std::vector<size_t> here_;
  std::map<size_t, std::vector<size_t>> candidates_; ///< by rank: indices of its possible units,
                                                     ///< preferred first
  std::map<std::string, size_t> owner_;              ///< rank by GPU id
  std::map<std::string, int> uses_;

  const DeviceKind &kind() const { return deviceKindOf(bundle_.devices[here_.front()].kind); }
  const std::string &code(size_t r) const { return bundle_.functionsOf(uint32_t(r)).arch(); }

  /// The newest architecture of the units.
  std::string newest(const std::vector<HardwareUnit> &units) const {
    const HardwareUnit *best = &units.front();
    for (const HardwareUnit &unit : units)
      if (unit.architecture != best->architecture &&
          kind().runs(unit.architecture, best->architecture))
        best = &unit;
    return best->architecture;
  }

  bool runsSome(size_t r) const {
    return std::any_of(ranks_[r].units.begin(), ranks_[r].units.end(),
                       [&](const HardwareUnit &u) { return kind().runs(u.architecture, code(r)); });
  }

  bool isNamed(size_t r, const HardwareUnit &unit) const {
    return named_[r].empty() || plain(named_[r]) == plain(unit.id) ||
           plain(named_[r]) == plain(unit.address);
  }

  void findCandidates(size_t r) {
    const std::vector<HardwareUnit> &units = ranks_[r].units;
    std::vector<size_t> &found = candidates_[r];
    const uint64_t bytes = plannedBytes(bundle_, r, /*onDevice=*/true);
    for (size_t u = 0; u < units.size(); ++u)
      if (kind().runs(units[u].architecture, code(r)) && isNamed(r, units[u]) &&
          (units[u].memory == 0 || units[u].memory >= bytes))
        found.push_back(u);
    auto older = [&](size_t a, size_t b) {
      const HardwareUnit &x = units[a], &y = units[b];
      if (x.architecture != y.architecture)
        return kind().runs(y.architecture, x.architecture);
      return std::tie(x.memory, x.address, x.id) < std::tie(y.memory, y.address, y.id);
    };
    std::sort(found.begin(), found.end(), older);
  }

  std::vector<size_t> hardestFirst() const {
    std::vector<size_t> order = here_;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (code(a) != code(b))
        return kind().runs(code(a), code(b));
      return plannedBytes(bundle_, a, true) > plannedBytes(bundle_, b, true);
    });
    return order;
  }

  bool place(size_t r, std::set<std::string> &seen) {
    const std::vector<size_t> &found = candidates_[r];
    auto idOf = [&](size_t u) -> const std::string & { return ranks_[r].units[u].id; };
    auto free = std::find_if(found.begin(), found.end(),
                             [&](size_t u) { return owner_.count(idOf(u)) == 0; });
    if (free != found.end()) {
      owner_[idOf(*free)] = r;
      return true;
    }
    return std::any_of(found.begin(), found.end(), [&](size_t u) {
      if (!seen.insert(idOf(u)).second || !place(owner_[idOf(u)], seen))
        return false;
      owner_[idOf(u)] = r;
      return true;
    });
  }

  /// Orders equal GPUs like the ranks: the first GPU for the first rank.
  void orderAlike() {
    std::map<std::tuple<std::string, uint64_t, std::string>, std::vector<std::string>>
        alike; // by architecture, memory, visible devices of rank
    for (const auto &[id, r] : owner_) {
      if (!named_[r].empty())
        continue;
      std::string seen;
      const HardwareUnit *unit = nullptr;
      for (const HardwareUnit &one : ranks_[r].units) {
        seen += one.id + " ";
        unit = one.id == id ? &one : unit;
      }
      alike[{unit->architecture, unit->memory, seen}].push_back(id);
    }
    for (auto &[what, ids] : alike) {
      std::vector<size_t> ranks;
      for (const std::string &id : ids)
        ranks.push_back(owner_[id]);
      std::sort(ranks.begin(), ranks.end());
      const std::vector<HardwareUnit> &units = ranks_[ranks.front()].units;
      auto addressOf = [&](const std::string &id) {
        return std::find_if(units.begin(), units.end(),
                            [&](const HardwareUnit &unit) { return unit.id == id; })
            ->address;
      };
      std::sort(ids.begin(), ids.end(), [&](const std::string &a, const std::string &b) {
        return std::pair(addressOf(a), a) < std::pair(addressOf(b), b);
      });
      for (size_t i = 0; i < ids.size(); ++i)
        owner_[ids[i]] = ranks[i];
    }
  }

  void take(size_t r, const std::string &id) {
    RankHardware &hardware = ranks_[r];
    for (size_t u = 0; u < hardware.units.size(); ++u)
      if (hardware.units[u].id == id) {
        hardware.ordinal = int(u);
        hardware.cpu = hardware.units[u].architecture;
      }
    ++uses_[id];
  }

  std::string minUsed(size_t r) {
    const std::vector<size_t> &found = candidates_[r];
    auto uses = [&](size_t u) { return uses_[ranks_[r].units[u].id]; };
    return ranks_[r]
        .units[*std::min_element(found.begin(), found.end(),
                                 [&](size_t a, size_t b) { return uses(a) < uses(b); })]
        .id;
  }

  std::string list(const std::vector<HardwareUnit> &units) const {
    std::string text;
    for (const HardwareUnit &unit : units)
      text += (text.empty() ? "" : ", ") + describe(unit);
    return text;
  }

  std::string limited(size_t r) const {
    return ranks_[r].visible.empty() ? ""
                                     : " (CUDA_VISIBLE_DEVICES=" + ranks_[r].visible + " there)";
  }

  /// Explains why none of a rank's GPUs can be used, although one runs its code or one is named.
  std::string whyNone(size_t r) const {
    const std::string device = "device '" + bundle_.devices[r].name + "'",
                      here = "host " + ranks_[r].host + limited(r);
    const std::vector<HardwareUnit> &units = ranks_[r].units;
    if (std::none_of(units.begin(), units.end(),
                     [&](const HardwareUnit &unit) { return isNamed(r, unit); }))
      return device + " is GPU " + named_[r] + " by the cluster file, and " + here + " has " +
             list(units) +
             "; start the job where that GPU is, or compile the model with another 'gpu'";
    return device + " plans " + std::to_string(plannedBytes(bundle_, r, true) >> 20) +
           " MiB on a GPU that runs " + code(r) +
           (named_[r].empty() ? "" : " and is " + named_[r]) + ", and " + here + " has " +
           list(units) + "; give the device less 'memory' in the cluster file and compile again";
  }

  std::string tooFew(const std::vector<size_t> &left) const {
    std::string devices;
    std::map<std::string, const HardwareUnit *> units;
    for (size_t r : here_) {
      devices += (devices.empty() ? "" : ", ") + bundle_.devices[r].name;
      for (size_t u : candidates_.at(r))
        units[ranks_[r].units[u].id] = &ranks_[r].units[u];
    }
    std::string text;
    for (const auto &[id, unit] : units)
      text += (text.empty() ? "" : ", ") + describe(*unit);
    return "host " + ranks_[left.front()].host + limited(left.front()) + ": devices " + devices +
           " are " + std::to_string(here_.size()) + ", and the GPUs that run them are " +
           std::to_string(units.size()) + " (" + text + "): none is left for " +
           bundle_.devices[left.front()].name +
           "; start fewer of them there, compile the model for the GPUs that are there "
           "(zorse-cluster), or let devices share GPUs with --share-gpus";
  }
};

} // namespace

std::string zorse::runtime::describe(const HardwareUnit &unit) {
  const std::string place = unit.address.empty() ? unit.id : unit.address;
  return (unit.model.empty() ? "" : unit.model + " at ") + place + ", " +
         std::to_string(unit.memory >> 20) + " MiB, " + unit.architecture;
}

Status zorse::runtime::assignUnits(const Bundle &bundle, std::vector<RankHardware> &ranks,
                                   bool share) {
  if (ranks.size() != bundle.devices.size()) // checkHardware reports it
    return Status::success();
  Result<std::vector<std::string>> named = gpusOfDevices(bundle);
  if (named.failed())
    return named.error();
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> hosts; // ranks of GPU devices,
                                                                            // by kind and host
  for (size_t r = 0; r < ranks.size(); ++r) {
    const DeviceKind &kind = deviceKindOf(bundle.devices[r].kind);
    if (kind.sharesHostMemory) {
      ranks[r].ordinal = 0;
      ranks[r].cpu = ranks[r].units.empty() ? "none" : ranks[r].units.front().architecture;
    } else {
      hosts[{bundle.devices[r].kind, ranks[r].host}].push_back(r);
    }
  }
  for (auto &[where, here] : hosts)
    if (Status status = Host(bundle, ranks, *named, here).assign(share); status.failed())
      return status;
  return Status::success();
}

std::string zorse::runtime::describeUnits(const Bundle &bundle,
                                          const std::vector<RankHardware> &ranks) {
  constexpr size_t kShown = 16;
  std::string text;
  size_t count = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const HardwareUnit *unit = ranks[r].unit();
    if (deviceKindOf(bundle.devices[r].kind).sharesHostMemory || !unit || ++count > kShown)
      continue;
    text += (text.empty() ? "" : "; ") + bundle.devices[r].name + ": " + describe(*unit);
  }
  return count > kShown ? text + "; and " + std::to_string(count - kShown) + " more" : text;
}
