// Connects the ranks of a job through NCCL: exchanges ids over the group, creates communicators in
// the same order on all ranks, and tests each of them by transferring known bytes.
#include "NcclTransport.h"

#include "bundle.pb.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::nccl;

namespace {

constexpr double kLong = 2; ///< seconds of connecting after which a line is printed

std::string hex(const UniqueId &id) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (char byte : id.internal)
    text += {digits[(byte >> 4) & 15], digits[byte & 15]};
  return text;
}

bool parse(const std::string &text, UniqueId &id) {
  if (text.size() != 2 * sizeof id.internal)
    return false;
  auto value = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < sizeof id.internal; ++i) {
    const int high = value(text[2 * i]), low = value(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return false;
    id.internal[i] = char(high * 16 + low);
  }
  return true;
}

/// Exchanges the id of each group. The rank with the group's first device publishes it; other ranks
/// publish an empty line.
/// \param api  null on a rank without members, which creates no id
Result<std::vector<UniqueId>> exchangeIds(const NcclApi *api,
                                          const std::vector<DeviceTransportMember> &members,
                                          ProcessGroup &group,
                                          const DeviceTransportOptions &options) {
  const size_t count = options.plan.groups.size();
  std::string mine;
  for (const std::vector<uint32_t> &devices : options.plan.groups) {
    if (std::any_of(members.begin(), members.end(), [&](const DeviceTransportMember &member) {
          return member.device == devices.front();
        })) {
      UniqueId id;
      if (int result = api->ncclGetUniqueId(&id); result != kSuccess)
        return userError(api->describe("ncclGetUniqueId", result, nullptr));
      mine += hex(id);
    }
    mine += '\n';
  }
  Result<std::vector<std::string>> all =
      group.allGatherBytes(options.allGatherBytes + " ids", mine);
  if (all.failed())
    return all.error();
  std::vector<UniqueId> ids(count);
  std::vector<bool> known(count, false);
  for (const std::string &text : *all) {
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t end = text.find('\n', at);
      if (end == std::string::npos)
        return userError(
            "a rank published invalid NCCL ids; start every rank with the same version of Zorse");
      if (end > at)
        known[i] = parse(text.substr(at, end - at), ids[i]) || known[i];
      at = end + 1;
    }
  }
  if (std::find(known.begin(), known.end(), false) != known.end())
    return userError("no rank published the id of an NCCL group; start every rank with the same "
                     "version of Zorse");
  return ids;
}

constexpr size_t kWords = 512; ///< words per rank in a self-test

class StreamCallback final : public StreamTask {
public:
  StreamCallback(std::function<Status(WorkStream &)> what) : what_(std::move(what)) {}
  Status put(uint64_t, WorkStream &stream) override { return what_(stream); }

private:
  std::function<Status(WorkStream &)> what_;
};

uint64_t word(uint32_t device, size_t place) {
  return (uint64_t(device) + 1) * 0x9E3779B97F4A7C15ull ^ place * 0xC2B2AE3D27D4EB4Full;
}

} // namespace

static Communicator::Clock::duration times(double seconds, size_t count) {
  return std::chrono::duration_cast<Communicator::Clock::duration>(
      std::chrono::duration<double>(seconds * double(count)));
}

Status NcclTransport::connect(const std::vector<UniqueId> &ids,
                              Communicator::Clock::time_point begin) {
  const size_t count = options_.plan.groups.size();
  size_t next = 0;
  for (size_t g = 0; g < count; ++g) {
    if (next == communicators_.size() || communicators_[next]->devices() != options_.plan.groups[g])
      continue;
    Communicator &communicator = *communicators_[next++];
    const auto began = Communicator::Clock::now(),
               deadline = begin + times(options_.connectSeconds, g + 1);
    StreamCallback meet(
        [&](WorkStream &) { return communicator.connect(ids[g], deadline); }); // in the context of
                                                                               // the device
    Status status = member_.memory->onStream(meet);
    if (status.failed())
      return userError("GPUs " + namesOf(communicator) +
                       " cannot connect through NCCL: " + status.message() +
                       ". Set NCCL_DEBUG=INFO for details, or run without NCCL (--host-staged)");
    if (status = tryOut(communicator, deadline); status.failed())
      return status;
    const double seconds =
        std::chrono::duration<double>(Communicator::Clock::now() - began).count();
    if (options_.say && communicator.rankOf(member_.device) == 0 && seconds > kLong) {
      char text[64];
      std::snprintf(text, sizeof text, "%.1f s for group %zu of %zu", seconds, g + 1, count);
      options_.say("GPUs " + namesOf(communicator) + " are connected through NCCL: " + text);
    }
  }
  return Status::success();
}

/// Devices with which this device sends and receives in a communicator. Only the first communicator
/// has such; others are used for all-gathers.
const std::vector<uint32_t> &NcclTransport::partnersIn(const Communicator &communicator) const {
  static const std::vector<uint32_t> kNobody;
  return &communicator == communicators_.front().get() ? options_.plan.peers[member_.device]
                                                       : kNobody;
}

