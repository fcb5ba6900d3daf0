// The files of a checkpoint of the training state. zorse-export and tests read them without a
// bundle. docs/reference/checkpoints.md describes the format.
#pragma once

#include "zorse/runtime/Checkpoint.h"
#include "zorse/runtime/Elements.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

class CheckpointStorage;
class ShardSource;

/// An optimizer state of a parameter: one number per element, or another number of entries.
struct CheckpointState {
  int64_t entries = 0;
  StoredType type = StoredType::F32;

  bool operator==(const CheckpointState &o) const { return entries == o.entries && type == o.type; }
};

/// Description of one parameter in the index of a snapshot.
struct CheckpointParameter {
  std::string name;                  ///< name in the ONNX file
  StoredType type = StoredType::F32; ///< element type in training
  std::vector<int64_t> shape;        ///< compiled shape; slices are ranges of its row-major order
  std::vector<int64_t> permutation;  ///< dimension i is dimension permutation[i] of the ONNX file;
                                     ///< empty: identity
  bool trainable = true;
  std::vector<CheckpointState> states; ///< its optimizer states, if it is trained
  bundle::HubFact hub;                 ///< relative to storedShape()

  // Fields of a frozen parameter. Snapshots do not contain its elements.
  bool constant = false; ///< whether it is a lifted constant or a buffer instead of a model
                         ///< parameter
  uint64_t hash = 0;     ///< XXH64 of the compiled bytes; 0: unknown, because devices divide it
  std::string file; ///< source file; empty: unknown. `offset`, `bytes` and `storedType` describe
                    ///< its range there
  uint64_t offset = 0, bytes = 0;
  StoredType storedType = StoredType::F32;

  int64_t elements() const;
  /// The number of elements (moment -1) or of the entries of an optimizer state.
  int64_t entries(int32_t moment) const {
    return moment < 0 ? elements() : states[static_cast<size_t>(moment)].entries;
  }
  /// The shape in the ONNX file.
  std::vector<int64_t> storedShape() const;
};

/// Elements [begin, end) of a parameter or entries of one of its optimizer states.
struct CheckpointShard {
  uint32_t parameter = 0;
  int32_t moment = -1; ///< index of the optimizer state; -1: the parameter
  int64_t begin = 0, end = 0;
  StoredType type = StoredType::F32;
  uint64_t offset = 0; ///< byte offset in the file
  uint64_t hash = 0;   ///< XXH64 of the bytes

  uint64_t bytes() const { return uint64_t(end - begin) * bytesOf(type); }
};

/// One safetensors file of a snapshot: the state of one device.
struct CheckpointFile {
  std::string name; ///< name in the directory of the snapshot
  std::string device;
  uint64_t bytes = 0;
  uint64_t headerBytes = 0; ///< bytes before the slices: safetensors header and optimizer step
  uint64_t headerHash = 0;
  std::vector<CheckpointShard> shards; ///< ordered by offset; contiguous up to the end of the file
};

/// Content of index.json.
struct CheckpointIndex {
  uint64_t step = 0, generation = 0, consumedSamples = 0;
  abi::OptimizerStep optimizerStep = {}; ///< lossScale 0: no loss scaling
  std::string precision;                 ///< precision of the bundle
  RunConfig runConfig;
  bundle::HubModel hub; ///< empty in snapshots of earlier versions
  std::vector<CheckpointParameter> parameters;
  std::vector<CheckpointFile> files;
};

std::string writeCheckpointIndex(const CheckpointIndex &index);

/// Reads and checks an index. Checks its checksum, that every trainable parameter and optimizer
/// state is covered exactly once, that slices cover the files exactly, and that no file name leads
/// out of the directory. Uses memory of a small multiple of `size`.
/// \param path  path for messages
Result<CheckpointIndex> parseCheckpointIndex(const std::string &path, const char *text,
                                             size_t size);

