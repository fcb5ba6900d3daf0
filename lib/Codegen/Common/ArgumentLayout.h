// The arguments of a compiled function, and the positions of its function's arguments and results
// in them.
#pragma once

#include "Views.h"

#include "bundle.pb.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zorse::codegen {

/// Bytes from the start of an argument: fixed + perRow * rows.
struct Place {
  uint32_t argument = 0;
  int64_t fixed = 0, perRow = 0;
};

class ArgumentLayout {
public:
  explicit ArgumentLayout(bundle::CompiledFunction &compiled) : compiled(compiled) {}

  /// Reads zorse.argument of every argument and result. Fails after a diagnostic.
  mlir::LogicalResult assign(mlir::func::FuncOp function);

  Place scalars(int64_t offset = 0);
  Place workspace(const bundle::AffineSize &bytes);
  bool resultAccumulates(unsigned result) const;

  std::vector<Place> arguments;
  std::vector<Place> results; ///< of the function's results, then of those of its exchanges
  bundle::AffineSize savedBytes() const { return saved.bytes; }

private:
  /// Appends the places of the results of an exchange: the parts of all devices in their
  /// order, or one sum.
  void placeExchange(mlir::Operation *exchange);
  uint32_t argument(bundle::ArgumentKind kind, uint32_t index, bundle::AccessMode mode,
                    const bundle::AffineSize &bytes, bundle::ElementType type,
                    llvm::StringRef name);
  mlir::FailureOr<Place> place(mlir::func::FuncOp function, bool isResult, unsigned position);
  /// Tensors packed in one argument: offsets by index, and the total size.
  struct PackedTensors {
    std::vector<Place> places;
    bundle::AffineSize bytes;
  };
  /// Computes the layout of a packed block from the class's function that writes it, or from
  /// `function` if it is not in a class.
  mlir::LogicalResult layOut(mlir::func::FuncOp function, ArgumentKind block,
                             PackedTensors &packed);

  bundle::CompiledFunction &compiled;
  PackedTensors saved, savedForWeightGrad;
};

/// Calls `visit` with every exchange of a function, and the index of its first result in
/// ArgumentLayout::results.
void forEachExchange(mlir::func::FuncOp function,
                     llvm::function_ref<void(mlir::Operation *, unsigned)> visit);

/// Offset of a field of the step's scalars in abi::StepScalars, in bytes.
int64_t offsetOfScalar(ArgumentAttr scalar);

/// Size of a tensor in bytes: per row if it has a batch dimension, else fixed.
bundle::AffineSize tensorBytes(mlir::Type type);
inline int64_t roundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace zorse::codegen
