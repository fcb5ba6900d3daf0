#include "zorse/runtime/SnapshotFiles.h"

#include "zorse/runtime/MappedFile.h"
#include "zorse/runtime/Safetensors.h"

#include <xxhash.h>

#include <cstring>

using namespace zorse::runtime;

namespace {

/// The elements of a frozen parameter, which the snapshot only refers to, in compiled order.
Status readFrozen(const SnapshotReader &snapshot, const SnapshotParameter &parameter, std::vector<std::byte> &out) {
  std::string where = snapshot.path() + ": frozen parameter '" + parameter.name + "'";
  if (parameter.file.empty())
    return userError(where + ": its bytes are not in the snapshot, and where they are is not known");
  Result<MappedFile> file = MappedFile::open(parameter.file);
  if (file.failed())
    return userError(where + ": " + file.message());
  uint64_t elements = uint64_t(parameter.elements());
  if (parameter.bytes != elements * bytesOf(parameter.storedType) || parameter.offset > file->size() || parameter.bytes > file->size() - parameter.offset)
    return userError(where + ": " + parameter.file + " is not the file it came from: expected " + std::to_string(parameter.bytes) + " bytes at " +
                     std::to_string(parameter.offset));
  const std::byte *data = file->data() + parameter.offset;
  std::vector<std::byte> permuted;
  if (!parameter.permutation.empty()) {
    permuted.resize(parameter.bytes);
    permuteElements(data, permuted.data(), bytesOf(parameter.storedType), parameter.storedShape(), parameter.permutation);
    data = permuted.data();
  }
  out.resize(elements * bytesOf(parameter.type));
  convertElements(data, parameter.storedType, out.data(), parameter.type, int64_t(elements));
  if (XXH64(out.data(), out.size(), 0) != parameter.hash)
    return userError(where + ": " + parameter.file + " has changed since the run");
  return Status::success();
}

} // namespace

Status zorse::runtime::mergeSnapshot(const SnapshotReader &snapshot, const std::string &path) {
  // What is written is not looked at again, so damage has to show before.
  if (Status status = snapshot.verify(); status.failed())
    return status;
  Status problem;
  std::vector<SafetensorsItem> items;
  for (uint32_t i = 0; i < snapshot.index().parameters.size(); ++i) {
    const SnapshotParameter &parameter = snapshot.index().parameters[i];
    items.push_back({parameter.name, parameter.type, parameter.storedShape(), [&snapshot, &parameter, &problem, i](std::byte *target) {
                       std::vector<std::byte> compiled(uint64_t(parameter.elements()) * bytesOf(parameter.type));
                       Status status = parameter.trainable ? snapshot.readTensor(i, -1, parameter.type, compiled.data()) : readFrozen(snapshot, parameter, compiled);
                       if (status.failed()) {
                         problem = problem.failed() ? problem : status;
                         return;
                       }
                       if (parameter.permutation.empty())
                         std::memcpy(target, compiled.data(), compiled.size());
                       else
                         permuteElements(compiled.data(), target, bytesOf(parameter.type), parameter.shape, inverseOf(parameter.permutation));
                     }});
  }
  for (uint32_t i = 0; i < snapshot.index().parameters.size(); ++i)
    if (std::vector<std::byte> bytes; !snapshot.index().parameters[i].trainable)
      if (Status status = readFrozen(snapshot, snapshot.index().parameters[i], bytes); status.failed())
        return status;
  if (Status status = writeSafetensors(path, std::move(items)); status.failed())
    return status;
  return problem;
}

std::vector<int64_t> zorse::runtime::inverseOf(const std::vector<int64_t> &permutation) {
  std::vector<int64_t> inverse(permutation.size());
  for (size_t d = 0; d < inverse.size(); ++d)
    inverse[permutation[d]] = int64_t(d);
  return inverse;
}
