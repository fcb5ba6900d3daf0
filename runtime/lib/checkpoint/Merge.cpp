// Exports the parameters of a checkpoint in the layout of the ONNX file.
#include "zorse/runtime/CheckpointFiles.h"

#include "zorse/runtime/MappedFile.h"
#include "zorse/runtime/Safetensors.h"

#include <xxhash.h>

using namespace zorse::runtime;

Status CheckpointReader::useAverages() {
  if (index_.runConfig.training.ema_decay() == 0)
    return userError(path_ + ": has no moving average of parameters; compile with --ema-decay");
  averages_ = true;
  return Status::success();
}

Status CheckpointReader::readStored(uint32_t number, StoredType type, std::byte *target) const {
  const CheckpointParameter &parameter = index_.parameters[number];
  const int32_t state = averages_ ? int32_t(parameter.states.size()) - 1 : -1;
  if (parameter.permutation.empty())
    return readTensor(number, state, type, target);
  std::vector<std::byte> compiled(size_t(parameter.elements()) * bytesOf(type));
  if (Status status = readTensor(number, state, type, compiled.data()); status.failed())
    return status;
  std::vector<int64_t> inverse(parameter.permutation.size());
  for (size_t d = 0; d < inverse.size(); ++d)
    inverse[size_t(parameter.permutation[d])] = int64_t(d);
  permuteElements(compiled.data(), target, bytesOf(type), parameter.shape, inverse);
  return Status::success();
}

bool CheckpointReader::isFrozen(uint32_t number, StoredType type, const std::byte *stored) const {
  const CheckpointParameter &parameter = index_.parameters[number];
  size_t count = size_t(parameter.elements());
  std::vector<std::byte> permuted, compiled(count * bytesOf(parameter.type));
  if (!parameter.permutation.empty()) {
    permuted.resize(count * bytesOf(type));
    permuteElements(stored, permuted.data(), bytesOf(type), parameter.storedShape(),
                    parameter.permutation);
    stored = permuted.data();
  }
  convertElements(stored, type, compiled.data(), parameter.type, int64_t(count));
  return XXH64(compiled.data(), compiled.size(), 0) == parameter.hash;
}

Status CheckpointReader::readFrozen(uint32_t number, std::byte *target) const {
  const CheckpointParameter &parameter = index_.parameters[number];
  std::string where = path_ + ": frozen parameter '" + parameter.name +
                      "', which checkpoints only refer to: ";
  if (parameter.file.empty())
    return userError(where + "where it came from is not known");
  if (!parameter.hash)
    return userError(where + "devices divided it, so the run could not compute its checksum");
  Result<MappedFile> file = MappedFile::open(parameter.file);
  if (file.failed())
    return userError(where + file.message());
  if (parameter.bytes != uint64_t(parameter.elements()) * bytesOf(parameter.storedType) ||
      parameter.offset > file->size() || parameter.bytes > file->size() - parameter.offset ||
      !isFrozen(number, parameter.storedType, file->data() + parameter.offset))
    return userError(
        where + parameter.file +
        " does not contain the values of the run (was another file given with --load-weights?)");
  convertElements(file->data() + parameter.offset, parameter.storedType, target, parameter.type,
                  parameter.elements());
  return Status::success();
}

Status zorse::runtime::mergeCheckpoint(const CheckpointReader &checkpoint, const std::string &path,
                                       std::string *note) {
  Status problem;
  std::vector<SafetensorsItem> items;
  for (uint32_t p = 0; p < checkpoint.index().parameters.size(); ++p) {
    const CheckpointParameter &parameter = checkpoint.index().parameters[p];
    if (parameter.constant)
      continue;
    if (!parameter.trainable) {
      std::vector<std::byte> bytes(size_t(parameter.elements()) * bytesOf(parameter.type));
      if (Status status = checkpoint.readFrozen(p, bytes.data()); status.failed() && !note)
        return status;
      else if (status.failed()) {
        *note += (note->empty() ? "" : "\n") + ("left out: " + status.message());
        continue;
      }
    }
    items.push_back({parameter.name, parameter.type, parameter.storedShape(),
                     [&checkpoint, &parameter, &problem, p](std::byte *target) {
                       Status status = parameter.trainable
                                           ? checkpoint.readStored(p, parameter.type, target)
                                           : checkpoint.readFrozen(p, target);
                       if (status.failed() && problem.succeeded())
                         problem = status;
                     }});
  }
  return writeSafetensors(path, std::move(items), &problem, onnxNames());
}
