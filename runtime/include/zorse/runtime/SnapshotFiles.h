// The files of a snapshot, for whoever reads one without a bundle (zorse-export) and for tests; docs/snapshots.md describes the format.
#pragma once

#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Snapshot.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

class SnapshotStorage;

struct SnapshotParameter {
  std::string name;                  ///< of the ONNX file
  StoredType type = StoredType::F32; ///< in training
  std::vector<int64_t> shape;        ///< as compiled: slices are ranges of its row-major order
  std::vector<int64_t> permutation;  ///< dimension i is dimension permutation[i] of the ONNX file; empty: the same
  bool trainable = true;
  bundle::HubFact hub; ///< relative to storedShape()

  // Of a frozen one, which is not in the snapshot:
  bool constant = false; ///< a lifted constant or a buffer: no parameter of the model
  uint64_t hash = 0;     ///< XXH64 of its bytes as compiled
  std::string file;      ///< where they came from, with the range and type there; empty: not known
  uint64_t offset = 0, bytes = 0;
  StoredType storedType = StoredType::F32;

  int64_t elements() const;
  /// The shape in the ONNX file.
  std::vector<int64_t> storedShape() const;
};

/// Elements [begin, end) of a parameter, or of one of its moments.
struct SnapshotSlice {
  uint32_t parameter = 0;
  int32_t moment = -1; ///< -1: the parameter itself
  int64_t begin = 0, end = 0;
  StoredType type = StoredType::F32;
  uint64_t offset = 0; ///< in the file
  uint64_t hash = 0;   ///< XXH64 of its bytes

  uint64_t bytes() const { return uint64_t(end - begin) * bytesOf(type); }
};

struct SnapshotFile {
  std::string name; ///< in the snapshot's folder
  std::string device;
  uint64_t bytes = 0;
  uint64_t headBytes = 0; ///< what comes before the slices: safetensors' header and the optimizer's step
  uint64_t headHash = 0;
  std::vector<SnapshotSlice> slices; ///< by offset, without holes to the end of the file
};

struct SnapshotIndex {
  uint64_t step = 0, generation = 0, samplesConsumed = 0;
  abi::OptimizerStep optimizerStep = {}; ///< lossScale 0: the loss was not scaled
  std::string precision;                 ///< of the bundle
  uint32_t moments = 0;                  ///< for every trainable parameter
  RunIdentity identity;
  bundle::HubModel hub; ///< nothing in snapshots of earlier versions
  std::vector<SnapshotParameter> parameters;
  std::vector<SnapshotFile> files;
};

std::string writeSnapshotIndex(const SnapshotIndex &index);

/// Reads and checks an index: its checksum, that every trainable parameter and moment is there exactly once, that files are covered exactly by their
/// slices, and that no name leads out of the folder. Memory: a small multiple of `size`.
/// \param path  for messages
Result<SnapshotIndex> parseSnapshotIndex(const std::string &path, const char *text, size_t size);

/// Largest index and slice that are read: limits on what a hostile file makes us allocate.
inline constexpr uint64_t kLargestSnapshotIndex = uint64_t(1) << 30, kLargestSnapshotSlice = uint64_t(1) << 30;

/// An entry of a directory of snapshots.
struct SnapshotFolder {
  std::string name; ///< "step-00000120.g2"
  uint64_t step = 0, generation = 0;
  bool complete = false; ///< has an index
};

/// Newest first: by generation, then by step. An empty list where there is no such directory.
Result<std::vector<SnapshotFolder>> listSnapshots(const std::string &directory);

/// One complete snapshot.
class SnapshotReader {
public:
  /// \param path  the snapshot's folder
  static Result<SnapshotReader> open(const std::string &path, std::shared_ptr<SnapshotStorage> storage = nullptr);

  const std::string &path() const { return path_; }
  const SnapshotIndex &index() const { return index_; }

  /// Reads slices of one file in order, each verified, and hands them to `take`. The head of the file is verified first.
  /// \param wanted  indices in SnapshotFile.slices, ascending
  Status read(size_t file, const std::vector<size_t> &wanted, const std::function<void(const SnapshotSlice &, const std::byte *)> &take) const;

  /// All elements of a trainable parameter (moment -1) or of a moment, in compiled order, as `type`. `target` has room for them.
  Status readTensor(uint32_t parameter, int32_t moment, StoredType type, std::byte *target) const;

  /// All elements of a trained parameter in the layout of the ONNX file, as `type`.
  Status readStored(uint32_t parameter, StoredType type, std::byte *target) const;

  /// The same of a frozen one, in the type of training, from where the run had it; fails where that file is gone or holds other numbers than the run
  /// had.
  Status readFrozen(uint32_t parameter, std::byte *target) const;

  /// Whether these elements, in the layout of the ONNX file, are the ones that a frozen parameter had in the run.
  bool isFrozen(uint32_t parameter, StoredType type, const std::byte *stored) const;

  /// Reads and verifies everything.
  Status verify() const;

private:
  std::string path_;
  SnapshotIndex index_;
  std::shared_ptr<SnapshotStorage> storage_;
};

/// Writes all parameters of a snapshot to one safetensors file, under their ONNX names and in the ONNX layouts, one after the other: a checkpoint.
/// All that is read is verified. Frozen parameters come from where the run had them.
/// \param note  says which frozen ones are left out because that is gone or another file; null: that is an error.
Status mergeSnapshot(const SnapshotReader &snapshot, const std::string &path, std::string *note = nullptr);

} // namespace zorse::runtime
