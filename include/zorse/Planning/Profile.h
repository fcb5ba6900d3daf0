// Measured times of a model's unit functions on device types (docs/reference/profile-json.md).
// zorse-profile writes profiles; users import them for devices that they cannot reach.
#pragma once

#include "zorse/Planning/Cluster.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zorse::planning {

/// Seconds of the tasks of one unit class at one row count; negative: not measured.
struct ProfilePoint {
  int64_t rows = 0;
  double forward = -1, backward = -1, inputGradients = -1, weightGradients = -1;
  int64_t memory = -1; ///< bytes that the tasks used in addition to their operands; plans use the
                       ///< larger of this and the workspace of the class
};

struct ClassProfile {
  uint32_t degree = 1;              ///< tensor-parallel degree
  std::vector<ProfilePoint> points; ///< ascending rows
};

struct DeviceProfile {
  std::string device; ///< name of a device, of its entry in the cluster file, or of a device type;
                      ///< the most specific one applies
  /// By class name ("block attention"), see UnitInfo.class_id; one entry per degree.
  std::map<std::string, std::vector<ClassProfile>> classes;
  double updatePerElement = -1, updateFixed = 0;         ///< seconds
  double hostUpdatePerElement = -1, hostUpdateFixed = 0; ///< update by the CPU of the device's host
  double normPerElement = -1, normFixed = 0;
  double copyPerByte = -1, copyFixed = 0;
  double loadPerByte = -1, loadFixed = 0;
  double launchOverhead = -1; ///< seconds of a call of an empty function; replaces
                              ///< ClusterDevice.launch in rooflines
  /// Costs of communication by a device that moves its messages with its own CPUs: seconds of
  /// compute time lost per byte and per message, and seconds that a message waits for a CPU while
  /// the device computes.
  double communicationPerByte = -1, communicationPerMessage = 0, communicationDelay = 0;
  uint64_t memory = 0; ///< bytes of memory found; 0: not measured
};

struct LinkProfile {
  std::string from, to;              ///< device names, or node names
  double bandwidth = 0, latency = 0; ///< bytes/s of all flows together, seconds one way
  double perFlowBandwidth = 0;       ///< bytes/s that one flow reached; 0: not measured
  double halfBandwidthBytes = 0;     ///< bytes of the message that reached half of its flow's rate
};

struct Profile {
  std::string model;     ///< ModelSummary.content_hash; "": any model with these classes
  std::string precision; ///< Precision::name() of the measured model; "": any
  std::string comment;   ///< where and how it was measured; human-readable
  std::vector<DeviceProfile> devices;
  std::vector<LinkProfile> links;
};

inline constexpr size_t kMaxProfileBytes = size_t(64) << 20;

/// Names of a model's unit classes, by class_id: the name of the first unit of the class without
/// its numbers ("block 3 attention" is of class "block attention"). If several classes would have
/// one name, " (2)", " (3)" ... are appended.
std::vector<std::string> classNames(const bundle::ModelSummary &summary);

/// Replaces described links by measured ones. A link within a node sets the node's port, a link
/// within a site sets its nodes' cards and the fabric's latency, and a link between sites sets that
/// pair of sites. The best of several measurements of one link counts, because the slower ones were
/// limited by their other end. Links of other devices are ignored.
void applyLinks(const std::vector<LinkProfile> &links, const Cluster &cluster,
                bundle::Topology &topology);

/// Limits the memory of devices to the bytes that a profile found on them, if the cluster specifies
/// no limit or a larger one.
/// \returns a line for each kind of device that this concerns
std::vector<std::string> limitMemory(const Profile &profile, Cluster &cluster);
/// Raises the workspace of a class's tasks to the bytes that a profile measured with their times on
/// any device of the cluster. Between and beyond the measured points, bytes follow the steepest
/// line from one point to the next.
/// \returns a line for each class that this concerns
std::vector<std::string> raiseWorkspace(const Profile &profile, const Cluster &cluster,
                                        bundle::ModelSummary &summary);

// Errors as in Cluster.h, with the path in the file in front
// ("devices[0].classes[\"head\"].points[2].rows: ..."). Limits: docs/reference/profile-json.md.
Result<Profile> readProfile(const std::string &json);
Result<Profile> readProfileFile(const std::string &path);
/// Reads several files. If two measured the same class of the same device, or the same link, the
/// later one counts.
Result<Profile> readProfileFiles(const std::vector<std::string> &paths);
/// Adds the measurements of `later` to `all`. If both have a measurement, the later one counts.
void mergeProfile(Profile &all, Profile later);
std::string writeProfile(const Profile &profile);

} // namespace zorse::planning
