#include "zorse/runtime/GlooTransport.h"
#include "zorse/runtime/Measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <unistd.h>

using namespace zorse::runtime;

namespace {

[[noreturn]] void endProcess(ErrorKind kind, const std::string &message, int exitCode) {
  static std::atomic_flag ending = ATOMIC_FLAG_INIT;
  if (ending.test_and_set())
    for (;;)
      ::pause(); // another thread is about to end the process
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", kind == ErrorKind::User ? "error" : "internal error",
          message.c_str());
  ::_exit(exitCode);
}

} // namespace

Result<std::unique_ptr<Job>> Job::join(const RankEnvironment &environment,
                                       const JobOptions &options) {
  Result<std::string> secret = jobSecret(options.secretFile);
  if (secret.failed())
    return secret.error();
  auto job = std::make_unique<Job>();
  job->environment_ = environment;
  job->options_ = options;
  job->key_ = {environment.job, *secret};
  MemberOptions member;
  member.key = job->key_;
  member.rank = environment.rank;
  member.worldSize = environment.worldSize;
  member.generation = environment.generation;
  member.endpoints = environment.coordinator;
  member.times = options.times;
  if (environment.rank < options.names.size())
    member.device = options.names[environment.rank];
  member.failed = [job = job.get()](const Failure &failure) {
    if (job->coordinator_)
      job->coordinator_->waitForLateRanks();
    endProcess(failure.kind, failure.message, failure.exitCode);
  };
  if (environment.rank == 0 && !environment.coordinatorElsewhere) {
    CoordinatorOptions hosting;
    hosting.key = job->key_;
    hosting.worldSize = environment.worldSize;
    hosting.rank = 0;
    hosting.generation = std::max(environment.attempt + 1, environment.generation);
    Result<std::string> address = coordinatorAddress(environment, options.listen);
    if (address.failed())
      return address.error();
    hosting.listenAddress = *address;
    hosting.ports.clear();
    for (const Endpoint &endpoint : environment.coordinator)
      hosting.ports.push_back(endpoint.port);
    hosting.times = options.times;
    hosting.devices = options.names;
    Result<std::unique_ptr<Coordinator>> hosted = Coordinator::start(hosting);
    if (hosted.failed())
      return hosted.error();
    job->coordinator_ = std::move(*hosted);
    member.endpoints = {{hosting.listenAddress, job->coordinator_->port()}};
  }
  Result<std::unique_ptr<Member>> joined = Member::join(std::move(member));
  if (joined.failed()) {
    if (job->coordinator_) // another rank may have joined and failed before this one
      job->coordinator_->waitForLateRanks();
    return joined.error();
  }
  job->member_ = std::move(*joined);
  return job;
}

Result<std::unique_ptr<Transport>> Job::connect(const std::vector<uint32_t> &nodes,
                                                uint32_t connections) {
  GlooOptions options;
  Result<std::string> address = rankAddress(environment_, options_.listen);
  if (address.failed())
    return address.error();
  options.listenAddress = *address;
  options.job = key_.job;
  options.secret = key_.secret;
  options.deviceNames = options_.names;
  options.nodes = nodes;
  options.heartbeatSeconds = options_.times.heartbeatSeconds;
  options.heartbeatTimeoutSeconds = options_.times.heartbeatTimeoutSeconds;
  options.connectSeconds = options_.times.joinSeconds;
  for (uint32_t peer = 0; peer < environment_.worldSize; ++peer) {
    if (peer == environment_.rank)
      continue;
    options.peers.push_back(peer);
    if (peer < nodes.size() && nodes[peer] != nodes[environment_.rank])
      options.dataConnections[peer] = connections;
  }
  return makeGlooTransport(*member_, options);
}

void Job::leave() {
  member_->leave();
  if (coordinator_)
    coordinator_->waitUntilOver(options_.times.heartbeatTimeoutSeconds);
}

void Job::fail(const Error &error) {
  Failure mine = failureOf(error);
  mine.rank = environment_.rank;
  Failure verdict = member_->fail(mine);
  if (coordinator_)
    coordinator_->waitForLateRanks();
  endProcess(verdict.kind, verdict.message, verdict.exitCode);
}
