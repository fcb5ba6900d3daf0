#include "HostMemory.h"

#include "bundle.pb.h"
#include "zorse/Bundle/DeviceKinds.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Anonymous pages; huge pages if the system provides them, which makes the first access about 6
/// times cheaper.
class MappedMemory final : public DeviceMemory {
public:
  MappedMemory(std::byte *base, size_t bytes, size_t mapped)
      : base_(base), bytes_(bytes), mapped_(mapped) {}
  ~MappedMemory() override { ::munmap(base_, mapped_); }
  DeviceAddress base() const override { return DeviceAddress::ofHost(base_); }
  size_t bytes() const override { return bytes_; }

private:
  std::byte *base_;
  size_t bytes_, mapped_;
};

} // namespace

Result<std::unique_ptr<DeviceMemory>>
zorse::runtime::allocateOnHost(const std::string &device, bundle::MemoryKind kind, size_t bytes,
                               const AllocationOptions &options) {
  if (kind != bundle::DEVICE && kind != bundle::HOST && kind != bundle::PINNED_HOST)
    return userError("device '" + device + "': has no memory of kind " +
                     (bundle::MemoryKind_IsValid(kind) ? bundle::MemoryKind_Name(kind)
                                                       : std::to_string(int(kind))) +
                     "; it has DEVICE, HOST and PINNED_HOST");
  constexpr size_t kHugePage = size_t(2) << 20;
  size_t mapped = std::max<size_t>((bytes + 4095) / 4096 * 4096, 4096);
  // Reserves additional bytes to align the start to a huge page; the unused bytes are unmapped.
  size_t reserved = mapped >= kHugePage ? mapped + kHugePage : mapped;
  void *address = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return userError("device '" + device + "': cannot reserve " + std::to_string(bytes) +
                     " bytes of memory: " + std::strerror(errno));
  auto start = reinterpret_cast<uintptr_t>(address);
  if (reserved != mapped) {
    uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned != start)
      ::munmap(address, aligned - start);
    if (size_t behind = start + reserved - (aligned + mapped))
      ::munmap(reinterpret_cast<void *>(aligned + mapped), behind);
    start = aligned;
    ::madvise(reinterpret_cast<void *>(start), mapped, MADV_HUGEPAGE);
  }
  auto *base = reinterpret_cast<std::byte *>(start);
  if (options.poison)
    for (size_t i = 0; i + sizeof kPoisonWord <= mapped; i += sizeof kPoisonWord)
      std::memcpy(base + i, &kPoisonWord, sizeof kPoisonWord);
  return std::unique_ptr<DeviceMemory>(new MappedMemory(base, bytes, mapped));
}

Status zorse::runtime::moveOnHost(void *to, const void *from, size_t bytes) {
  if (bytes > 0)
    std::memmove(to, from, bytes);
  return Status::success();
}

Status zorse::runtime::fillOnHost(DeviceAddress to, std::byte value, size_t bytes) {
  if (bytes > 0)
    std::memset(to.onHost(), int(value), bytes);
  return Status::success();
}

Result<void *> zorse::runtime::exposeOnHost(const std::string &device, const char *kind,
                                            DeviceAddress address, const std::string &transport) {
  if (!deviceKindOf(kind).joins(transport))
    return userError("device '" + device + "': devices of kind " + kind +
                     " cannot join transport '" + transport + "'");
  return static_cast<void *>(address.onHost());
}
