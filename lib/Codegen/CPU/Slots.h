// The slots of a body and where arguments and results of its function lie in them.
#pragma once

#include "Views.h"

#include "zorse/Codegen/CPU/Codegen.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Bytes from the start of a slot: fixed + perRow * rows.
struct Place {
  uint32_t slot = 0;
  int64_t fixed = 0, perRow = 0;
};

class Slots {
public:
  explicit Slots(bundle::Body &body) : body(body) {}

  /// Reads zorse.slot and zorse.index of every argument and result; fails after a diagnostic.
  mlir::LogicalResult assign(mlir::func::FuncOp function);

  Place scalars(int64_t offset = 0);
  Place workspace(const bundle::Extent &bytes);
  bool resultAccumulates(unsigned result) const;

  std::vector<Place> arguments, results;
  bundle::Extent savedBytes;

private:
  uint32_t slot(bundle::SlotKind kind, uint32_t index, bundle::AccessMode mode, const bundle::Extent &bytes, bundle::ElementType type,
                llvm::StringRef name);
  mlir::FailureOr<Place> place(mlir::func::FuncOp function, bool isResult, unsigned position);
  /// Offsets of the saved tensors, by index.
  mlir::LogicalResult layOutSaved(mlir::func::FuncOp function);

  bundle::Body &body;
  std::vector<Place> saved;
};

/// Bytes of a tensor: per row where it carries samples.
bundle::Extent tensorBytes(mlir::Type type);
inline int64_t roundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace zorse::codegen
