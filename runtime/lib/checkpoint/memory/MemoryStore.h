// The in-memory checkpoints of one node: files on a memory file system. They outlive the processes
// that write them, so the next start of a job reads the state from memory.
//
//   DIR/zorse-UID-HASH/      HASH identifies the checkpoint directory of the job
//     id                     random text: ranks with the same id are on the same node
//     directory              the checkpoint directory
//     layout-7.json          index of the checkpoints of generation 7, without steps and checksums
//     HASH.0, HASH.1         two slots per device: a page with a SlotHeader, then the state
//     HASH.2, HASH.3         two slots per device of another node that is copied to this one
//
// A device's state is copied into the slot that does not contain the newest committed step
// (MemoryCheckpointWriter). A killed process loses at most the slot that it writes.
#pragma once

#include "../Storage.h"

#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/FileDescriptor.h"
#include "zorse/runtime/MappedFile.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// Identifies the state of one step. Ordered like checkpoints: by generation, then by step.
struct MemoryStep {
  uint64_t generation = 0, step = 0;

  bool operator==(const MemoryStep &o) const {
    return generation == o.generation && step == o.step;
  }
  bool operator<(const MemoryStep &o) const {
    return generation != o.generation ? generation < o.generation : step < o.step;
  }
};

/// First bytes of a slot.
struct SlotHeader {
  static constexpr uint64_t kMagic = 0x31304d454d52535aull; ///< "ZSRMEM01"

  uint64_t magic = 0;
  uint64_t complete = 0; ///< 0 while the state is copied
  MemoryStep of;
  uint64_t consumedSamples = 0;
  uint64_t stateBytes = 0;
  uint64_t hasOptimizerStep = 0;
  abi::OptimizerStep optimizerStep = {};
  char file[256] = {}; ///< CheckpointFile.name in the layout of the generation
};

/// A slot that this process writes.
class MemorySlot {
public:
  /// Reserves the memory of a slot and maps it. Content that fits is kept. \param file  locked
  static Result<MemorySlot> map(const std::string &path, FileDescriptor file, uint64_t stateBytes);
  MemorySlot(MemorySlot &&other) noexcept;
  MemorySlot &operator=(MemorySlot &&) = delete;
  ~MemorySlot();

  std::byte *state() const { return data_ + kDirectAlignment; }
  uint64_t stateBytes() const { return bytes_ - kDirectAlignment; }
  /// The complete content of the slot, if any.
  std::optional<MemoryStep> content() const;
  /// Marks the slot as incomplete, before the state is overwritten.
  void begin();
  /// Marks the slot as complete.
  void finish(const SlotHeader &header);

private:
  MemorySlot(FileDescriptor file, std::byte *data, uint64_t bytes)
      : file_(std::move(file)), data_(data), bytes_(bytes) {}
  SlotHeader *header() const { return reinterpret_cast<SlotHeader *>(data_); }

  FileDescriptor file_; ///< locked, so that a suspended process of an older start is noticed
  std::byte *data_;
  uint64_t bytes_;
};

class MemoryStore {
public:
  /// Opens the folder of a job on this node, and creates it if it does not exist.
  /// \param root  folder on a memory file system
  /// \param checkpointDirectory  identifies the job
  static Result<MemoryStore> open(const std::string &root, const std::string &checkpointDirectory);
  /// Opens it if it exists.
  static std::optional<MemoryStore> find(const std::string &root,
                                         const std::string &checkpointDirectory);

  const std::string &path() const { return path_; }
  const std::string &id() const { return id_; }

  struct Held {
    std::string path; ///< of the slot
    SlotHeader header;
  };
  /// Lists the complete slots.
  std::vector<Held> list() const;

  /// The slot with the state of a step in a file of its generation's layout, mapped for reading.
  struct View {
    MappedFile mapped;
    SlotHeader header;

    const std::byte *state() const { return mapped.data() + kDirectAlignment; }
    /// Whether the slot still has the state. Call it after reading.
    bool isUnchanged() const;
  };
  Result<View> view(const MemoryStep &step, const std::string &file) const;

  /// Reads the layout of a generation (writeCheckpointIndex).
  Result<std::string> layoutText(uint64_t generation) const;
  /// Writes it, unless another rank of this node has.
  Status writeLayout(uint64_t generation, const std::string &text) const;

  /// The complete content of a slot, if any.
  static std::optional<MemoryStep> contentOf(const std::string &slotPath);

  static constexpr int kOtherNodes = 2; ///< first slot of a device of another node

  /// Path of a slot, `which` 0 to 3, of a device.
  std::string slotPath(const std::string &device, int which) const;
  /// Opens or creates a slot for writing. If a process of an older start still has it, that process
  /// keeps a file without a name.
  Result<MemorySlot> openSlot(const std::string &device, int which, uint64_t stateBytes) const;

  /// Removes what only generations before `generation` use: layouts, and slots that no process has
  /// open. The slots of `devices` are kept, since their processes are about to open them.
  void removeBefore(uint64_t generation, const std::vector<std::string> &devices) const;
  /// Removes the folder.
  void remove() const;

private:
  MemoryStore(std::string path, std::string id) : path_(std::move(path)), id_(std::move(id)) {}

  std::string path_, id_;
};

} // namespace zorse::runtime
