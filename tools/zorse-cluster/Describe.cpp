#include "Describe.h"

#include "Nvml.h"

#include "zorse/Base/Format.h"
#include "zorse/Planning/DeviceDefaults.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Measure.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <sched.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::cluster;
using namespace zorse::runtime;
namespace fs = std::filesystem;

namespace {

std::string firstLine(const fs::path &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns 0 if the file does not contain a valid number.
double numberIn(const fs::path &path) {
  std::string text = firstLine(path);
  char *end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  return end != text.c_str() && std::isfinite(number) && number > 0 && number < 1e18 ? number : 0;
}

std::vector<fs::path> entries(const fs::path &directory) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    all.push_back(it->path());
  std::sort(all.begin(), all.end());
  return all;
}

std::string nameFor(std::string text) {
  text = text.substr(0, text.find('.')).substr(0, 60);
  for (char &c : text)
    c = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '-';
  return text.empty() || !std::isalpha(static_cast<unsigned char>(text[0])) ? "host-" + text : text;
}

class Describer {
public:
  explicit Describer(const DescribeOptions &options)
      : o(options), root(options.root.empty() ? "/" : options.root) {}

  Result<Description> run() {
    char host[256] = "host";
    ::gethostname(host, sizeof host - 1);
    node.name = !o.node.empty()
                    ? o.node
                    : nameFor(o.root.empty() ? host : firstLine(root / "proc/sys/kernel/hostname"));
    described.set_name(node.name);
    described.mutable_port()->set_latency(2e-6);
    readMemory();
    readGpus();
    if (devices.empty() || o.cpu)
      if (Status status = readCpus(); status.failed())
        return status;
    readNetwork();
    readDisks();

    planning::Cluster &cluster = out.cluster;
    cluster.name = node.name;
    auto *site = cluster.topology.add_sites();
    site->set_name("site");
    site->mutable_fabric()->set_latency(1e-4);
    cluster.egressPrice.push_back(0);
    cluster.nodes.push_back(node);
    *cluster.topology.add_nodes() = described;
    for (planning::ClusterDevice &device : devices) {
      cluster.devices.push_back(device);
      cluster.topology.add_node_of_device(0);
    }
    return out;
  }

private:
  void note(const std::string &text) { out.notes.push_back(node.name + ": " + text); }

  void readMemory() {
    std::ifstream file(root / "proc/meminfo");
    double total = 0;
    for (std::string line; std::getline(file, line);)
      if (line.rfind("MemTotal:", 0) == 0)
        total = std::atof(line.c_str() + 9) * 1024;
    memory = total;
    for (const char *limit :
         {"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"})
      if (double bytes = numberIn(root / limit); bytes > 0 && (memory == 0 || bytes < memory)) {
        memory = bytes;
        note("a control group leaves " + format("%.3g GB", bytes / 1e9) + " of " +
             format("%.3g GB", total / 1e9) + " of memory");
      }
    if (memory >= 65536)
      node.hostMemory = static_cast<uint64_t>(memory);
  }

