// Allocates memory for the arguments of unit functions and fills it with realistic data: ids in
// range, weights and activations of typical magnitude.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Device.h"

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace zorse::profile {

/// Arguments of all functions of one unit. Arguments of equal (kind, index) share memory, so that a
/// backward reads the outputs of the forward.
class Arguments {
public:
  /// \param workspace  shared by all units of the device, as in a run; at least the size that
  ///                   `bytesOf` returns
  /// \param rows       maximum batch size
  static runtime::Result<Arguments> make(runtime::Device &device, const runtime::Bundle &bundle,
                                         int32_t unit, const std::vector<uint32_t> &functions,
                                         int64_t rows, runtime::DeviceAddress workspace,
                                         uint32_t seed);

  /// Returns one address per argument of the function.
  std::vector<runtime::DeviceAddress> of(const bundle::CompiledFunction &function) const;

  /// Returns the bytes that `make` allocates; `workspace` receives the bytes of workspace.
  static uint64_t bytesOf(const runtime::Bundle &bundle, const std::vector<uint32_t> &functions,
                          int64_t rows, uint64_t *workspace);

private:
  std::map<std::pair<int, uint32_t>, runtime::DeviceAddress> places;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory;
};

/// Returns contents for one argument. `unit` is -1 for functions outside of units.
std::vector<std::byte> contents(const runtime::Bundle &bundle, int32_t unit,
                                const bundle::FunctionArgument &argument, uint64_t bytes,
                                std::mt19937_64 &random);

} // namespace zorse::profile
