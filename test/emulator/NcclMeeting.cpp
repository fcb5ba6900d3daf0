#include "NcclMeeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace zorse::emulator;

struct Meeting::Head {
  struct Rank {
    std::atomic<int> here;
    int version, unit;
  } ranks[kMaxRanks];
  std::atomic<uint32_t> broken;
};

std::unique_ptr<Meeting> Meeting::open(const std::string &id, int ranks) {
  const std::string path = "/zorse-nccl-" + id;
  const size_t bytes = sizeof(Head) + sizeof(Box) * size_t(ranks) * size_t(ranks);
  const int file = ::shm_open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0)
    return nullptr;
  void *memory = ::ftruncate(file, off_t(bytes)) == 0
                     ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
  ::close(file);
  if (memory == MAP_FAILED)
    return nullptr;
  return std::unique_ptr<Meeting>(new Meeting(memory, bytes, ranks, path));
}

Meeting::~Meeting() {
  ::shm_unlink(path_.c_str());
  ::munmap(memory_, bytes_);
}

Meeting::Head &Meeting::head() const { return *static_cast<Head *>(memory_); }
std::atomic<uint32_t> &Meeting::broken() { return head().broken; }

void Meeting::join(int rank, int version, int unit) {
  Head::Rank &mine = head().ranks[rank];
  mine.version = version;
  mine.unit = unit;
  mine.here.store(1);
}

bool Meeting::everybodyIsHere() const {
  for (int r = 0; r < ranks_; ++r)
    if (head().ranks[r].here.load() == 0)
      return false;
  ::shm_unlink(path_.c_str()); // no other rank will join, and a killed rank leaves no file behind
  return true;
}

std::string Meeting::problem() const {
  for (int a = 0; a < ranks_; ++a)
    for (int b = 0; b < a; ++b) {
      const Head::Rank &one = head().ranks[b], &other = head().ranks[a];
      const std::string both = "ranks " + std::to_string(b) + " and " + std::to_string(a);
      if (one.unit == other.unit)
        return "Duplicate GPU detected: " + both + " are on GPU " + std::to_string(one.unit);
      if (one.version != other.version)
        return both + " have versions " + std::to_string(one.version) + " and " +
               std::to_string(other.version);
    }
  return {};
}

Box &Meeting::box(int from, int to) {
  auto *boxes = reinterpret_cast<Box *>(static_cast<char *>(memory_) + sizeof(Head));
  return boxes[size_t(from) * size_t(ranks_) + size_t(to)];
}