  void readGpus() {
    std::string why;
    std::vector<Gpu> gpus = findGpus(o.nvml, why);
    if (!why.empty())
      note(why);
    if (o.visible && !gpus.empty()) {
      const size_t all = gpus.size();
      gpus = visibleGpus(gpus, *o.visible);
      note("CUDA_VISIBLE_DEVICES=" + *o.visible + " leaves " + std::to_string(gpus.size()) +
           " of " + std::to_string(all) + " GPUs");
    }
    std::map<std::string, int> used;
    double port = 0, pcie = 0;
    for (const Gpu &gpu : gpus) {
      if (gpu.sliced) {
        note(gpu.name + (gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")") +
             " is divided into MIG slices, and a process sees only one slice: it is omitted. "
             "Describe each slice by hand, with its "
             "'flops_per_second' and 'gpu', and start each rank with its CUDA_VISIBLE_DEVICES");
        continue;
      }
      planning::ClusterDevice device;
      const planning::DeviceType *known = planning::findDeviceType(gpu.name, gpu.memory);
      device.kind = "cuda";
      if (known) {
        device.type = known->name;
        std::copy(std::begin(known->flopsPerSecond), std::end(known->flopsPerSecond),
                  device.flopsPerSecond);
        device.multiprocessors = known->multiprocessors;
        device.memoryBandwidth = known->memoryBandwidth;
        device.launchOverhead = known->launchOverhead;
      } else {
        device.type = nameFor(gpu.name);
        std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), 10e12);
        device.memoryBandwidth = planning::kDeviceBandwidth;
        device.launchOverhead = planning::kDeviceLaunch;
        note(gpu.name + " is not in the table of GPU types: assuming 10 TFLOP/s. Set its "
                        "'flops_per_second', or measure it with zorse-profile");
      }
      device.arch = archOfGpu(gpu);
      if (device.arch.empty() && known)
        device.arch = known->arch;
      if (gpu.capability > 0 && device.arch.empty())
        note(gpu.name + " is too old for code generation: it cannot be used");
      device.memory = gpu.memory;
      if (o.pinGpus)
        device.gpu = gpu.uuid;
      device.reservedMemory = std::min<uint64_t>(uint64_t(2000000000), gpu.memory / 4);
      std::string base = node.name + "-" + nameFor(known ? known->name : gpu.name);
      device.name = base + ":" + std::to_string(used[base]++);
      devices.push_back(device);
      double link = nvlinkBandwidth(gpu), bus = pcieBandwidth(gpu);
      double best = link > 0 ? link : bus;
      port = port > 0 && best > 0 ? std::min(port, best) : std::max(port, best);
      pcie = pcie > 0 && bus > 0 ? std::min(pcie, bus) : std::max(pcie, bus);
      note(gpu.name + ", " + format("%.3g GB", static_cast<double>(gpu.memory) / 1e9) + ", PCIe " +
           std::to_string(gpu.pcieGeneration) + " x" + std::to_string(gpu.pcieWidth) +
           (gpu.nvlinks ? ", " + std::to_string(gpu.nvlinks) + " NVLinks" : ""));
    }
    if (port > 0)
      described.mutable_port()->set_bandwidth(port);
    node.pcie = pcie;
  }

  Status readCpus() {
    std::ifstream file(root / "proc/cpuinfo");
    std::string model;
    int cpus = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("processor", 0) == 0)
        ++cpus;
      if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos && model.empty())
        model = line.substr(std::min(line.find(':') + 2, line.size()));
    }
    cpu_set_t set;
    if (o.root.empty() && ::sched_getaffinity(0, sizeof set, &set) == 0)
      cpus = CPU_COUNT(&set);
    cpus = std::clamp(cpus, 1, 4096);
    double usable = cpus;
    CpuQuota quota = cpuQuota(o.root);
    if (quota.cpus > 0 && quota.cpus < cpus) {
      usable = quota.cpus;
      note("a control group leaves " + format("%.3g", quota.cpus) + " of " + std::to_string(cpus) +
           " processors");
    }
    planning::ClusterDevice device;
    device.name = node.name + "-cpu";
    device.kind = "cpu";
    device.threads = static_cast<uint32_t>(std::ceil(usable - 1e-9));
    // Memory reserved for the operating system and for other processes of a run.
    if (memory >= 262144) {
      device.memory = static_cast<uint64_t>(memory);
      device.reservedMemory = static_cast<uint64_t>(memory / 8);
    }
    device.memoryBandwidth = planning::kThreadBandwidth * device.threads;
    device.launchOverhead = planning::kCpuLaunch;
    double speed = planning::findDeviceType("cpu-thread")->flopsPerSecond[0] * usable;
    if (o.measure) {
      Result<double> measured = measureMatmuls(static_cast<int>(device.threads));
      if (measured.failed())
        return measured.error();
      speed = *measured;
    }
    std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), speed);
    devices.push_back(device);
    described.mutable_port()->set_bandwidth(
        described.port().bandwidth() > 0 ? described.port().bandwidth() : 10e9);
    note((model.empty() ? "a processor" : model) + ", " + std::to_string(cpus) + " processors; " +
         format("%.3g GFLOP/s ", speed / 1e9) +
         (o.measure ? "measured" : "estimated; --measure measures it"));
    return Status::success();
  }

  void readNetwork() {
    double infiniband = 0, ethernet = 0;
    for (const fs::path &card : entries(root / "sys/class/infiniband"))
      for (const fs::path &port : entries(card / "ports"))
        if (firstLine(port / "state").find("ACTIVE") != std::string::npos)
          infiniband += numberIn(port / "rate") * 0.125e9; // "200 Gb/sec (4X HDR)"
    std::string name;
    for (const fs::path &card : entries(root / "sys/class/net")) {
      std::error_code error;
      if (!fs::exists(card / "device", error) || firstLine(card / "operstate") == "down")
        continue;                                        // bridges, tunnels, loopback
      double speed = numberIn(card / "speed") * 0.125e6; // Mbit/s
      if (speed > ethernet) {
        ethernet = speed;
        name = card.filename().string();
      }
    }
    double best = std::max(infiniband, ethernet);
    if (best < 1e3) {
      best = 1.25e9;
      note("no NIC reports its speed: assuming 10 Gbit/s; --measure measures it");
    } else {
      note((infiniband >= ethernet ? std::string("InfiniBand") : name) +
           format(", %.3g Gbit/s", best * 8e-9));
    }
    described.mutable_nic()->set_bandwidth(best);
  }

  void readDisks() {
    double bytes = 0;
    for (const fs::path &disk : entries(root / "sys/block"))
      if (disk.filename().string().rfind("nvme", 0) == 0)
        bytes += numberIn(disk / "size") * 512;
    if (bytes >= 65536 && bytes < 1e15)
      node.nvme = static_cast<uint64_t>(bytes);
  }

  const DescribeOptions &o;
  fs::path root;
  Description out;
  planning::ClusterNode node;
  bundle::Topology::Node described;
  std::vector<planning::ClusterDevice> devices;
  double memory = 0;
};

} // namespace

