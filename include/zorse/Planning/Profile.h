// Measured times of a model's unit functions on types of devices (docs/profile.md): what zorse-profile writes, and what users import for devices that
// are not here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// Seconds of the tasks of one unit class at one number of rows; negative: not measured.
struct ProfilePoint {
  int64_t rows = 0;
  double forward = -1, backward = -1, inputGradients = -1, weightGradients = -1;
};

struct ClassProfile {
  uint32_t degree = 1;               ///< tensor-parallel degree
  std::vector<ProfilePoint> points;  ///< ascending rows
};

struct DeviceProfile {
  std::string device;                ///< a device's name, or a device type's: the more particular one applies
  std::map<std::string, std::vector<ClassProfile>> classes; ///< by the class's name ("block attention"), see UnitInfo.class_id; one per degree
  double updatePerElement = -1, updateFixed = 0;  ///< seconds
  double normPerElement = -1, normFixed = 0;
  double copyPerByte = -1, copyFixed = 0;
  double loadPerByte = -1, loadFixed = 0;
  uint64_t memory = 0;               ///< bytes found; 0: not measured
};

struct LinkProfile {
  std::string from, to;              ///< device names, or node names
  double bandwidth = 0, latency = 0; ///< bytes/s, seconds
};

struct Profile {
  std::string model;                 ///< ModelSummary.content_hash; "": any model with these classes
  std::vector<DeviceProfile> devices;
  std::vector<LinkProfile> links;
};

inline constexpr size_t kMostProfileBytes = size_t(64) << 20;

std::optional<Profile> readProfile(const std::string &json, std::string &error);
std::optional<Profile> readProfileFile(const std::string &path, std::string &error);
std::string writeProfile(const Profile &profile);

} // namespace zorse::planning