/// Checks the words gathered from all devices and, after them, the words that each partner sent.
Status NcclTransport::checkWords(const Communicator &communicator,
                                 const std::vector<uint64_t> &found) const {
  std::vector<uint32_t> from = communicator.devices();
  const std::vector<uint32_t> &partners = partnersIn(communicator);
  from.insert(from.end(), partners.begin(), partners.end());
  for (size_t block = 0; block < from.size(); ++block)
    for (size_t i = 0; i < kWords; ++i)
      if (found[block * kWords + i] != word(from[block], i))
        return userError("data from " + options_.names[from[block]] + " is wrong at byte " +
                         std::to_string(i * sizeof(uint64_t)));
  return Status::success();
}

/// Self-test with known contents: all devices all-gather their words, and partners exchange theirs.
/// NCCL establishes connections and allocates their memory at first use and waits for the peer; the
/// test moves this before the first step.
Status NcclTransport::tryOut(Communicator &communicator, Communicator::Clock::time_point deadline) {
  const std::vector<uint32_t> &partners = partnersIn(communicator);
  const size_t ranks = communicator.devices().size();
  const size_t bytes = kWords * sizeof(uint64_t);
  auto failed = [&](const std::string &what) {
    return userError("NCCL " + *ncclVersion() + " self-test of GPUs " + namesOf(communicator) +
                     " failed on " + options_.names[member_.device] + ": " + what +
                     ". Set NCCL_ALGO=Ring NCCL_PROTO=Simple, or install the same driver and NCCL "
                     "on all hosts, or run without "
                     "NCCL (--host-staged)");
  };
  Result<std::unique_ptr<DeviceMemory>> memory =
      member_.memory->allocate(bundle::DEVICE, (1 + ranks + partners.size()) * bytes, {});
  if (memory.failed())
    return memory.error();
  const DeviceAddress mine = (*memory)->base(), all = mine + bytes, passed = all + ranks * bytes;
  std::vector<uint64_t> words(kWords);
  for (size_t i = 0; i < kWords; ++i)
    words[i] = word(member_.device, i);
  if (Status status = member_.memory->write(mine, words.data(), bytes); status.failed())
    return status;
  StreamCallback trial([&](WorkStream &stream) {
    Status status = communicator.run(
        "ncclAllGather",
        [&](Comm comm) {
          return api_.ncclAllGather(pointer(mine), pointer(all), bytes, kInt8, comm,
                                    stream.handle());
        },
        deadline);
    if (status.failed() || partners.empty())
      return status;
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < partners.size(); ++i) {
      transfers.push_back({true, partners[i], mine, bytes});
      transfers.push_back({false, partners[i], passed + i * bytes, bytes});
    }
    return exchange("ncclSend", transfers, stream, deadline);
  });
  if (Status status = member_.memory->onStream(trial); status.failed())
    return failed(status.message());
  std::vector<uint64_t> found((ranks + partners.size()) * kWords);
  if (Status status = member_.memory->read(found.data(), all, found.size() * sizeof(uint64_t));
      status.failed())
    return status;
  Status status = checkWords(communicator, found);
  return status.failed() ? Status(failed(status.message())) : status;
}

Result<std::vector<std::unique_ptr<DeviceTransport>>>
zorse::runtime::connectNccl(const std::vector<DeviceTransportMember> &members, ProcessGroup &group,
                            const DeviceTransportOptions &given) {
  Result<const NcclApi *> api =
      members.empty() ? Result<const NcclApi *>(static_cast<const NcclApi *>(nullptr)) : ncclApi();
  if (api.failed())
    return api.error();
  Result<std::vector<UniqueId>> ids = exchangeIds(*api, members, group, given);
  if (ids.failed())
    return ids.error();
  // All devices connect concurrently, because the members of a group wait for each other.
  const auto begin = Communicator::Clock::now(),
             deadline = begin + times(given.connectSeconds, given.plan.groups.size());
  std::vector<std::unique_ptr<NcclTransport>> made;
  made.reserve(members.size());
  for (const DeviceTransportMember &member : members)
    made.push_back(std::make_unique<NcclTransport>(**api, member, given));
  std::vector<Status> results(members.size());
  std::vector<std::thread> threads;
  threads.reserve(members.size());
  std::mutex mutex;
  std::condition_variable over;
  size_t left = members.size();
  auto giveUp = [&](const Error &why) {
    atOnce<std::unique_ptr<NcclTransport>>(made, [&](auto &transport) { transport->abort(why); });
  };
  for (size_t i = 0; i < members.size(); ++i)
    threads.emplace_back([&, i] {
      results[i] = made[i]->connect(*ids, begin);
      if (results[i].failed()) // other devices would wait forever
        giveUp(results[i].error());
      std::lock_guard<std::mutex> lock(mutex);
      if (--left == 0)
        over.notify_all();
    });
  {
    std::unique_lock<std::mutex> lock(mutex);
    if (!over.wait_until(lock, deadline, [&] { return left == 0; })) {
      lock.unlock(); // data of the self-test did not arrive
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%g",
                    given.connectSeconds * double(given.plan.groups.size()));
      giveUp(userError(
          std::string("NCCL connections and self-tests of the GPUs did not finish within ") +
          seconds +
          " s. Set NCCL_DEBUG=INFO for details, or NCCL_ALGO=Ring NCCL_PROTO=Simple, or run "
          "without NCCL (--host-staged)"));
    }
  }
  for (std::thread &thread : threads)
    thread.join();
  for (const Status &status : results)
    if (status.failed())
      return status;
  std::vector<std::unique_ptr<DeviceTransport>> out;
  out.reserve(made.size());
  for (auto &transport : made)
    out.push_back(std::move(transport));
  return out;
}