Result<Description> zorse::cluster::describe(const DescribeOptions &options) {
  return Describer(options).run();
}

planning::Cluster zorse::cluster::merge(const std::vector<planning::Cluster> &parts,
                                        const std::string &name) {
  planning::Cluster all;
  all.name = name;
  std::set<std::string> seen;
  for (const planning::Cluster &part : parts) {
    if (all.topology.sites_size() == 0) {
      *all.topology.mutable_sites() = part.topology.sites();
      all.egressPrice = part.egressPrice;
    }
    for (uint32_t n = 0; n < part.nodes.size(); ++n) {
      if (!seen.insert(part.nodes[n].name).second)
        continue; // another rank of the same host
      uint32_t index = static_cast<uint32_t>(all.nodes.size());
      all.nodes.push_back(part.nodes[n]);
      bundle::Topology::Node *node = all.topology.add_nodes();
      *node = part.topology.nodes(static_cast<int>(n));
      node->set_site(0);
      for (planning::ClusterDevice device : part.devices)
        if (device.node == n) {
          device.node = index;
          all.devices.push_back(device);
          all.topology.add_node_of_device(index);
        }
    }
  }
  return all;
}

Result<double> zorse::cluster::measureMatmuls(int threads) {
  constexpr int64_t n = 1024;
  CpuDeviceOptions options;
  options.threads = threads;
  Result<std::unique_ptr<CpuDevice>> device = CpuDevice::create(options);
  if (device.failed())
    return device.error();
  bundle::CompiledFunction function;
  function.set_name("product");
  for (uint32_t i = 0; i < 3; ++i) {
    bundle::FunctionArgument &argument = *function.add_arguments();
    argument.set_kind(bundle::WORKSPACE);
    argument.set_index(i);
    argument.set_mode(bundle::UPDATE);
    argument.set_type(bundle::F32);
    argument.mutable_bytes()->set_fixed(n * n * 4);
  }
  bundle::Matmul &product = *function.add_launches()->mutable_matmul();
  product.set_type(bundle::F32);
  for (bundle::AffineSize *extent : {product.mutable_m(), product.mutable_n(), product.mutable_k()})
    extent->set_fixed(n);
  product.mutable_batch()->set_fixed(1);
  product.mutable_a()->set_argument(0);
  product.mutable_b()->set_argument(1);
  product.mutable_c()->set_argument(2);
  product.set_lda(n);
  product.set_ldb(n);
  product.set_ldc(n);
  product.set_alpha(1);
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<DeviceAddress> addresses;
  std::vector<float> numbers(n * n, 0.25f);
  for (int i = 0; i < 3; ++i) {
    Result<std::unique_ptr<DeviceMemory>> allocated =
        (*device)->allocate(bundle::DEVICE, n * n * 4, {});
    if (allocated.failed())
      return allocated.error();
    if (Status status = (*device)->write((*allocated)->base(), numbers.data(), n * n * 4);
        status.failed())
      return status;
    addresses.push_back((*allocated)->base());
    memory.push_back(std::move(*allocated));
  }
  FunctionArguments arguments;
  arguments.addresses = addresses.data();
  Status failure = (*device)->runFunction(function, arguments); // warm-up
  CpuQuota quota = cpuQuota();
  std::vector<double> samples;
  for (int round = 0; round < 5 && failure.succeeded(); ++round)
    samples.push_back(timedSample(std::max(0.1, 20 * quota.period), [&]() -> int64_t {
      if (Status status = (*device)->runFunction(function, arguments); status.failed())
        failure = status;
      return 1;
    }));
  if (failure.failed())
    return failure;
  return 2.0 * n * n * n / median(samples);
}
