// Where samples come from. Sample n of step k is the same whatever the plan: samples are numbered over the whole run, in file order or in a shuffled
// one.
//
//   --data train.bin                            tokens: llm.c (.bin with header), nanoGPT (.bin of uint16, or of wider integers), any other file as
//                                               bytes, unless it is of a known format that is neither text nor tokens
//   --data bytes:FILE                           any file as bytes
//   --data input_ids=a.npy,labels=b.npy         one array per input, first dimension samples
//   --data 'part-*.bin', a.bin,b.bin,           shards: several files one behind the other, in the order in which they are named, and by name where a
//          'labels=part-*.npy,...'              pattern stands for several (*, ?, [...]); samples do not cross from one to the next
//
// A token file feeds the inputs with the roles "ids" and "labels": sample i is the window [i*S, (i+1)*S), labels are the next tokens, or the same
// ones where the graph shifts them itself.
#pragma once

#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Executor.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::runtime {

/// How files of tokens are read.
struct TokenReading {
  std::optional<StoredType> type; ///< of the numbers in files without a header (U8, U16, U32, I32, I64); nullopt: by size, contents and vocabulary
  int64_t vocabulary = 0;         ///< ids are below it; 0: not known
};

enum class DataUse : char { Training, Evaluation };

class DataSource {
public:
  virtual ~DataSource() = default;

  /// \param specification  what --data says, see above.
  /// \param shuffleSeed    a different order every epoch, fixed by the seed; nullopt: file order.
  /// \param tokenType      TokenReading.type
  /// Fails unless every input of the model has data for at least one batch, or, where `use` is to evaluate, for one sample.
  static Result<std::unique_ptr<DataSource>> open(const Bundle &bundle, const std::string &specification, std::optional<uint64_t> shuffleSeed,
                                                  std::optional<StoredType> tokenType = std::nullopt, DataUse use = DataUse::Training);

  /// Samples [first, first + batch) of the run; after the last sample of the data the next epoch follows. Checks index ranges.
  Result<std::shared_ptr<const Batch>> batchFrom(uint64_t first) { return batchOf(first, UINT64_MAX); }

  /// A batch of which only the first `samples` (at least 1) are the next ones; the others repeat the last of these.
  virtual Result<std::shared_ptr<const Batch>> batchOf(uint64_t first, uint64_t samples) = 0;

  virtual uint64_t samplesPerEpoch() const = 0;

  /// How the data were read, a line for each file: format, size, first values.
  virtual std::vector<std::string> description() const { return {}; }
};

/// "ids" and "labels" as the importer recognised them, otherwise by type and name; "" for other inputs.
std::string inputRole(const bundle::GraphInput &input);

/// Whether bytes may be meant as the ids of such a vocabulary: those of 256 bytes, some for beginnings and ends, and padding.
inline bool bytesAreTokens(int64_t vocabulary) { return vocabulary <= 320; }

/// The paths of all files that `specification` names; patterns that match nothing, and what cannot be understood, as they stand.
std::vector<std::string> dataFiles(const std::string &specification);

/// What training data is, whatever it is called: sizes, shapes, types, and a hash of contents sampled from the whole file, so that it is quick for
/// large ones.
/// \param specification  what --data says
/// \param reading        as the data are read
Result<std::string> dataFingerprint(const std::string &specification, const TokenReading &reading = {});

/// How the token files of a model are read. \param tokenType  TokenReading.type
TokenReading tokenReading(const Bundle &bundle, std::optional<StoredType> tokenType);

/// "uint16", "int64", ... of --data-type; nullopt: none of them.
std::optional<StoredType> tokenTypeNamed(const std::string &name);

} // namespace zorse::runtime
