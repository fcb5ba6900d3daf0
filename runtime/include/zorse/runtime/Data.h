// Training and evaluation data. Sample n of step k does not depend on the plan: samples are
// numbered over the whole run, in file order or shuffled.
//
// - --data train.bin: tokens in the format of llm.c (.bin with header) or nanoGPT (.bin of uint16
//   or of wider integers). Any other file as bytes, unless it has a known format that is neither
//   text nor tokens
// - --data bytes:FILE: any file as bytes
// - --data input_ids=a.npy,labels=b.npy: one array per input; the first dimension is samples
// - --data 'part-*.bin', --data a.bin,b.bin, --data 'labels=part-*.npy,...': shards. Several files
//   are concatenated, in the given order, and sorted by name for a pattern (*, ?, [...]). Samples
//   do not cross file boundaries
// - --data stream:FIFO: one step per line of a named pipe, as they come. A line is a value of
//   --data with the samples of the step; the run ends with the pipe
//
// A token file provides the inputs with the roles "ids" and "labels". Sample i is the window [i*S,
// (i+1)*S). Labels are the next tokens, or the same ones if the graph shifts them itself.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Executor.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// Format of token files.
struct TokenReading {
  std::optional<StoredType> type; ///< type in files without header (U8, U16, U32, I32, I64);
                                  ///< nullopt: inferred from size, contents and vocabulary
  int64_t vocabulary = 0;         ///< exclusive upper bound of ids; 0: unknown
};

enum class DataUse : char { Training, Evaluation };

class DataSource {
public:
  virtual ~DataSource() = default;

  /// \param specification  value of --data, see above
  /// \param shuffleSeed  a different order every epoch, determined by the seed; nullopt: file order
  /// \param tokenType  TokenReading.type
  /// Fails unless every input of the model has data for at least one batch, or for one sample if
  /// `use` is Evaluation.
  static Result<std::unique_ptr<DataSource>>
  open(const Bundle &bundle, const std::string &specification, std::optional<uint64_t> shuffleSeed,
       std::optional<StoredType> tokenType = std::nullopt, DataUse use = DataUse::Training);

  /// Returns samples [first, first + batch) of the run. After the last sample of the data the next
  /// epoch follows. Checks index ranges.
  Result<std::shared_ptr<const Batch>> batchFrom(uint64_t first) {
    return batchOf(first, UINT64_MAX);
  }

  /// Returns a batch that contains only the next `samples` (at least 1) samples; the others repeat
  /// the last `padding` of these.
  virtual Result<std::shared_ptr<const Batch>> batchOf(uint64_t first, uint64_t samples,
                                                       uint64_t padding = 1) = 0;

  /// Number of samples after which the data repeat; 0 for a stream.
  virtual uint64_t samplesPerEpoch() const = 0;

  /// Whether another process supplies the batches one by one. Only the next one can be read, and it
  /// may depend on the result of the last step.
  virtual bool isStream() const { return false; }
  /// Waits until the next batch of a stream is here, and checks it. Returns false at its end.
  virtual Result<bool> awaitBatch() { return true; }

  /// Describes how the data were read, one line per file: format, size, first values.
  virtual std::vector<std::string> description() const { return {}; }
};

/// Returns "ids" or "labels" as recognized by the importer, otherwise by type and name; "" for
/// other inputs.
std::string inputRole(const bundle::GraphInput &input);

/// Returns whether byte values may be token ids of a vocabulary of this size: 256 bytes, some begin
/// and end tokens, and padding.
inline bool bytesAreTokens(int64_t vocabulary) { return vocabulary <= 320; }

/// Returns the paths of all files that `specification` names. Patterns without a match and
/// malformed parts are returned unchanged.
std::vector<std::string> dataFiles(const std::string &specification);

/// Returns a fingerprint of training data that does not depend on file names: sizes, shapes, types,
/// and a hash of contents sampled from the whole file, so that it is fast for large files.
/// \param specification  value of --data
/// \param reading  format in which the data are read
Result<std::string> dataFingerprint(const std::string &specification,
                                    const TokenReading &reading = {});

/// Returns how the token files of a model are read. \param tokenType  TokenReading.type
TokenReading tokenReading(const Bundle &bundle, std::optional<StoredType> tokenType);

/// Parses "uint16", "int64", ... of --data-type; nullopt: unknown name.
std::optional<StoredType> tokenTypeNamed(const std::string &name);

} // namespace zorse::runtime
