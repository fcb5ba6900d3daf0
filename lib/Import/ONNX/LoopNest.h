// Operands on common axes, and the loops over them that operations are.
#pragma once

#include "Emit.h"
#include "OpContext.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace zorse::onnx_import {

/// Operands that broadcast as ONNX has it, and the dimensions in which an operation meets all of them: the samples, if an operand differs between
/// them, then the axes along which an operand moves, where neighbours of one dimension of the file are joined.
class LoopNest {
public:
  struct Axis {
    int64_t size = 1;
    bool sample = false;          ///< an operand differs between samples along it
    bool perSample = false;       ///< it has one element per sample
    int64_t dim = 0;              ///< of the broadcast shape
    std::vector<int64_t> strides; ///< one per operand

    bool moves() const {
      return llvm::any_of(strides, [](int64_t stride) { return stride != 0; });
    }
  };
  /// Memory: as the largest operand that carries samples lies, so that no copy is made for it. File: as the dimensions of the file are.
  enum class Order : uint8_t { Memory, File };
  static constexpr size_t kEnd = std::numeric_limits<size_t>::max();

  /// Copies operands whose axes divide no others. Fails after an error.
  static mlir::FailureOr<LoopNest> of(OpContext &op, std::vector<ImportedValue> operands, Order order = Order::Memory);

  const std::vector<ImportedValue> &operands() const { return aligned; }
  /// Whether an operand had to be copied. Then it has no dimensions but those it was given with.
  bool isCopied(size_t index) const { return copies[index]; }
  bool hasSamples() const { return sampled; }
  /// Emitted dimensions, without the samples.
  size_t size() const { return groups.size(); }
  const Axis &innermost(size_t group) const { return axes[groups[group].back()]; }
  /// The axes that are emitted, outermost first.
  std::vector<const Axis *> moving() const;
  /// Of the emitted dimensions, with the samples.
  llvm::SmallVector<int64_t> shape() const;

  /// An operand in the emitted dimensions. \param inner  dimensions of its own, which stand before dimension `place`
  mlir::Value emit(ImportState &state, size_t index, llvm::ArrayRef<FactorList> inner = {}, size_t place = kEnd) const;
  /// Leaves out what is emitted of these dimensions of the file.
  void reduce(const std::vector<bool> &dims);
  /// How a row-major value lies in the broadcast shape that has the emitted dimensions.
  /// \param inner  sizes of dimensions before dimension `place` of the value, which are those of the file from `at` on
  View view(llvm::ArrayRef<int64_t> inner = {}, size_t at = kEnd, size_t place = kEnd) const;
  ImportedValue result(mlir::Value value, ElementKind type, llvm::ArrayRef<int64_t> inner = {}, size_t at = kEnd, size_t place = kEnd) const {
    return {type, view(inner, at, place), Tensor{value}};
  }

private:
  mlir::LogicalResult align(OpContext &op);
  mlir::LogicalResult findSamples(OpContext &op);
  mlir::LogicalResult dropSampleCopies(OpContext &op, size_t index, size_t along) const;
  std::vector<size_t> sequence(Order order) const;

  std::vector<ImportedValue> aligned;
  std::vector<bool> copies;
  std::vector<Axis> axes;                  ///< as the dimensions of the file are, outermost first
  std::vector<std::vector<size_t>> groups; ///< axes of each emitted dimension
  int64_t rank = 0;                        ///< of the broadcast shape
  bool sampled = false;
};

/// Sets the result to `scale` times what `body` makes of the operands on common axes. Fails after an error.
mlir::LogicalResult emitElementwise(OpContext &op, std::vector<ImportedValue> operands, ElementKind type,
                                    llvm::function_ref<mlir::Value(mlir::ValueRange, mlir::RankedTensorType)> body, Number scale = 1.0);
/// The same of constants, which are computed when their elements are read. Absent after an error.
ImportedValue foldElementwise(ImportState &state, std::vector<ImportedValue> operands, ElementKind type, Kernel kernel);

} // namespace zorse::onnx_import
