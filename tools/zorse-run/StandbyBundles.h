// Bundles of a job's model for a part of its devices, or for slower ones.
#pragma once

#include "BackgroundProcess.h"
#include "SlowDevices.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

namespace zorse::run {

/// Device names.
using DeviceNames = std::set<std::string>;

/// What a bundle is compiled for.
struct Variant {
  DeviceNames excluded; ///< devices that it leaves out
  Slowdowns slowdowns;  ///< of the others

  bool operator<(const Variant &o) const {
    return std::tie(excluded, slowdowns) < std::tie(o.excluded, o.slowdowns);
  }
  bool operator==(const Variant &o) const {
    return excluded == o.excluded && slowdowns == o.slowdowns;
  }
};

/// Compiles bundles for the devices that are left, by `zorse-compile --near`, sequentially
/// during training, and keeps them for the next start of the job.
class StandbyBundles {
public:
  /// \param base       bundle with all devices
  /// \param directory  of the bundles; it is created with the first one
  StandbyBundles(std::string base, std::string directory);

  /// Returns the bundle of a variant if it has been compiled.
  std::optional<std::string> find(const Variant &variant) const;
  /// Returns why it cannot be compiled, once that is known.
  std::optional<std::string> problem(const Variant &variant) const;
  /// Compiles it unless it was, or another one is being compiled. \param near  bundle whose plan is
  /// adapted \param urgent  the job waits for it: another compilation is ended
  void request(const Variant &variant, const std::string &near, bool urgent);
  /// Takes the result of a compilation that has ended. Returns the variant for which no bundle
  /// could be compiled, if it has failed.
  std::optional<Variant> poll();

private:
  std::string pathOf(const Variant &variant) const;

  std::string base, directory, compiler;
  std::map<Variant, std::string> compiled, problems;
  std::unique_ptr<BackgroundProcess> process;
  Variant inProgress; ///< what is being compiled
};

/// Returns "t4:0, t4:1".
std::string listed(const DeviceNames &names);

} // namespace zorse::run
