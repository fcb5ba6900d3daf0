#include "Gather.h"

#include "zorse/Planning/Profile.h"
#include "zorse/runtime/Measure.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::cluster;
using namespace zorse::runtime;

Result<planning::Cluster> zorse::cluster::gather(const RankEnvironment &environment,
                                                 const Description &mine,
                                                 const GatherOptions &options) {
  JobOptions joining;
  joining.secretFile = options.secretFile;
  joining.listen = options.listen;
  joining.times.joinSeconds = options.joinSeconds;
  Result<std::unique_ptr<Job>> joined = Job::join(environment, joining);
  if (joined.failed())
    return joined.error();
  Job &job = **joined;
  planning::Cluster all;
  Status status = [&]() -> Status {
    Result<std::vector<std::string>> texts =
        job.member().allGatherBytes("descriptions", planning::writeCluster(mine.cluster));
    if (texts.failed())
      return texts.error();
    std::vector<planning::Cluster> parts;
    std::vector<uint32_t> nodes;
    std::map<std::string, uint32_t> nodeByName;
    for (const std::string &text : *texts) {
      Result<planning::Cluster> part = planning::readCluster(text);
      if (part.failed())
        return userError("rank " + std::to_string(parts.size()) +
                         " sent a description that cannot be parsed (" + part.message() +
                         "); start every rank with the same version of Zorse");
      nodes.push_back(
          nodeByName.emplace(part->nodes.front().name, static_cast<uint32_t>(nodeByName.size()))
              .first->second);
      parts.push_back(std::move(*part));
    }
    all = merge(parts, options.name);
    if (!options.measure || environment.worldSize < 2)
      return Status::success();
    Result<std::unique_ptr<Transport>> transport = job.connect(nodes, 1);
    if (transport.failed())
      return transport.error();
    Result<std::vector<RankLink>> links =
        measureLinks(job.member(), **transport, nodes, options.linkSeconds, nullptr);
    if (links.failed())
      return links.error();
    std::vector<planning::LinkProfile> found;
    for (const RankLink &link : *links) {
      found.push_back({all.nodes[nodes[link.a]].name, all.nodes[nodes[link.b]].name,
                       std::max(link.alone.bandwidth, link.together), link.alone.latency,
                       link.together > 0 ? link.alone.bandwidth : 0,
                       std::floor(link.alone.halfBandwidthBytes)});
      char text[96];
      std::snprintf(text, sizeof text, ": %.4g MB/s, %.4g us", found.back().bandwidth / 1e6,
                    found.back().latency * 1e6);
      if (options.say && environment.rank == 0)
        options.say(found.back().from + " to " + found.back().to + text);
    }
    planning::applyLinks(found, all, all.topology);
    return Status::success();
  }();
  if (status.failed())
    job.fail(status.error());
  job.leave();
  return environment.rank == 0 ? all : planning::Cluster();
}

namespace {

std::string inQuotes(const std::string &word) {
  std::string out = "'";
  for (char c : word)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

struct Child {
  pid_t pid = -1;
  int in = -1, out = -1;
  std::string said;
};

Status start(const std::vector<std::string> &words, Child &child) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0)
    return internalError(std::string("cannot create a pipe: ") + std::strerror(errno));
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return internalError(std::string("cannot create a pipe: ") + std::strerror(errno));
  }
  std::vector<char *> argv;
  for (const std::string &word : words)
    argv.push_back(const_cast<char *>(word.c_str()));
  argv.push_back(nullptr);
  child.pid = ::fork();
  if (child.pid == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::execvp(argv[0], argv.data());
    std::string complaint = words[0] + ": cannot be run: " + std::strerror(errno) + "\n";
    (void)!::write(2, complaint.data(), complaint.size());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  child.in = in[1];
  child.out = out[0];
  return child.pid > 0 ? Status::success() : Status(internalError("cannot start a process"));
}

} // namespace

Result<std::string> zorse::cluster::gatherFromHosts(const HostsOptions &options) {
  std::signal(SIGPIPE, SIG_IGN); // the host may be unreachable
  JobKey key = randomJobKey();
  std::random_device random;
  unsigned first = 20000 + random() % 7000;
  std::vector<Child> children(options.hosts.size());
  Status failure;
  for (size_t i = 0; i < children.size() && failure.succeeded(); ++i) {
    std::string remote =
        "read -r ZORSE_SECRET; export ZORSE_SECRET; exec env ZORSE_RANK=" + std::to_string(i) +
        " ZORSE_WORLD_SIZE=" + std::to_string(children.size()) +
        " ZORSE_LOCAL_RANK=0 ZORSE_JOB=" + inQuotes(key.job) + " ZORSE_STORE=" +
        inQuotes(options.hosts[0] + ":" + std::to_string(first) + "-" + std::to_string(first + 7)) +
        " " + inQuotes(options.command) + " --all-nodes";
    for (const std::string &word : options.more)
      remote += " " + inQuotes(word);
    std::vector<std::string> words = options.shell;
    words.push_back(options.hosts[i]);
    words.push_back(remote);
    failure = start(words, children[i]);
    std::string secret;
    for (unsigned char c : key.secret) { // arbitrary bytes, sent in hexadecimal
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", c);
      secret += digits;
    }
    secret += "\n";
    if (failure.succeeded())
      (void)!::write(children[i].in, secret.data(),
                     secret.size()); // if the host does not read it, the error is reported below
  }
  std::string problems;
  std::vector<std::thread> readers;
  for (Child &child : children)
    if (child.pid > 0)
      readers.emplace_back([&child] {
        char buffer[4096];
        for (ssize_t n;
             (n = ::read(child.out, buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR);)
          if (n > 0 && child.said.size() < planning::kMaxClusterBytes)
            child.said.append(buffer, static_cast<size_t>(n));
      });
  for (std::thread &reader : readers)
    reader.join();
  for (size_t i = 0; i < children.size(); ++i) {
    Child &child = children[i];
    if (child.pid <= 0)
      continue;
    int code = 0;
    while (::waitpid(child.pid, &code, 0) < 0 && errno == EINTR)
      ;
    ::close(child.in);
    ::close(child.out);
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0)
      problems += (problems.empty() ? "" : ", ") + options.hosts[i] +
                  (WIFEXITED(code) ? " (exit code " + std::to_string(WEXITSTATUS(code)) + ")"
                                   : " (killed)");
  }
  if (failure.failed())
    return failure;
  if (!problems.empty())
    return userError(
        "no description from these hosts: " + problems + ". Each needs '" + options.command +
        "' in its PATH (--remote-command), a login without a password (ssh), and the ports " +
        std::to_string(first) + " to " + std::to_string(first + 7) + " of " + options.hosts[0] +
        " open to the others");
  return children[0].said;
}
