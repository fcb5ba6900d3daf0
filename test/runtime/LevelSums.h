// Random sums of gradients by levels: nodes of one to eight devices on one to three sites, any
// owners, some devices without a contribution. Devices perform the exchanges on their accumulators,
// as programs do. The results of a transport are compared bit by bit with the tree's.
#pragma once

#include "RandomOperations.h"

#include "zorse/Collectives/Levels.h"

#include <memory>
#include <optional>
#include <string>

namespace zorse::runtime::test {

struct LevelSum {
  uint64_t seed = 0;
  int64_t elements = 0;
  collectives::Placement placement;
  std::vector<uint32_t> contributors;
  collectives::Tree tree;
  collectives::Cover owners;
  std::vector<collectives::LevelReduction> exchanges; ///< one of all contributors if levels do not
                                                      ///< pay
};

/// Owners of 128 elements each and more, as state has them.
inline collectives::Cover randomOwners(uint32_t devices, int64_t elements,
                                       std::mt19937_64 &random) {
  std::vector<int64_t> borders{0, elements};
  for (uint32_t d = 1; d < devices; ++d)
    borders.push_back(int64_t(random() % uint64_t(elements / collectives::kGrain + 1)) *
                      collectives::kGrain);
  std::sort(borders.begin(), borders.end());
  std::vector<uint32_t> order(devices);
  for (uint32_t d = 0; d < devices; ++d)
    order[d] = d;
  std::shuffle(order.begin(), order.end(), random);
  collectives::Cover owners;
  for (uint32_t d = 0; d < devices; ++d)
    if (borders[d] < borders[d + 1])
      owners.push_back({borders[d], borders[d + 1], order[d]});
  return owners;
}

inline LevelSum randomLevelSum(uint64_t seed, uint32_t devices) {
  std::mt19937_64 random(seed * 2654435761u + 1);
  LevelSum sum;
  sum.seed = seed;
  sum.elements = int64_t(1 + random() % 40) * collectives::kGrain + int64_t(random() % 2) * 17;
  const size_t sites = 1 + random() % 3;
  for (uint32_t d = 0, left = 0; d < devices; ++d, --left) {
    if (left == 0) {
      left = 1 + uint32_t(random() % 8);
      sum.placement.siteOf.push_back(uint32_t(random() % sites));
    }
    sum.placement.nodeOf.push_back(uint32_t(sum.placement.siteOf.size() - 1));
    if (random() % 8)
      sum.contributors.push_back(d);
  }
  if (sum.contributors.empty())
    sum.contributors.push_back(0);
  sum.placement.port.assign(devices, 1e9);
  for (size_t n = 0; n < sum.placement.siteOf.size(); ++n) {
    sum.placement.cardIn.push_back(1e7 * double(1 + random() % 4));
    sum.placement.cardOut.push_back(sum.placement.cardIn.back());
  }
  sum.placement.uplink.assign(sites, sites > 1 ? 1e7 : 0);
  sum.tree = collectives::makeTree(sum.placement, sum.contributors);
  sum.owners = randomOwners(devices, sum.elements, random);
  if (auto levels = collectives::levelReductions(sum.placement, sum.tree, sum.owners)) {
    sum.exchanges = std::move(*levels);
    return sum;
  }
  sum.tree = collectives::makeFlatTree(sum.placement, sum.contributors);
  collectives::LevelReduction exchange;
  exchange.toOwner = true;
  exchange.members = sum.contributors;
  for (uint32_t contributor : sum.contributors)
    exchange.terms.push_back({0, sum.elements, contributor});
  exchange.results = sum.owners;
  sum.exchanges.push_back(std::move(exchange));
  return sum;
}

inline std::vector<Shard> shardsOf(const collectives::Cover &extents) {
  std::vector<Shard> shards;
  for (const collectives::Extent &extent : extents)
    shards.push_back({extent.device, extent.begin, extent.end});
  return shards;
}

/// First element of a device's run; nothing: it has none.
inline std::optional<int64_t> beginOf(const std::vector<Shard> &list, uint32_t device) {
  for (const Shard &shard : list)
    if (shard.device == device && !shard.empty())
      return shard.begin;
  return std::nullopt;
}

inline Bytes gradientsOf(const LevelSum &sum, uint32_t device, uint64_t step) {
  Bytes numbers(size_t(sum.elements) * sizeof(float));
  fillNumbers(NumberType::F32, numbers.data(), sum.elements,
              sum.seed ^ (step << 8) ^ (uint64_t(device) << 32));
  return numbers;
}

/// Performs a sum on one device. \returns all elements; those that the device owns are summed
inline Result<Bytes> perform(const LevelSum &sum, uint32_t device, uint64_t step,
                             Transport &transport) {
  Bytes gradients = gradientsOf(sum, device, step), owned(gradients.size());
  auto at = [](Bytes &bytes, const std::optional<int64_t> &begin) -> std::byte * {
    return begin ? bytes.data() + size_t(*begin) * sizeof(float) : nullptr;
  };
  uint32_t instruction = 0;
  for (const collectives::LevelReduction &exchange : sum.exchanges) {
    ++instruction;
    ReduceScatterArguments a;
    a.type = NumberType::F32;
    a.terms = shardsOf(exchange.terms);
    a.shards = shardsOf(exchange.results);
    const auto term = beginOf(a.terms, device), result = beginOf(a.shards, device);
    if (!term && !result)
      continue;
    a.full = at(gradients, term);
    a.shard = at(exchange.toOwner ? owned : gradients, result);
    if (Status status = transport.reduceScatter({instruction, step}, a); status.failed()) {
      transport.abort(status.error());
      return status.error();
    }
  }
  return owned;
}

/// The sum of one element along a tree.
inline float sumOf(const collectives::Tree &tree, size_t group,
                   const std::vector<const float *> &terms, int64_t element) {
  float sum = 0;
  for (size_t c = 0; c < tree[group].children.size(); ++c) {
    const collectives::Child child = tree[group].children[c];
    const float term = child.isContributor() ? terms[child.device()][element]
                                             : sumOf(tree, child.index(), terms, element);
    sum = c == 0 ? term : sum + term;
  }
  return sum;
}

/// What `perform` returns on each device.
inline std::vector<Bytes> treeSums(const LevelSum &sum, uint64_t step) {
  const auto devices = uint32_t(sum.placement.nodeOf.size());
  std::vector<Bytes> gradients, results;
  std::vector<const float *> terms;
  for (uint32_t d = 0; d < devices; ++d) {
    gradients.push_back(gradientsOf(sum, d, step));
    terms.push_back(reinterpret_cast<const float *>(gradients.back().data()));
    results.emplace_back(gradients.back().size());
  }
  for (const collectives::Extent &owner : sum.owners)
    for (int64_t e = owner.begin; e < owner.end; ++e) {
      const float total = sumOf(sum.tree, sum.tree.size() - 1, terms, e);
      std::memcpy(results[owner.device].data() + size_t(e) * sizeof total, &total, sizeof total);
    }
  return results;
}

/// Performs a sum on a thread per device. \returns the first difference; empty: equal to the bit
inline std::string differenceOf(const LevelSum &sum, uint64_t step,
                                std::vector<std::unique_ptr<Transport>> transports) {
  std::vector<Result<Bytes>> found(transports.size(), Result<Bytes>(internalError("did not run")));
  std::vector<std::thread> threads;
  threads.reserve(transports.size());
  for (uint32_t device = 0; device < transports.size(); ++device)
    threads.emplace_back([&, device] {
      found[device] = perform(sum, device, step, *transports[device]);
      transports[device].reset(); // leaves while others may still be working
    });
  for (std::thread &thread : threads)
    thread.join();
  const std::vector<Bytes> expected = treeSums(sum, step);
  for (uint32_t device = 0; device < found.size(); ++device) {
    const std::string where = "sum " + std::to_string(sum.seed) + ", device " +
                              std::to_string(device);
    if (found[device].failed())
      return where + ": " + found[device].message();
    if (*found[device] != expected[device])
      return where + " differs";
  }
  return "";
}

} // namespace zorse::runtime::test
