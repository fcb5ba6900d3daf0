// zorse-cluster: writes cluster.yaml for the machine it runs on, or for the machines of a job, and
// measures the links between them (docs/reference/cluster-yaml.md).
#include "Gather.h"
#include "ParseFlags.h"

#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"
#include "zorse/runtime/StandardStreams.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include <unistd.h>

using namespace zorse;
using namespace zorse::cluster;
using namespace zorse::runtime;

namespace {

struct Options {
  DescribeOptions describe;
  GatherOptions gather;
  HostsOptions hosts;
  std::string output = "-", shell;
  bool together = false, quiet = false;
};

void say(const Options &o, const std::string &line) {
  if (!o.quiet)
    std::fprintf(stderr, "%s\n", line.c_str());
}

Status write(const Options &o, const std::string &text) {
  if (o.output == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0
               ? Status::success()
               : Status(userError(std::string("standard output cannot be written: ") +
                                  std::strerror(errno)));
  }
  return writeOutput(o.output, text);
}

/// Called in a Slurm allocation outside of its tasks. Replaces the process with srun, which starts
/// one task per node.
[[noreturn]] void becomeSrun(char **argv) {
  std::vector<char *> words;
  std::vector<std::string> own = {"srun", "--ntasks-per-node=1", "--cpu-bind=none", "--overlap"};
  for (std::string &word : own)
    words.push_back(word.data());
  for (char **word = argv; *word; ++word)
    words.push_back(*word);
  words.push_back(nullptr);
  ::execvp("srun", words.data());
  std::fprintf(stderr,
               "error: cannot run srun in this Slurm allocation: %s. Run 'srun --ntasks-per-node=1 "
               "--cpu-bind=none zorse-cluster --all-nodes ...' yourself\n",
               std::strerror(errno));
  ::_exit(1);
}

Status start(Options &o, char **argv) {
  if (o.output != "-")
    if (Status status =
            checkOverwrites({{"--secret-file", o.gather.secretFile}}, {{"--output", o.output}});
        status.failed())
      return status;
  if (!o.hosts.hosts.empty()) {
    for (const auto &[flag, given] :
         {std::make_pair("--measure", o.describe.measure), std::make_pair("--cpu", o.describe.cpu),
          std::make_pair("--pin-gpus", o.describe.pinGpus), std::make_pair("--quiet", o.quiet)})
      if (given)
        o.hosts.more.push_back(flag);
    for (const auto &[option, value] :
         {std::make_pair("--name", o.gather.name), std::make_pair("--nvml", o.describe.nvml),
          std::make_pair("--local-addr", o.gather.listen)})
      if (!value.empty()) {
        o.hosts.more.push_back(option);
        o.hosts.more.push_back(value);
      }
    Result<std::string> text = gatherFromHosts(o.hosts);
    if (text.failed())
      return text.error();
    if (Result<planning::Cluster> read = planning::readCluster(*text); read.failed())
      return userError(o.hosts.hosts[0] + " did not write a cluster description (" +
                       read.message() +
                       "); does it have the same version of zorse-cluster, and does its login "
                       "shell print nothing?");
    return write(o, *text);
  }
  Result<std::optional<RankEnvironment>> environment =
      o.together ? readRankEnvironment(currentEnvironment())
                 : Result<std::optional<RankEnvironment>>(std::optional<RankEnvironment>());
  if (environment.failed())
    return environment.error();
  if (o.together && !*environment) {
    if (std::getenv("SLURM_JOB_NODELIST"))
      becomeSrun(argv);
    return userError("--all-nodes: this process was not started by a launcher; start it with srun, "
                     "mpirun or torchrun, one process per node, or give --hosts");
  }
  Result<Description> mine = describe(o.describe);
  if (mine.failed())
    return mine.error();
  for (const std::string &note : mine->notes)
    say(o, note);
  if (!o.together) {
    if (!o.gather.name.empty())
      mine->cluster.name = o.gather.name;
    return write(o, planning::writeCluster(mine->cluster));
  }
  o.gather.measure = o.describe.measure;
  o.gather.say = [&o](const std::string &line) { say(o, line); };
  Result<planning::Cluster> all = gather(**environment, *mine, o.gather);
  if (all.failed())
    return all.error();
  return (*environment)->rank == 0 ? write(o, planning::writeCluster(*all)) : Status::success();
}

} // namespace

int main(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  Options o;
  CLI::App app{"Writes cluster.yaml for this machine, or for the machines of a job or of a list of "
               "hosts (docs/reference/cluster-yaml.md)."};
  app.add_option("-o,--output", o.output, "output file; -: standard output")->capture_default_str();
  app.add_option("--name", o.gather.name, "name of the cluster");
  app.add_option("--node-name", o.describe.node,
                 "node name of this machine (default: the host name)");
  app.add_flag("--cpu", o.describe.cpu, "list the CPUs as a device even if there are GPUs");
  app.add_flag("--pin-gpus", o.describe.pinGpus,
               "name every GPU by its UUID; runs then fail if it is not found");
  app.add_flag("--measure", o.describe.measure,
               "measure CPU speed, and with --all-nodes or --hosts the links between nodes");
  auto *together = app.add_flag("--all-nodes", o.together,
                                "describe all nodes of a launcher's job (srun, mpirun, torchrun: "
                                "one process per node; docs/guides/clusters.md) or of a "
                                "Slurm allocation; rank 0 writes the file");
  app.add_option("--hosts", o.hosts.hosts,
                 "host names, separated by commas: starts zorse-cluster on each over ssh")
      ->delimiter(',')
      ->excludes(together);
  app.add_option("--ssh-command", o.shell,
                 "command that runs on a remote host, placed before the host name (default: 'ssh "
                 "-o BatchMode=yes')");
  app.add_option("--remote-command", o.hosts.command, "zorse-cluster command on the hosts")
      ->capture_default_str();
  app.add_option("--link-measure-seconds", o.gather.linkSeconds,
                 "approximate measurement time per link, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.05, 600.0));
  app.add_option("--rdzv-timeout", o.gather.joinSeconds,
                 "seconds after the start within which all ranks must connect")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--secret-file", o.gather.secretFile,
                 "file with the job's secret, as for zorse-run");
  app.add_option("--local-addr", o.gather.listen,
                 "address of this host for other ranks, as for zorse-run");
  app.add_option("--nvml", o.describe.nvml,
                 "path of the NVML library (default: libnvidia-ml.so.1)");
  app.add_flag("--quiet", o.quiet, "print errors only");
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-cluster"))
    return *done;
  if (const char *visible = std::getenv("CUDA_VISIBLE_DEVICES")) // NVML lists all GPUs
    o.describe.visible = visible;
  if (!o.shell.empty()) {
    std::istringstream words(o.shell);
    o.hosts.shell.assign(std::istream_iterator<std::string>(words), {});
  }
  for (const std::string &host : o.hosts.hosts)
    if (host.empty() || host[0] == '-') {
      std::fprintf(stderr, "error: --hosts: expected names of hosts, got '%s'\n", host.c_str());
      return 1;
    }
  if (!o.describe.node.empty() && o.describe.node.find_first_of("/\\ \t\n") != std::string::npos) {
    std::fprintf(stderr,
                 "error: --node-name: expected a name without spaces or slashes, got '%s'\n",
                 o.describe.node.c_str());
    return 1;
  }
  Status status = start(o, argv);
  if (status.succeeded())
    return 0;
  std::fprintf(stderr, "%s: %s\n",
               status.error().kind == ErrorKind::User ? "error" : "internal error",
               status.message().c_str());
  return status.error().code();
}
