// Imports the part of a graph that combines samples, for groups of a fixed number of samples.
//
// With --group-rows=G, a row of the IR is a group: the file's sample axis is G elements of a row,
// and the number of samples that the graph reads is G. Operators that treat samples apart are
// imported as ever; their views hold the row and the G samples in one axis. From the first node on
// that combines samples, values are *grouped*: the row is a separate dimension 0 in front of the
// file's dimensions, so that an operator of the file becomes the same operator on tensors with one
// more leading dimension (as torch.vmap). The loss is then one number per row.
//
//     logits = image @ text.T            image [B, D] -> grouped [row, G, D], text in the same way
//                                        MatMul of [row, G, D] and [row, D, G]
//
// Operators that treat the elements of dimension 0 apart (convolutions) take the row into it again.
#pragma once

#include "Decomposition.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_import {

/// One node of the file on grouped operands. Operands have the row in dimension 0, or no samples.
class GroupedNode {
public:
  explicit GroupedNode(OpContext &op);

  mlir::LogicalResult run();

private:
  // Operators. Views and picks are in GroupedViewOps.cpp, all others in GroupedOps.cpp.
  mlir::LogicalResult elementwise();
  /// Whether an elementwise node with operands that are affine in sums over samples is, too.
  bool isAffineFunction() const;
  /// Applies the node to operand 0 with the row in dimension 0.
  mlir::LogicalResult inFirstDimension();
  mlir::LogicalResult reduce();
  /// Matrix product of values of which at least one has the row.
  ImportedValue product(ImportedValue a, bool aRow, ImportedValue b, bool bRow);
  mlir::LogicalResult gemm();
  mlir::LogicalResult crossEntropy();
  /// Applies the node's reduction to losses. \param weights  weights of the labels; absent: 1
  mlir::LogicalResult reducedLosses(const ImportedValue &losses, const ImportedValue &weights);
  /// The losses of all labels for scores that are grouped, or for constant labels. \param weights
  /// receives the weights of the labels
  ImportedValue lossesOfScores(ImportedValue &weights);
  mlir::LogicalResult einsum();
  mlir::LogicalResult alongAxis();
  /// Applies the node, with its attributes, to operands with the row.
  mlir::LogicalResult apply(const std::string &which, std::vector<ImportedValue> operands,
                            std::optional<int64_t> axis = std::nullopt);
  mlir::LogicalResult shape();
  mlir::LogicalResult transpose();
  mlir::LogicalResult view();
  mlir::LogicalResult reshape(std::vector<int64_t> sizes);
  mlir::LogicalResult slice();
  mlir::LogicalResult concat();
  /// The operand with the row, also if it is the same in every group.
  ImportedValue inEveryGroup(size_t i);
  mlir::LogicalResult gather();
  mlir::LogicalResult gatherND();

  /// Number of the file's dimensions of an operand.
  int64_t rank(size_t i) const { return in[i].rank() - (rows[i] ? 1 : 0); }
  /// The operand with `to` dimensions of the file, of which the first ones have size 1.
  ImportedValue padded(size_t i, int64_t to) const;
  /// Marks the results of `apply`. \param keepsAffine  whether a function of sums over samples
  ///   remains affine in them
  mlir::LogicalResult finish(mlir::LogicalResult status, bool keepsAffine = false);
  /// Sets the result. \param isAffine  of a reduction; of other operators, as `finish`
  mlir::LogicalResult done(ImportedValue value, bool isAffine = false);

  OpContext &op;
  Decomposition make;
  std::vector<ImportedValue> in;
  std::vector<bool> rows; ///< whether an operand has the row
  bool affine = true;     ///< all operands with the row are affine in sums over samples
};

} // namespace zorse::onnx_import
