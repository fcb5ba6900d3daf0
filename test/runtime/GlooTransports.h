// Gloo transports for tests: several ranks as threads of this process, over loopback.
#pragma once

#include "FileGroup.h"
#include "TemporaryDirectory.h"

#include "zorse/runtime/GlooTransport.h"

#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace zorse::runtime::test {

inline GlooOptions glooOptions(uint32_t rank, uint32_t ranks) {
  GlooOptions options;
  options.job = "conformance";
  options.secret = "a secret of the tests";
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    options.deviceNames.push_back("cpu:" + std::to_string(peer));
    if (peer != rank)
      options.peers.push_back(peer);
  }
  return options;
}

using Changed = std::function<void(uint32_t rank, GlooOptions &)>;

/// The result of every rank's call.
inline std::vector<Result<std::unique_ptr<Transport>>>
tryGlooTransports(uint32_t ranks, const Changed &change = nullptr) {
  TemporaryDirectory directory;
  std::vector<Result<std::unique_ptr<Transport>>> results;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    results.push_back(internalError("did not run"));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      zorse::test::FileGroup group(directory.path("."), rank, ranks);
      GlooOptions options = glooOptions(rank, ranks);
      if (change)
        change(rank, options);
      results[rank] = makeGlooTransport(group, options);
      if (results[rank].failed())
        group.fail(results[rank].message());
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

inline std::vector<std::unique_ptr<Transport>> makeGlooTransports(uint32_t ranks,
                                                                  const Changed &change = nullptr) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Result<std::unique_ptr<Transport>> &result : tryGlooTransports(ranks, change)) {
    if (result.failed()) {
      ADD_FAILURE() << result.message();
      return {};
    }
    transports.push_back(std::move(*result));
  }
  return transports;
}

} // namespace zorse::runtime::test
