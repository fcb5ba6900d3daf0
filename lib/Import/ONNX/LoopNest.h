// Loop nests: operands of an operation on common axes.
#pragma once

#include "Emit.h"
#include "OpContext.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace zorse::onnx_import {

/// Operands that broadcast by the rules of ONNX, and the dimensions of the emitted operation: first
/// the samples, if an operand differs between them, then the axes along which an operand moves.
/// Neighboring axes of one dimension of the file are joined.
class LoopNest {
public:
  struct Axis {
    int64_t size = 1;
    bool sample = false;          ///< an operand differs between samples along it
    bool perSample = false;       ///< the axis has one element per sample
    int64_t dim = 0;              ///< dimension of the broadcast shape
    std::vector<int64_t> strides; ///< one per operand

    bool moves() const {
      return llvm::any_of(strides, [](int64_t stride) { return stride != 0; });
    }
  };
  /// Memory: in the memory order of the largest operand that carries samples, so that it is not
  /// copied. File: in the order of the dimensions of the file.
  enum class Order : uint8_t { Memory, File };
  static constexpr size_t kEnd = std::numeric_limits<size_t>::max();

  /// Aligns the operands. Copies them if their axes do not divide each other. Fails after an error.
  static mlir::FailureOr<LoopNest> of(OpContext &op, std::vector<ImportedValue> operands,
                                      Order order = Order::Memory);

  const std::vector<ImportedValue> &operands() const { return aligned; }
  /// Whether an operand was copied. It then has only the dimensions that were passed in.
  bool isCopied(size_t index) const { return copies[index]; }
  bool hasSamples() const { return sampled; }
  /// Emitted dimensions, without the samples.
  size_t size() const { return groups.size(); }
  const Axis &innermost(size_t group) const { return axes[groups[group].back()]; }
  /// The emitted axes, outermost first.
  std::vector<const Axis *> moving() const;
  /// Shape of the emitted dimensions, including the samples.
  llvm::SmallVector<int64_t> shape() const;

  /// An operand in the emitted dimensions. \param inner  additional dimensions of the operand,
  /// inserted before dimension `place`
  mlir::Value emit(ImportState &state, size_t index, llvm::ArrayRef<FactorList> inner = {},
                   size_t place = kEnd) const;
  /// Drops the emitted axes of these dimensions of the file.
  void reduce(const std::vector<bool> &dims);
  /// View, in the broadcast shape, of a row-major value with the emitted dimensions.
  /// \param inner  sizes of additional dimensions, which are before dimension `place` of the value
  /// and at dimension `at` of the file
  View view(llvm::ArrayRef<int64_t> inner = {}, size_t at = kEnd, size_t place = kEnd) const;
  ImportedValue result(mlir::Value value, ElementKind type, llvm::ArrayRef<int64_t> inner = {},
                       size_t at = kEnd, size_t place = kEnd) const {
    return {type, view(inner, at, place), Tensor{value}};
  }

private:
  mlir::LogicalResult align(OpContext &op);
  mlir::LogicalResult findSamples(OpContext &op);
  mlir::LogicalResult dropSampleCopies(OpContext &op, size_t index, size_t along) const;
  std::vector<size_t> sequence(Order order) const;

  std::vector<ImportedValue> aligned;
  std::vector<bool> copies;
  std::vector<Axis> axes; ///< in the order of the dimensions of the file, outermost first
  std::vector<std::vector<size_t>> groups; ///< axes of each emitted dimension
  int64_t rank = 0;                        ///< rank of the broadcast shape
  bool sampled = false;
};

/// Sets the result to `scale` times the value that `body` computes from the operands on common
/// axes. Fails after an error.
mlir::LogicalResult
emitElementwise(OpContext &op, std::vector<ImportedValue> operands, ElementKind type,
                llvm::function_ref<mlir::Value(mlir::ValueRange, mlir::RankedTensorType)> body,
                Number scale = 1.0);
/// The same for constants; elements are computed when they are read. Absent after an error.
ImportedValue foldElementwise(ImportState &state, std::vector<ImportedValue> operands,
                              ElementKind type, Kernel kernel);

} // namespace zorse::onnx_import
