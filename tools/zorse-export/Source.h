// The parameters of a snapshot in the layout of the ONNX file, one at a time.
#pragma once

#include "zorse/runtime/SnapshotFiles.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::exporting {

/// The snapshot that `path` names: one itself, or the newest complete one of a directory.
runtime::Result<std::string> findSnapshot(const std::string &path);

class Source {
public:
  explicit Source(const runtime::SnapshotReader &snapshot) : snapshot_(snapshot) {}

  const runtime::SnapshotIndex &index() const { return snapshot_.index(); }
  const std::string &path() const { return snapshot_.path(); }

  /// All elements of a trained parameter, in the shape of the ONNX file, as `type`.
  runtime::Status trained(uint32_t parameter, runtime::StoredType type, std::byte *target) const;

  /// Whether these elements, in the layout of the ONNX file, are the ones that a frozen parameter had in the run.
  bool isFrozen(uint32_t parameter, runtime::StoredType type, const std::byte *stored) const;

  /// All elements of a frozen one, from where the run had it; fails where that file is gone or another one.
  runtime::Status frozen(uint32_t parameter, std::byte *target) const;

private:
  const runtime::SnapshotReader &snapshot_;
};

/// One file with every parameter under its ONNX name, as `zorse-run --checkpoint` writes it. Frozen ones that cannot be found are left out and named in `note`.
runtime::Status exportSafetensors(const Source &source, const std::string &path, std::string &note);

/// The ONNX file `original` with the trained parameters in it: the same initializers with the same types, and external data beside `path` where it has some.
runtime::Status exportOnnx(const Source &source, const std::string &original, const std::string &path, std::string &note);

} // namespace zorse::exporting
