// Bundles of a job's model without some of its devices.
#pragma once

#include "BackgroundProcess.h"

#include <map>
#include <optional>
#include <set>
#include <string>

namespace zorse::run {

/// Device names.
using DeviceNames = std::set<std::string>;

/// Compiles bundles for the devices that are left, by `zorse-compile --near`, sequentially
/// during training, and keeps them for the next start of the job.
class StandbyBundles {
public:
  /// \param base       bundle with all devices
  /// \param directory  of the bundles; it is created with the first one
  StandbyBundles(std::string base, std::string directory);

  /// Returns the bundle without the devices `excluded` if it has been compiled.
  std::optional<std::string> find(const DeviceNames &excluded) const;
  /// Returns why it cannot be compiled, once that is known.
  std::optional<std::string> problem(const DeviceNames &excluded) const;
  /// Compiles it unless it was, or another one is being compiled. \param near  bundle whose plan is
  /// adapted \param urgent  the job waits for it: another compilation is ended
  void request(const DeviceNames &excluded, const std::string &near, bool urgent);
  /// Takes the result of a compilation that has ended. Returns the devices without which no bundle
  /// could be compiled, if it has failed.
  std::optional<DeviceNames> poll();

private:
  std::string pathOf(const DeviceNames &excluded) const;

  std::string base, directory, compiler;
  std::map<DeviceNames, std::string> compiled, problems;
  std::unique_ptr<BackgroundProcess> process;
  DeviceNames inProgress; ///< the devices that the bundle being compiled leaves out
};

/// Returns "t4:0, t4:1".
std::string listed(const DeviceNames &names);

} // namespace zorse::run
