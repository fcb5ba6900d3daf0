// Which devices the user's script says are available.
#pragma once

#include "BackgroundProcess.h"
#include "StandbyBundles.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace zorse::run {

/// Runs a shell command every second that prints the names of the available devices or nodes, as
/// the discovery scripts of Horovod and torchrun do for hosts. A command that fails or takes longer
/// than ten seconds changes nothing.
class DeviceDiscovery {
public:
  /// \param command  empty: the devices never change
  /// \param output   file for its output
  /// \param warn     receives a message when the command fails, and when it fails differently
  DeviceDiscovery(std::string command, std::string output,
                  std::function<void(const std::string &)> warn)
      : command(std::move(command)), output(std::move(output)), warn(std::move(warn)) {}

  /// Returns the devices that the command listed, if it has ended since the last call.
  std::optional<DeviceNames> poll(double now);

private:
  void complain(const std::string &text);

  std::string command, output, complaint;
  std::function<void(const std::string &)> warn;
  std::unique_ptr<BackgroundProcess> process;
  double startedAt = -1e9;
};

} // namespace zorse::run
