// State that lives across steps: filled before the first, saved at the end, and gradients caught on the way.
#pragma once

#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Executor.h"

#include <mutex>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Writes `count` numbers, converted, from byte `offset` of a region on.
Status writeElements(Executor &executor, uint32_t device, const bundle::Region &region, uint64_t offset, const std::byte *numbers, StoredType stored,
                     StoredType wanted, int64_t count);

/// To every device that keeps one, as much of it as it keeps.
Status writeOptimizerStep(Executor &executor, const Bundle &bundle, const abi::OptimizerStep &step);

/// Fills every device's persistent state: parameters from the bundle's weights, or from `checkpoint` (TensorFiles::open) where it is not empty,
/// by names as matchTensors finds them; moments, updates applied and padding with zeros; the loss scale as compiled. Parameters that a checkpoint
/// need not have and has not keep the bundle's bytes.
/// \param note  says how names were found and which tensors of the checkpoint are not used; empty when there is nothing to say.
/// \param skip  patterns of tensors that are not used
/// \param initial  Frozen: the trained parameters come from a snapshot afterwards, so their files need not be there
enum class Initial : char { All, Frozen };
Status loadState(Executor &executor, const Bundle &bundle, const std::string &checkpoint, std::string *note = nullptr,
                 const std::vector<std::string> &skip = {}, Initial initial = Initial::All);

/// Writes all trainable parameters under their ONNX names, in the ONNX layout and in the precision of training; frozen ones too, as they are.
Status saveCheckpoint(const Executor &executor, const Bundle &bundle, const std::string &path);

/// What is caught on the way from devices' memory, in their threads.
class Catcher {
protected:
  void keep(const Status &read) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (read.failed() && trouble_.succeeded())
      trouble_ = read;
  }
  Status trouble_; ///< the first

private:
  std::mutex mutex_;
};

/// Reduced gradients by parameter, taken from the updates of one step before clipping.
class GradientDump : Catcher {
public:
  explicit GradientDump(const Bundle &bundle);
  /// Called for every call of the step (Executor::beforeCall), from any device's thread.
  void observe(const ObservedCall &call);
  Status write(const std::string &path) const;

private:
  const Bundle &bundle_;
  std::vector<std::vector<std::byte>> groups_; ///< whole groups; devices write disjoint extents.
};

/// Numerators of the loss by term and sample, taken from the sums of one step.
class LossRows : Catcher {
public:
  explicit LossRows(const Bundle &bundle);
  void observe(const ObservedCall &call);
  /// JSON: [[term 0: one number per sample of the batch], ...]
  Status write(const std::string &path) const;

private:
  const Bundle &bundle_;
  std::vector<std::vector<double>> rows_;
};

} // namespace zorse::runtime
