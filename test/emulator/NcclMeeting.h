// State shared by the ranks (threads or processes) of a communicator of the NCCL stand-in: a file
// in shared memory, named by the unique id.
//
// Every ordered pair of ranks has a box for one piece of a message. One rank fills it and one
// empties it, so a flag is sufficient for synchronization, and a rank that is stopped never holds a
// lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace zorse::emulator {

struct Box {
  static constexpr size_t kPiece = 64 << 10;
  std::atomic<uint32_t> full;
  uint32_t kind;   ///< kind of the operation
  uint64_t total;  ///< bytes of the message
  uint64_t offset; ///< offset of this piece
  uint64_t bytes;
  double given, taken; ///< at a pace: when the operation of the rank that filled it began, and of
                       ///< the rank that emptied it last
  char data[kPiece];
};

class Meeting {
public:
  static constexpr int kMaxRanks = 64;

  /// \returns null on failure, with errno set
  static std::unique_ptr<Meeting> open(const std::string &id, int ranks);
  ~Meeting();
  Meeting(const Meeting &) = delete;
  Meeting &operator=(const Meeting &) = delete;

  /// Registers a rank. \param unit  the GPU it is on
  void join(int rank, int version, int unit);
  bool everybodyIsHere() const;
  /// "Duplicate GPU detected ...", or a version mismatch, once all ranks have joined. "": none.
  std::string problem() const;

  Box &box(int from, int to);
  /// Set if ranks disagree. The operations of all ranks then end.
  std::atomic<uint32_t> &broken();

  int ranks() const { return ranks_; }

private:
  struct Head;
  Meeting(void *memory, size_t bytes, int ranks, std::string path)
      : memory_(memory), bytes_(bytes), ranks_(ranks), path_(std::move(path)) {}
  Head &head() const;

  void *memory_;
  size_t bytes_;
  int ranks_;
  std::string path_;
};

} // namespace zorse::emulator
