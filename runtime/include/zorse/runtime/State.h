// State that persists across steps: initialization before the first step, export at the end, and
// gradients recorded during a step.
#pragma once

#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Executor.h"

#include <mutex>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Converts `count` numbers and writes them from byte `offset` of a region on.
Status writeElements(Executor &executor, uint32_t device, const bundle::Region &region,
                     uint64_t offset, const std::byte *numbers, StoredType stored,
                     StoredType wanted, int64_t count);

/// Writes the optimizer step to every device that has one: the fields that the device
/// stores.
Status writeOptimizerStep(Executor &executor, const Bundle &bundle, const abi::OptimizerStep &step);

/// Frozen: a snapshot overwrites the trained parameters afterwards, so their files may be missing.
enum class Initial : char { All, Frozen };
/// Initializes every device's persistent state. Parameters come from the bundle's weights, or
/// from `checkpoint` (TensorFiles::open) if it is not empty, by names as matchTensors finds them.
/// Optimizer states, the number of applied updates and padding become zero; the loss scale is as
/// compiled. Parameters that a checkpoint may omit and does omit keep the bundle's bytes.
/// \param note  receives how names were matched and which tensors of the checkpoint are unused;
/// empty if there is nothing to report
/// \param skip  patterns of tensors that are not used
/// \param initial  parameters that are loaded
Status loadState(Executor &executor, const Bundle &bundle, const std::string &checkpoint,
                 std::string *note = nullptr, const std::vector<std::string> &skip = {},
                 Initial initial = Initial::All);

enum class SavedWeights : char { Parameters, Averages };
/// Writes all trainable parameters, or their moving averages, with their ONNX names, in the ONNX
/// layout and in the precision of training. Frozen parameters are written unchanged.
Status saveWeights(const Executor &executor, const Bundle &bundle, const std::string &path,
                   SavedWeights which = SavedWeights::Parameters);

/// Base class of recorders that read device memory from the devices' threads. Keeps the first
/// error.
class StateCapture {
protected:
  void keep(const Status &read) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (read.failed() && trouble_.succeeded())
      trouble_ = read;
  }
  Status trouble_; ///< first error

private:
  std::mutex mutex_;
};

/// Records reduced gradients by parameter from the updates of one step, before clipping.
class GradientDump : StateCapture {
public:
  explicit GradientDump(const Bundle &bundle);
  /// Called for every call of the step (ExecutorOptions::beforeCall), from any device's thread.
  void observe(const ObservedCall &call);
  Status write(const std::string &path) const;

private:
  /// Copies the gradient of a parameter to its elements of the whole parameter.
  void copyGradient(const bundle::ParameterInfo &parameter, std::byte *target) const;
  const Bundle &bundle_;
  std::vector<std::vector<std::byte>> groups_; ///< full flat groups; devices write disjoint ranges
};

/// Records the numerators of the loss by term and sample from the sums of one step.
class LossRows : StateCapture {
public:
  explicit LossRows(const Bundle &bundle);
  void observe(const ObservedCall &call);
  /// Writes JSON: [[term 0: one number per sample of the batch], ...]
  Status write(const std::string &path) const;

private:
  const Bundle &bundle_;
  std::vector<std::vector<double>> rows_;
};

} // namespace zorse::runtime
