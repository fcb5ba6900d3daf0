// Generates text while a language model is trained. Draws the next token from the logits of one
// position. The bundle must be compiled with the function of the logits (ModelSummary.logits).
//
// Each token costs an evaluation of one batch; its first sample is the text generated so far.
// Before the program calls the forward of the unit with the loss, the sampler runs the function of
// the logits on that unit's device, with the inputs of the forward. Programs therefore need no
// change.
#pragma once

#include "zorse/runtime/Data.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/ProcessGroup.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

struct GenerationOptions {
  std::vector<int64_t> prompt; ///< empty: the beginning of the first sample of the data
  uint64_t tokens = 32;        ///< tokens to generate; fewer if the sequence is shorter
  double temperature = 0;      ///< 0: the most likely token
  uint64_t seed = 0;
};

class TextGenerator {
public:
  /// \param data  source of the inputs other than ids; its first batch is read
  static Result<std::unique_ptr<TextGenerator>> create(const Bundle &bundle, DataSource &data,
                                                       GenerationOptions options);

  /// Callbacks for ExecutorOptions::observes and beforeCall.
  bool observes(const bundle::Instruction &instruction, bool evaluation) const;
  void observe(const ObservedCall &call);

  const GenerationOptions &options() const {
    return options_;
  } ///< including the prompt that is used
  int64_t length() const { return length_; } ///< sequence length

  /// Returns a batch to evaluate. The logits of the last position of `ids` are recorded.
  std::shared_ptr<const Batch> ask(const std::vector<int64_t> &ids);
  /// Returns the next token after that evaluation; nullopt if a device of another process has the
  /// unit with the loss.
  Result<std::optional<int64_t>> answer(uint64_t step, size_t drawn);

private:
  TextGenerator(const Bundle &bundle, GenerationOptions options)
      : bundle_(bundle), options_(std::move(options)) {}
  Status check() const;
  Status run(const ObservedCall &call);

  const Bundle &bundle_;
  GenerationOptions options_;
  std::shared_ptr<const Batch> first_; ///< first batch of the data
  int64_t length_ = 0;
  std::mutex mutex_;
  std::optional<int64_t> position_; ///< position of the recorded logits
  std::optional<Status> trouble_;
  std::vector<double> logits_;
  std::unique_ptr<DeviceMemory> memory_; ///< memory on the unit's device for operands that the
                                         ///< forward does not have
  std::vector<size_t> places_;           ///< offsets in `memory_`, by argument
};

/// Returns the token of the rank that knows it, on all ranks. \param name  name of the exchange
Result<int64_t> agreeOnToken(ProcessGroup &group, const std::string &name,
                             const std::optional<int64_t> &mine);

} // namespace zorse::runtime
