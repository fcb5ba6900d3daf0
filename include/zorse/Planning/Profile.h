// Measured times of a model's unit functions on types of devices (docs/profile.md): what zorse-profile writes, and what users import for devices that
// are not here.
#pragma once

#include "zorse/Planning/Cluster.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zorse::planning {

/// Seconds of the tasks of one unit class at one number of rows; negative: not measured.
struct ProfilePoint {
  int64_t rows = 0;
  double forward = -1, backward = -1, inputGradients = -1, weightGradients = -1;
  int64_t memory = -1; ///< bytes that the tasks took besides their operands; plans count them where they are more than the class's own workspace
};

struct ClassProfile {
  uint32_t degree = 1;              ///< tensor-parallel degree
  std::vector<ProfilePoint> points; ///< ascending rows
};

struct DeviceProfile {
  std::string device; ///< a device's name, the name its entry in the cluster file has, or a device type's: the more particular one applies
  std::map<std::string, std::vector<ClassProfile>> classes; ///< by the class's name ("block attention"), see UnitInfo.class_id; one per degree
  double updatePerElement = -1, updateFixed = 0;            ///< seconds
  double hostUpdatePerElement = -1, hostUpdateFixed = 0;    ///< by the processor of its host
  double normPerElement = -1, normFixed = 0;
  double copyPerByte = -1, copyFixed = 0;
  double loadPerByte = -1, loadFixed = 0;
  double launch = -1; ///< of a call of a function that does nothing: takes the place of ClusterDevice.launch in rooflines
  /// Of a device whose own processors move what it sends and receives: seconds of computing that it loses to a byte and to a message, and seconds
  /// that a message waits for a processor while it computes.
  double communicationPerByte = -1, communicationPerMessage = 0, communicationDelay = 0;
  uint64_t memory = 0; ///< bytes found; 0: not measured
};

struct LinkProfile {
  std::string from, to;              ///< device names, or node names
  double bandwidth = 0, latency = 0; ///< bytes/s of as many flows as it takes, seconds one way
  double flow = 0;                   ///< bytes/s that one flow reached; 0: not measured
  double halfSize = 0;               ///< bytes of the message that reached half of its flow's rate
};

struct Profile {
  std::string model;     ///< ModelSummary.content_hash; "": any model with these classes
  std::string precision; ///< Precision::name() of what was measured; "": any
  std::string comment;   ///< where and how it was measured, for people
  std::vector<DeviceProfile> devices;
  std::vector<LinkProfile> links;
};

inline constexpr size_t kMostProfileBytes = size_t(64) << 20;

/// Names of a model's unit classes, by class_id: of the first unit's name what is not a number ("block 3 attention" is of class "block attention");
/// where several classes would have one name, " (2)", " (3)" ... follow.
std::vector<std::string> classNames(const bundle::ModelSummary &summary);

/// Measured links in place of described ones: within a node they are its port; within a site its nodes' cards and the fabric's latency; between sites
/// that pair of sites. Of several measurements of one thing the best counts: the others were held up by what is at their other end. Links of other
/// devices are passed over.
void applyLinks(const std::vector<LinkProfile> &links, const Cluster &cluster, bundle::Topology &topology);

/// Bytes that a profile found on a device limit it where the cluster gives it none, or more. \returns a line for each kind of device that this
/// concerns.
std::vector<std::string> limitMemory(const Profile &profile, Cluster &cluster);
/// Bytes that a profile gives with the times of a class, on any device of the cluster, are the workspace of its units' tasks where that is less.
/// Between and beyond the points they follow the steepest line from one to the next. \returns a line for each class that this concerns.
std::vector<std::string> raiseWorkspace(const Profile &profile, const Cluster &cluster, bundle::ModelSummary &summary);

// Errors as in Cluster.h, with the path in the file in front ("devices[0].classes[\"head\"].points[2].rows: ..."). Limits: docs/profile.md.
Result<Profile> readProfile(const std::string &json);
Result<Profile> readProfileFile(const std::string &path);
/// Several files together: of two that measured the same class of the same device, or the same link, the later one counts.
Result<Profile> readProfileFiles(const std::vector<std::string> &paths);
/// Adds what `later` measured to `all`: of what both have, the later one counts.
void mergeProfile(Profile &all, Profile later);
std::string writeProfile(const Profile &profile);

} // namespace zorse::planning
