// Memory behind the slots of unit functions, with contents as in training: ids in their range, weights and activations of usual size.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace zorse::profile {

/// Slots of all functions of one unit: equal (kind, index) is the same memory, so that a backward reads what the forward left.
class Slots {
public:
  /// \param workspace  shared by all units of the device, as in a run; at least what `bytesOf` asks for
  /// \param rows       the most rows that will be run
  static runtime::Result<Slots> make(runtime::Device &device, const runtime::Bundle &bundle, int32_t unit, const std::vector<uint32_t> &bodies,
                                     int64_t rows, runtime::DeviceAddress workspace, uint32_t seed);

  /// One address per slot of the body.
  std::vector<runtime::DeviceAddress> of(const bundle::Body &body) const;

  /// Bytes that `make` allocates, and of workspace.
  static uint64_t bytesOf(const runtime::Bundle &bundle, const std::vector<uint32_t> &bodies, int64_t rows, uint64_t *workspace);

private:
  std::map<std::pair<int, uint32_t>, runtime::DeviceAddress> places;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory;
};

/// Contents of one slot: `unit` is -1 for functions that are not of a unit.
std::vector<std::byte> contents(const runtime::Bundle &bundle, int32_t unit, const bundle::Slot &slot, uint64_t bytes, std::mt19937_64 &random);

} // namespace zorse::profile
