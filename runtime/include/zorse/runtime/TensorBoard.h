// Event files for TensorBoard.
#pragma once

#include "zorse/runtime/Status.h"
#include "zorse/runtime/Training.h"

#include <cstdio>
#include <memory>
#include <string>

namespace zorse::runtime {

/// Writes an event file with the scalars "loss", "gradient_norm", "learning_rate",
/// "tokens_per_second" (or "samples_per_second") and "loss_scale" (f16) of steps, and "eval_loss"
/// of evaluations. Values are floats, as in TensorBoard.
class TensorBoardFile {
public:
  /// Creates a new file in `directory`, which is created if needed. Files of earlier runs are kept.
  /// \param lastStep  step of an earlier run that this one resumes: values of its file after that
  ///   step are marked as purged. 0: none.
  /// \param tokens  rates count tokens, not samples
  static Result<std::unique_ptr<TensorBoardFile>> open(const std::string &directory,
                                                       uint64_t lastStep, bool tokens);
  ~TensorBoardFile();
  void step(const StepReport &report);
  /// Fails if any record could not be written.
  Status close();
  const std::string &path() const { return path_; }

private:
  TensorBoardFile(std::string path, FILE *file, bool tokens)
      : path_(std::move(path)), file_(file), tokens_(tokens) {}
  void record(const std::string &message);
  std::string path_;
  FILE *file_;
  bool tokens_;
  int cause_ = 0; ///< errno of the first record that could not be written
};

} // namespace zorse::runtime
