// Simulates a link with high latency. The proxy forwards TCP connections on loopback and delays
// every byte. The number of bytes in flight per connection and direction is bounded, as by the TCP
// window of a real link.
#pragma once

#include "zorse/runtime/ProcessGroup.h"

#include <atomic>
#include <memory>
#include <thread>

namespace zorse::test {

class DelayProxy {
public:
  DelayProxy(uint16_t target, double delayMilliseconds, size_t windowBytes);
  ~DelayProxy();
  uint16_t port() const { return port_; }

private:
  void run();

  uint16_t target_, port_ = 0;
  double delay_;
  size_t window_;
  int listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

/// A group of ranks with transports that connect through proxies.
class ProxiedGroup final : public runtime::ProcessGroup {
public:
  ProxiedGroup(runtime::ProcessGroup &inner, double delayMilliseconds, size_t windowBytes)
      : inner_(inner), delay_(delayMilliseconds), window_(windowBytes) {}
  uint32_t rank() const override { return inner_.rank(); }
  uint32_t size() const override { return inner_.size(); }
  uint64_t generation() const override { return inner_.generation(); }
  runtime::Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                           const std::string &mine) override;
  /// The caller keeps the proxy alive as long as the transport.
  std::unique_ptr<DelayProxy> takeProxy() { return std::move(proxy_); }

private:
  runtime::ProcessGroup &inner_;
  double delay_;
  size_t window_;
  std::unique_ptr<DelayProxy> proxy_;
};

} // namespace zorse::test
