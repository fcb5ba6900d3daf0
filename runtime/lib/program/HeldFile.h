#pragma once

#include "zorse/Bundle/Manifest.h"
#include "zorse/runtime/KernelObjects.h"
#include "zorse/runtime/MappedFile.h"

#include <memory>
#include <string>
#include <string_view>

namespace zorse::runtime {

/// A file with the contents that were hashed. The loader reads a bundle only from here, so
/// replacing a file after that has no effect. Weights can be large and stay mapped. All other files
/// are copied, so writing to them has no effect either.
struct HeldFile {
  std::string name, hash, found;
  std::shared_ptr<const MappedFile> mapped;
  std::shared_ptr<const MemoryFile> code;
  std::string bytes;
  Status status;

  bool isCode() const { return name.rfind("kernels/", 0) == 0; }
  bool isWeights() const {
    return (name.rfind("weights", 0) == 0 || name.rfind("constants", 0) == 0) &&
           name != "weights.json";
  }

  void hold() {
    std::string_view view{reinterpret_cast<const char *>(mapped->data()), mapped->size()};
    if (isCode()) {
      Result<std::shared_ptr<const MemoryFile>> copy =
          MemoryFile::copyOf(mapped->path(), view.data(), view.size());
      if (copy.failed())
        copy = MemoryFile::hold(mapped->path());
      if (copy.failed()) {
        status = copy.error();
        return;
      }
      code = std::move(*copy);
      view = {reinterpret_cast<const char *>(code->data()), code->size()};
    } else if (!isWeights()) {
      bytes.assign(view);
      view = bytes;
    }
    found = bundle::sha256(view);
    if (!isWeights())
      mapped.reset();
  }
};

} // namespace zorse::runtime
