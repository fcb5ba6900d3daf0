// The cluster file: sites, nodes, devices, links (docs/reference/cluster-yaml.md).
#pragma once

#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace zorse {
struct Precision;
}

namespace zorse::planning {

/// Types in which devices multiply matrices, in the order of ClusterDevice::flopsPerSecond. A
/// model's compute type selects one. A device that does not support it cannot run the model.
inline constexpr bundle::ElementType kSpeedTypes[] = {bundle::F32, bundle::F16, bundle::BF16};
inline constexpr size_t kSpeeds = std::size(kSpeedTypes);

/// Returns the index of a compute type in kSpeedTypes. f64, a type for tests, counts as f32.
constexpr size_t speedIndex(bundle::ElementType computeType) {
  return computeType == bundle::F16 ? 1 : computeType == bundle::BF16 ? 2 : 0;
}

/// Whose kernels the modeled times of a device describe.
enum class ExecutionMode : uint8_t {
  Compiled, ///< those that Zorse compiles
  Tuned,    ///< of a framework with fused kernels for the expensive operations
  Eager     ///< of a framework that launches every operation separately
};
/// Values of `execution_mode`, by ExecutionMode.
inline constexpr std::initializer_list<const char *> kExecutionModes = {"compiled", "tuned",
                                                                        "eager"};

struct ClusterDevice {
  std::string name;
  std::string kind = "cpu"; ///< driver that runs the device
  std::string arch; ///< architecture to compile for, one of the kind's; empty: the compiler's
                    ///< default
  std::string gpu;  ///< UUID or PCI bus address of the GPU in its node; empty: any GPU that can run
                    ///< the code
  std::string type; ///< an entry of the table of device types, or free text
  uint32_t node = 0;                          ///< index in Cluster.nodes
  double flopsPerSecond[kSpeeds] = {0, 0, 0}; ///< FLOP/s that large matrix products reach, by
                                              ///< kSpeedTypes; 0: not supported
  uint32_t multiprocessors = 0; ///< multiprocessors of a GPU with times modeled kernel by kernel;
                                ///< 0: a roofline
  double halfPeakRows = 0; ///< roofline: matrix rows (samples x positions) at which products reach
                           ///< half of `flopsPerSecond`
  ExecutionMode executionMode = ExecutionMode::Compiled;
  double slowdown = 1; ///< factor on described and measured computing times: other processes or a
                       ///< lower clock take a part of the device
  double memoryBandwidth = 0; ///< bytes/s of the device's memory; 0: unknown, elementwise work then
                              ///< costs FLOPs only
  double launchOverhead = 0;  ///< seconds of overhead per call of a unit function
  uint64_t memory = 0;        ///< bytes, as described; 0: unlimited
  uint64_t reservedMemory = 0; ///< bytes of `memory` that programs must not use (context,
                               ///< libraries)
  uint32_t threads = 1;        ///< cpu: threads that share a launch
  double price = 0;            ///< per hour
  bool deviceToDevice = true;  ///< whether it may exchange data directly with other GPUs, if its
                               ///< kind supports that

