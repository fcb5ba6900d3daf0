#include "Source.h"

#include "zorse/runtime/MappedFile.h"

#include <xxhash.h>

#include <filesystem>

using namespace zorse::exporting;
using namespace zorse::runtime;

Result<std::string> zorse::exporting::findSnapshot(const std::string &path) {
  std::string folder = path;
  while (folder.size() > 1 && folder.back() == '/')
    folder.pop_back();
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/index.json", ignored))
    return folder;
  if (!std::filesystem::is_directory(folder, ignored))
    return userError(folder + ": is no directory of snapshots");
  Result<std::vector<SnapshotFolder>> found = listSnapshots(folder);
  if (found.failed())
    return found.error();
  for (const SnapshotFolder &snapshot : *found)
    if (snapshot.complete)
      return folder + "/" + snapshot.name;
  return userError(folder + ": holds no complete snapshot" + (found->empty() ? "" : " (" + std::to_string(found->size()) + " incomplete)") +
                   "; expects the directory that zorse-run --snapshots wrote, or one snapshot in it");
}

Status Source::trained(uint32_t number, StoredType type, std::byte *target) const {
  const SnapshotParameter &parameter = index().parameters[number];
  if (parameter.permutation.empty())
    return snapshot_.readTensor(number, -1, type, target);
  std::vector<std::byte> compiled(size_t(parameter.elements()) * bytesOf(type));
  if (Status status = snapshot_.readTensor(number, -1, type, compiled.data()); status.failed())
    return status;
  std::vector<int64_t> inverse(parameter.permutation.size());
  for (size_t d = 0; d < inverse.size(); ++d)
    inverse[size_t(parameter.permutation[d])] = int64_t(d);
  permuteElements(compiled.data(), target, bytesOf(type), parameter.shape, inverse);
  return Status::success();
}

bool Source::isFrozen(uint32_t number, StoredType type, const std::byte *stored) const {
  const SnapshotParameter &parameter = index().parameters[number];
  size_t count = size_t(parameter.elements());
  std::vector<std::byte> permuted, compiled(count * bytesOf(parameter.type));
  if (!parameter.permutation.empty()) {
    permuted.resize(count * bytesOf(type));
    permuteElements(stored, permuted.data(), bytesOf(type), parameter.storedShape(), parameter.permutation);
    stored = permuted.data();
  }
  convertElements(stored, type, compiled.data(), parameter.type, int64_t(count));
  return XXH64(compiled.data(), compiled.size(), 0) == parameter.hash;
}

Status Source::frozen(uint32_t number, std::byte *target) const {
  const SnapshotParameter &parameter = index().parameters[number];
  if (parameter.file.empty())
    return userError("where it came from is not known");
  Result<MappedFile> file = MappedFile::open(parameter.file);
  if (file.failed())
    return file.error();
  if (parameter.bytes != uint64_t(parameter.elements()) * bytesOf(parameter.storedType) || parameter.offset > file->size() ||
      parameter.bytes > file->size() - parameter.offset || !isFrozen(number, parameter.storedType, file->data() + parameter.offset))
    return userError(parameter.file + ": does not hold the numbers that the run had");
  convertElements(file->data() + parameter.offset, parameter.storedType, target, parameter.type, parameter.elements());
  return Status::success();
}
