#include "zorse/runtime/DelayedTransport.h"
#include "zorse/runtime/abi/Random.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

using namespace zorse::runtime;

namespace {

class DelayedTransport final : public Transport {
public:
  DelayedTransport(std::unique_ptr<Transport> inner, uint64_t seed, double maxMilliseconds)
      : inner_(std::move(inner)), seed_(seed), maxMilliseconds_(maxMilliseconds) {}

  std::string name() const override { return inner_->name(); }
  Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) override {
    return delayed(operation, [&] { return inner_->send(operation, peer, data, bytes); });
  }
  Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    return delayed(operation, [&] { return inner_->receive(operation, peer, data, bytes); });
  }
  Status allGather(Operation operation, const AllGatherArguments &a) override {
    return delayed(operation, [&] { return inner_->allGather(operation, a); });
  }
  Status reduceScatter(Operation operation, const ReduceScatterArguments &a) override {
    return delayed(operation, [&] { return inner_->reduceScatter(operation, a); });
  }
  Status allReduce(Operation operation, const AllReduceArguments &a) override {
    return delayed(operation, [&] { return inner_->allReduce(operation, a); });
  }
  void postReceive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    std::memset(data, 0xff, bytes); // NaNs reveal reads of the previous contents
    if (inner_->gainsFromExpecting())
      inner_->postReceive(operation, peer, data, bytes);
  }
  bool gainsFromExpecting() const override { return true; }
  uint64_t moved() const override { return inner_->moved(); }
  std::vector<UnresponsivePeer> unresponsive() const override { return inner_->unresponsive(); }
  void abort(const Error &why) override {
    aborted_ = true;
    inner_->abort(why);
  }

private:
  template <typename Work> Status delayed(Operation operation, Work &&work) {
    uint64_t random = zorse::abi::mix64(
        zorse::abi::mix64(seed_ ^ zorse::abi::mix64(operation.instruction)) ^ operation.step);
    sleep(random);
    Status status = work();
    if (status.succeeded())
      sleep(zorse::abi::mix64(random));
    return status;
  }

  /// Half of the sleeps have length zero; most others are short.
  void sleep(uint64_t random) const {
    double share = double(random >> 11) * 0x1p-53;
    if (share < 0.5 || aborted_)
      return;
    share = 2 * share - 1;
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::milli>(maxMilliseconds_ * share * share * share));
  }

  std::unique_ptr<Transport> inner_;
  uint64_t seed_;
  double maxMilliseconds_;
  std::atomic<bool> aborted_{false};
};

} // namespace

std::unique_ptr<Transport>
zorse::runtime::makeDelayedTransport(std::unique_ptr<Transport> transport, uint64_t seed,
                                     double maxMilliseconds) {
  return std::make_unique<DelayedTransport>(std::move(transport), seed, maxMilliseconds);
}