  /// Bytes that programs may use; 0: unlimited. Everything except the description itself uses this.
  uint64_t capacity() const {
    return memory == 0 ? 0 : memory > reservedMemory ? memory - reservedMemory : 1;
  }
};

struct ClusterNode {
  std::string name;
  uint64_t hostMemory = 0; ///< bytes; 0: unknown
  double pcie = 0;   ///< bytes/s between one device and host memory, each direction; 0: unknown
  uint64_t nvme = 0; ///< bytes
  double nvmeBandwidth = 0; ///< bytes/s
  double price = 0;         ///< per hour, without the devices
};

/// Which GPUs exchange data directly, from memory to memory: those of one site, of one node, none,
/// or all.
enum class D2dScope : uint8_t { Site, Node, Nowhere, Everywhere };

struct Cluster {
  std::string name, currency = "USD";
  D2dScope deviceToDevice = D2dScope::Site;
  std::vector<ClusterDevice> devices; ///< in file order, which is rank order
  std::vector<ClusterNode> nodes;     ///< in file order
  bundle::Topology topology;       ///< sites and links; `node_of_device` in the order of `devices`
  std::vector<double> egressPrice; ///< per site: price of a byte that leaves it
};

/// Known values of a device type, for files that do not specify them. Values and sources:
/// lib/Planning/Cluster/DeviceTypes.cpp.
struct DeviceType {
  const char *name;
  const char *kind;
  double peak[kSpeeds];           ///< dense FLOP/s in the vendor's data sheet
  double flopsPerSecond[kSpeeds]; ///< FLOP/s that large products reach
  uint32_t multiprocessors;
  double memoryBandwidth;
  double launchOverhead;
  uint64_t memory, reservedMemory;
  double port; ///< bytes/s, each direction, to other devices of the node (NVLink or PCIe)
  double pcie;
  bool halfRateSums;  ///< f16 products with f32 accumulation run at half the rate: GeForce
  const char *arch;   ///< one of DeviceKind.architectures; "": the compiler's default
  const char *source; ///< the vendor's document with these values
};
const std::vector<DeviceType> &deviceTypes();
/// Finds the type with that name, as in the table or as drivers and users spell it ("RTX 4090",
/// "NVIDIA A100-SXM4-80GB"). Returns nullptr if no type or several match.
/// \param memory  bytes; 0: unknown, the name decides
const DeviceType *findDeviceType(const std::string &name, uint64_t memory = 0);

/// Limits that keep an invalid or hostile file from exhausting memory.
inline constexpr size_t kMaxClusterBytes = size_t(16) << 20;
inline constexpr size_t kMaxDevices = 65536;

/// Sets the devices' speeds to those of a precision's products.
/// - TF32, on GPUs that support it: half the speed of bf16, as in every data sheet since GA100, if
///   that is more.
/// - Accumulation in f16, on GeForce GPUs: 1.5 times the speed of f16, since weight gradients still
///   accumulate in f32.
/// \return  the assumptions about devices that gain nothing; an error if TF32 is requested and no
///   device supports it
Result<std::vector<std::string>> adaptToPrecision(Cluster &cluster, const Precision &precision);

// Errors of this library have the form of those of zorse/Step/Plan.h: one message per line, with
// "line N:" in front if it concerns a file.

/// Limits of ClusterDevice::slowdown.
inline constexpr double kMinSlowdown = 0.01, kMaxSlowdown = 1000;

Result<Cluster> readCluster(const std::string &yaml);

/// Messages start with the path.
/// \param text  receives the text of the file, if not null
Result<Cluster> readClusterFile(const std::string &path, std::string *text = nullptr);

/// Writes canonical YAML: readCluster(writeCluster(c)) describes the same cluster.
std::string writeCluster(const Cluster &cluster);

/// Returns a group number per device. Devices with the same number exchange data directly, from
/// memory to memory (step::PlanDevice::deviceToDevice); -1: the device has no direct peer.
std::vector<int32_t> d2dGroups(const Cluster &cluster);

/// The same for costs: devices that can only be simulated count as GPUs.
std::vector<int32_t> directGroups(const Cluster &cluster);

/// Returns a cluster's devices as a plan lists them: `flopsPerSecond` is the speed of the compute
/// type, `memory` the capacity.
std::vector<step::PlanDevice> planDevices(const Cluster &cluster, bundle::ElementType computeType);

/// Returns host memory in bytes by node name, for nodes where it is known.
std::map<std::string, uint64_t> hostMemory(const Cluster &cluster);

/// Sets the two links that a plan itself can specify, from the first node and site.
void planLinks(const Cluster &cluster, step::Plan &plan);

/// Completes a plan that specifies only device names: speed, memory, node, host memory and links
/// are copied from the cluster unless the plan specifies them. A device that is not in the cluster
/// is an error.
Status applyCluster(step::Plan &plan, const Cluster &cluster, bundle::ElementType computeType);

} // namespace zorse::planning
