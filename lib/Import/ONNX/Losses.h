// Losses: sums over samples, with and without a shape, and what is said of other uses of samples.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Reports that the node combines samples of activations. \returns failure
mlir::LogicalResult mixes(OpContext &op, const llvm::Twine &what);
/// Reports a function of sums over samples that is not affine in them. \returns failure
mlir::LogicalResult notAffine(OpContext &op, const llvm::Twine &what);
/// A number as terms of the loss: sums of inputs as they are, others as the mean over samples that all have it.
void addNumber(ImportState &state, const Number &number, std::vector<LossSummand> &terms);
/// Sets the result to a sum, a difference, a product or a quotient of which one operand is a loss. Fails after an error.
mlir::LogicalResult lossBinary(OpContext &op, const std::string &which, const ImportedValue &a, const ImportedValue &b);
/// Appends a summand of a sum to the summands of a loss.
mlir::LogicalResult addSummand(OpContext &op, const ImportedValue &value, double sign, std::vector<LossSummand> &summands);
/// Times or divided by a number, or by a scalar of parameters.
mlir::LogicalResult scaledLoss(OpContext &op, ImportedValue loss, const ImportedValue &other, bool divides);
/// The loss of the options: the cross-entropy of logits with labels. None, and a status of failure, after an error.
std::optional<ImportedValue> addedLoss(ImportState &state, mlir::LogicalResult &status);
/// Sets the result to a reduction over samples, and over other axes, where axes are left. Fails after an error.
mlir::LogicalResult reduceToSums(OpContext &op, const ImportedValue &x, const std::vector<bool> &reduced, bool keep);
/// A product of vectors along the samples: the sum over them of the products. Fails after an error.
mlir::FailureOr<ImportedValue> dotOfSamples(OpContext &op, const ImportedValue &a, ImportedValue b);

} // namespace zorse::onnx_import