/// Largest index and slice that are read, in bytes. The limits bound the memory that a malicious
/// file can make the reader allocate.
inline constexpr uint64_t kLargestCheckpointIndex = uint64_t(1) << 30,
                          kLargestCheckpointShard = uint64_t(1) << 30;

/// An entry of a directory of snapshots.
struct CheckpointDirectory {
  std::string name; ///< "step-00000120.g2"
  uint64_t step = 0, generation = 0;
  bool complete = false; ///< whether it has an index
};

/// Lists snapshots, newest first: by generation, then by step. Returns an empty list if the
/// directory does not exist.
Result<std::vector<CheckpointDirectory>> listCheckpoints(const std::string &directory);

/// Returns a text that changes when a job has saved newer state, in storage or in memory.
std::string describeProgress(const std::string &directory);

/// The folder of a job's checkpoints in memory, the same on each node.
/// \param root  CheckpointOptions.memoryDirectory
std::string memoryCheckpointFolder(const std::string &root, const std::string &checkpointDirectory);

/// Checkpoints in memory that the runs of a checkpoint directory have left on this node.
struct MemoryCheckpoints {
  std::string folder;
  uint64_t bytes = 0;
  std::optional<uint64_t> step; ///< newest step with the state of all devices on this node
};

std::optional<MemoryCheckpoints> findMemoryCheckpoints(const std::string &root,
                                                       const std::string &checkpointDirectory);

/// One complete snapshot.
class CheckpointReader {
public:
  /// \param path  directory of the snapshot
  static Result<CheckpointReader> open(const std::string &path,
                                       std::shared_ptr<CheckpointStorage> storage = nullptr);

  /// A checkpoint whose bytes come from `source`. \param path  for messages
  static CheckpointReader of(std::string path, CheckpointIndex index,
                             std::shared_ptr<const ShardSource> source);

  const std::string &path() const { return path_; }
  const CheckpointIndex &index() const { return index_; }

  /// Reads slices of one file in order, verifies each, and passes it to `take`.
  /// \param wanted  indices in CheckpointFile.slices, ascending
  Status read(size_t file, const std::vector<size_t> &wanted,
              const std::function<void(const CheckpointShard &, const std::byte *)> &take) const;

  /// Reads all elements of a trainable parameter (moment -1) or of an optimizer state in compiled
  /// order, converted to `type`. `target` must be large enough for them.
  Status readTensor(uint32_t parameter, int32_t moment, StoredType type, std::byte *target) const;

  /// Lets readStored read the moving averages of trained parameters. Fails if the run had none.
  Status useAverages();

  /// Reads all elements of a trained parameter in the layout of the ONNX file, converted to `type`.
  Status readStored(uint32_t parameter, StoredType type, std::byte *target) const;

  /// Reads a frozen parameter in the layout of the ONNX file, in the type of training, from the
  /// source file of the run. Fails if that file is missing or its elements differ from those of the
  /// run.
  Status readFrozen(uint32_t parameter, std::byte *target) const;

  /// Returns whether these elements, in the layout of the ONNX file, equal those of a frozen
  /// parameter in the run.
  bool isFrozen(uint32_t parameter, StoredType type, const std::byte *stored) const;

  /// Reads and verifies all files.
  Status verify() const;

private:
  bool averages_ = false; ///< readStored reads the last optimizer state, which is the average
  std::string path_;
  CheckpointIndex index_;
  std::shared_ptr<const ShardSource> source_;
};

/// Writes all parameters of a snapshot to one safetensors file (a weights export), with their ONNX
/// names and layouts, contiguously. Verifies all data that it reads. Frozen parameters are read
/// from the source files of the run.
/// \param note  receives the frozen parameters that were left out because their source file is
///   missing or has changed. Null: a missing or changed file is an error.
Status mergeCheckpoint(const CheckpointReader &checkpoint, const std::string &path,
                       std::string *note = nullptr);

} // namespace zorse::runtime
