// The cluster file: sites, nodes, devices, links (docs/cluster.md).
#pragma once

#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace zorse {
struct Precision;
}

namespace zorse::planning {

/// Types that devices multiply matrices in, in the order of ClusterDevice::speed. A model's compute type picks one; a device that lacks it cannot run
/// the model.
inline constexpr bundle::ElementType kSpeedTypes[] = {bundle::F32, bundle::F16, bundle::BF16};
inline constexpr size_t kSpeeds = std::size(kSpeedTypes);

/// Place of a compute type among them; f64, a type for tests, counts as f32.
constexpr size_t speedIndex(bundle::ElementType computeType) { return computeType == bundle::F16 ? 1 : computeType == bundle::BF16 ? 2 : 0; }

struct ClusterDevice {
  std::string name;
  std::string kind = "cpu";          ///< which driver runs it
  std::string arch;                  ///< what its code is to be for, one of the kind's architectures; empty: what the compiler is asked for
  std::string gpu;                   ///< which GPU of its node it is: UUID or address on the PCI bus; empty: any that runs its code
  std::string type;                  ///< an entry of the table of device types, or free text
  uint32_t node = 0;                 ///< index in Cluster.nodes
  double speed[kSpeeds] = {0, 0, 0}; ///< FLOP/s that large matrix products reach, by kSpeedTypes; 0: not supported
  uint32_t multiprocessors = 0;      ///< of a GPU whose times are modelled launch by launch; 0: they follow a roofline
  double halfRows = 0;               ///< of a roofline: matrix rows (samples x positions) at which products reach half of `speed`
  bool eager = false;                ///< it is to be as slow as a framework that launches every operation by itself, not as our kernels
  double memoryBandwidth = 0;        ///< bytes/s of the device's memory; 0: not known, elementwise work then costs FLOPs only
  double launch = 0;                 ///< seconds every call of a unit function costs besides
  uint64_t memory = 0;               ///< bytes, as described; 0: not limited
  uint64_t reserve = 0;              ///< bytes of it that programs leave alone (context, libraries)
  uint32_t threads = 1;              ///< cpu: threads that share a launch
  double price = 0;                  ///< per hour
  bool direct = true;                ///< may exchange directly with other GPUs, where its kind can

  /// Bytes that programs may use: what everything but the description itself asks for; 0: not limited.
  uint64_t capacity() const { return memory == 0 ? 0 : memory > reserve ? memory - reserve : 1; }
};

struct ClusterNode {
  std::string name;
  uint64_t hostMemory = 0;  ///< bytes; 0: not known
  double pcie = 0;          ///< bytes/s between one device and host memory, each direction; 0: not known
  uint64_t nvme = 0;        ///< bytes
  double nvmeBandwidth = 0; ///< bytes/s
  double price = 0;         ///< per hour, besides its devices'
};

/// How far GPUs exchange directly, from memory to memory.
enum class DirectReach : uint8_t { Site, Node, Nowhere };

struct Cluster {
  std::string name, currency = "USD";
  DirectReach direct = DirectReach::Site;
  std::vector<ClusterDevice> devices; ///< in file order, which is rank order
  std::vector<ClusterNode> nodes;     ///< in file order
  bundle::Topology topology;          ///< sites, links; node_of_device as `devices`
  std::vector<double> egressPrice;    ///< per site: per byte that leaves it
};

/// What is known about a type of device when the file does not say. Figures and sources: lib/Planning/Cluster/DeviceTypes.cpp.
struct DeviceType {
  const char *name;
  const char *kind;
  double peak[kSpeeds];  ///< the vendor's dense FLOP/s
  double speed[kSpeeds]; ///< what large products reach of it
  uint32_t multiprocessors;
  double memoryBandwidth;
  double launch;
  uint64_t memory, reserve;
  double port; ///< bytes/s, each direction, towards other devices of the node (NVLink or PCIe)
  double pcie;
  bool halfRateSums;  ///< products of f16 run at half the rate where their sums are f32: GeForce
  const char *arch;   ///< DeviceKind.architectures; "": what the compiler is asked for
  const char *source; ///< where the vendor published the figures
};
const std::vector<DeviceType> &deviceTypes();
/// The type of that name, as the table spells it or as people and drivers do ("RTX 4090", "NVIDIA A100-SXM4-80GB"); nullptr if there is none, or
/// several.
/// \param memory  bytes, where they are known; 0: what the name says
const DeviceType *findDeviceType(const std::string &name, uint64_t memory = 0);

/// Limits that keep a wrong or hostile file from exhausting the machine.
inline constexpr size_t kMostClusterBytes = size_t(16) << 20;
inline constexpr size_t kMostDevices = 65536;

/// Gives devices the speed of a precision's products. In TF32, of GPUs that have it: half of what bf16 reaches, as in every data sheet since GA100,
/// if that is more. With sums in f16, of GeForce GPUs: 1.5 times that of f16, since the gradients of weights keep sums in f32.
/// \return  what is assumed of the devices that gain nothing; an error where TF32 is asked for and all lack it.
Result<std::vector<std::string>> adaptToPrecision(Cluster &cluster, const Precision &precision);

// Errors of this library are like those of zorse/Step/Plan.h: one message per line, with "line N:" in front where it concerns a file.

Result<Cluster> readCluster(const std::string &yaml);

/// Messages start with the path. \param text  receives that of the file, if not null
Result<Cluster> readClusterFile(const std::string &path, std::string *text = nullptr);

/// Canonical YAML: readCluster(writeCluster(c)) describes the same cluster.
std::string writeCluster(const Cluster &cluster);

/// By device: those of one number exchange directly, from memory to memory (step::PlanDevice::direct); -1: with nobody.
std::vector<int32_t> directGroups(const Cluster &cluster);

/// Devices of a cluster as a plan lists them; `speed` is that of the compute type, `memory` the capacity.
std::vector<step::PlanDevice> planDevices(const Cluster &cluster, bundle::ElementType computeType);

/// Host memory by node, where it is known.
std::map<std::string, uint64_t> hostMemory(const Cluster &cluster);

/// The two link classes a plan can state by itself, from the first node and site.
void planLinks(const Cluster &cluster, step::Plan &plan);

/// Completes a plan that names devices only: speed, memory, node, host memory and links from the cluster, except where the plan has its own. A device
/// the cluster does not have is an error.
Status applyCluster(step::Plan &plan, const Cluster &cluster, bundle::ElementType computeType);

} // namespace zorse::planning
