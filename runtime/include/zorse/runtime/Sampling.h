// Text while a model of text is trained: the next token, drawn from the logits of one position. The bundle must have been compiled for it
// (ModelSummary.logits).
//
// A token costs an evaluation of one batch, whose first sample is the text so far. Where the program calls the forward of the unit with the loss, the
// body of the logits runs first, on that unit's device, with what the forward is about to read; no program has to know of it.
#pragma once

#include "zorse/runtime/Data.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Group.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

struct SamplingOptions {
  std::vector<int64_t> prompt; ///< empty: the beginning of the data's first sample
  uint64_t tokens = 32;        ///< that are drawn, as far as the sequence has room
  double temperature = 0;      ///< 0: the likeliest token
  uint64_t seed = 0;
};

class Sampler {
public:
  /// \param data  what inputs besides ids are taken from; its first batch is read
  static Result<std::unique_ptr<Sampler>> create(const Bundle &bundle, DataSource &data, SamplingOptions options);

  /// ExecutorOptions::observes and beforeCall.
  bool observes(const bundle::Entry &entry, bool evaluation) const;
  void observe(const ObservedCall &call);

  const SamplingOptions &options() const { return options_; } ///< with the prompt that is used
  int64_t length() const { return length_; }                  ///< of the sequence

  /// A batch to evaluate, whose logits behind the last of `ids` are wanted.
  std::shared_ptr<const Batch> ask(const std::vector<int64_t> &ids);
  /// The token behind them, once that evaluation is done; nullopt where the unit with the loss is a device's of another process.
  Result<std::optional<int64_t>> answer(uint64_t step, size_t drawn);

private:
  Sampler(const Bundle &bundle, SamplingOptions options) : bundle_(bundle), options_(std::move(options)) {}
  Status check() const;
  Status run(const ObservedCall &call);

  const Bundle &bundle_;
  SamplingOptions options_;
  std::shared_ptr<const Batch> first_; ///< of the data
  int64_t length_ = 0;
  std::mutex mutex_;
  std::optional<int64_t> position_; ///< asked for
  std::optional<Status> trouble_;
  std::vector<double> logits_;
  std::unique_ptr<DeviceMemory> memory_; ///< of the unit's device: what the forward has no place for
  std::vector<size_t> places_;           ///< in it, by slot
};

/// The same on all ranks: the token of the one that knows it. \param name  of the exchange
Result<int64_t> agreeOnToken(Group &group, const std::string &name, const std::optional<int64_t> &mine);

} // namespace zorse::runtime
