// What the ranks of a communicator of the stand-in for NCCL share, be they threads or processes: a file in shared memory, named by the unique id.
//
// For every ordered pair of ranks there is a box that holds one piece of a message. One rank fills it and one empties it, so that a flag is all the
// order they need, and nobody who is stopped in the middle holds a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace zorse::emulator {

struct Box {
  static constexpr size_t kPiece = 64 << 10;
  std::atomic<uint32_t> full;
  uint32_t kind;   ///< of operation
  uint64_t total;  ///< bytes of the message
  uint64_t offset; ///< of this piece
  uint64_t bytes;
  double given, taken; ///< at a pace: when the operation began of who filled it, and of who emptied it last
  char data[kPiece];
};

class Meeting {
public:
  static constexpr int kMostRanks = 64;

  /// \returns null where there can be none, with errno.
  static std::unique_ptr<Meeting> open(const std::string &id, int ranks);
  ~Meeting();
  Meeting(const Meeting &) = delete;
  Meeting &operator=(const Meeting &) = delete;

  /// Says that a rank is there. \param unit  which GPU it is on
  void join(int rank, int version, int unit);
  bool everybodyIsHere() const;
  /// "Duplicate GPU detected ...", or that versions differ; once everybody is here. "": nothing.
  std::string problem() const;

  Box &box(int from, int to);
  /// Ranks disagree: everybody's operations end.
  std::atomic<uint32_t> &broken();

  int ranks() const { return ranks_; }

private:
  struct Head;
  Meeting(void *memory, size_t bytes, int ranks, std::string path) : memory_(memory), bytes_(bytes), ranks_(ranks), path_(std::move(path)) {}
  Head &head() const;

  void *memory_;
  size_t bytes_;
  int ranks_;
  std::string path_;
};

} // namespace zorse::emulator
