// A launcher and a rank for LaunchTest. Arguments control their behavior, so that tests can kill
// it, stop it and read its output.
//
//   launch-probe [--world N] [--first R --local N --store host:port] [--restarts N]
//                [--names a,b,...] [--from TEXT] [--deadline S] -- COMMAND...
//   launch-probe rank STEPS
//
// The second form is a rank. It joins, takes steps of 20 ms through the gate, and leaves; 130 when
// stopped early.
#include "zorse/runtime/Launch.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace zorse::runtime;

namespace {

int rank(uint64_t steps) {
  Result<std::optional<RankEnvironment>> environment = readRankEnvironment(currentEnvironment());
  if (environment.failed() || !*environment) {
    fprintf(stderr, "error: %s\n",
            environment.failed() ? environment.message().c_str() : "no place");
    return 1;
  }
  Result<std::string> secret = jobSecret("");
  if (secret.failed()) {
    fprintf(stderr, "error: %s\n", secret.message().c_str());
    return 1;
  }
  MemberOptions options;
  options.key = {(**environment).job, *secret};
  options.rank = (**environment).rank;
  options.worldSize = (**environment).worldSize;
  options.generation = (**environment).generation;
  options.endpoints = (**environment).coordinator;
  options.device = "d" + std::to_string(options.rank);
  options.failed = [](const Failure &rootCause) {
    fprintf(stderr, "verdict: %s\n", rootCause.message.c_str());
    fflush(nullptr);
    ::_exit(rootCause.exitCode);
  };
  Result<std::unique_ptr<Member>> member = Member::join(options);
  if (member.failed()) {
    fprintf(stderr, "error: %s\n", member.message().c_str());
    return 3;
  }
  for (uint64_t step = 1; step <= steps; ++step) {
    if (!(*member)->beginIteration(step)) {
      printf("stopped before step %llu\n", (unsigned long long)step);
      (*member)->leave();
      return 130;
    }
    if (options.rank == 0) {
      printf("step %llu of generation %llu\n", (unsigned long long)step,
             (unsigned long long)(*member)->generation());
      fflush(stdout);
    }
    const char *dies = ::getenv("PROBE_DIES"); // rank 1, at step 3, in the first PROBE_DIES starts
    if (dies && options.rank == 1 && step == 3 &&
        (**environment).attempt < std::strtoull(dies, nullptr, 10))
      ::kill(::getpid(), SIGKILL);
    const char *stops = ::getenv("PROBE_STOPS");
    if (stops && options.rank == 1 && step == 3 && (**environment).attempt == 0)
      ::kill(::getpid(), SIGSTOP);
    ::usleep(20000);
    if (Result<std::vector<std::string>> all =
            (*member)->allGatherBytes("step " + std::to_string(step), "");
        all.failed()) { // ranks stay in step, as transfers would keep them
      ::sleep(10);
      return 4;
    }
  }
  (*member)->leave();
  if (::getenv("PROBE_STOPS_AT_THE_END") && options.rank == 1)
    ::kill(::getpid(), SIGSTOP);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 2 && std::strcmp(argv[1], "rank") == 0)
    return rank(std::strtoull(argv[2], nullptr, 10));
  LaunchOptions options;
  bool localGiven = false;
  int i = 1;
  for (; i + 1 < argc && std::strcmp(argv[i], "--") != 0; i += 2) {
    std::string option = argv[i], value = argv[i + 1];
    if (option == "--world")
      options.worldSize = uint32_t(std::stoul(value));
    if (option == "--first")
      options.firstRank = uint32_t(std::stoul(value));
    if (option == "--local") {
      options.localRanks = uint32_t(std::stoul(value));
      localGiven = true;
    }
    if (option == "--store") { // the node of rank 0 listens there, the others connect
      std::vector<Endpoint> store = *parseEndpoints("--store", value);
      if (options.firstRank == 0)
        options.ports = {store[0].port};
      else
        options.coordinator = store;
    }
    if (option == "--restarts")
      options.restarts = std::stoul(value);
    if (option == "--from")
      options.startsFrom = [value] { return value; };
    if (option == "--deadline")
      options.times.heartbeatTimeoutSeconds = std::stod(value);
    if (option == "--names")
      for (size_t begin = 0; begin <= value.size();) {
        size_t end = std::min(value.find(',', begin), value.size());
        options.deviceNames.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
  }
  if (!localGiven)
    options.localRanks = options.worldSize;
  if (const char *secret = ::getenv("ZORSE_SECRET"))
    options.key = {"probe", secret};
  for (++i; i < argc; ++i)
    options.command.push_back(argv[i]);
  return launch(options);
}
