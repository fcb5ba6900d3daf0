// Losses: sums over samples, with or without a shape, and errors about other uses of samples.
#pragma once

#include "OpContext.h"

namespace zorse::onnx_import {

/// Reports that the node combines samples of activations. \returns failure
mlir::LogicalResult mixes(OpContext &op, const llvm::Twine &what);
/// Reports a function of sums over samples that is not affine in them. \returns failure
mlir::LogicalResult notAffine(OpContext &op, const llvm::Twine &what);
/// Appends a number as terms of the loss. Counts that are sums of inputs stay sums; other numbers
/// become the mean of equal values over the samples.
void addNumber(ImportState &state, const Number &number, std::vector<LossSummand> &terms);
/// Sets the result to a sum, difference, product or quotient with a loss as an operand. Fails after
/// an error.
mlir::LogicalResult lossBinary(OpContext &op, const std::string &which, const ImportedValue &a,
                               const ImportedValue &b);
/// Appends a summand of a sum to the summands of a loss.
mlir::LogicalResult addSummand(OpContext &op, const ImportedValue &value, double sign,
                               std::vector<LossSummand> &summands);
/// Multiplies or divides a loss by a number, or by a scalar of parameters.
mlir::LogicalResult scaledLoss(OpContext &op, ImportedValue loss, const ImportedValue &other,
                               bool divides);
/// The cross-entropy of logits with labels that the options request. After an error, returns
/// nothing and sets `status` to failure.
std::optional<ImportedValue> addedLoss(ImportState &state, mlir::LogicalResult &status);
/// Sets the result to a reduction over the samples and other axes; axes may remain. Fails after an
/// error.
mlir::LogicalResult reduceToSums(OpContext &op, const ImportedValue &x,
                                 const std::vector<bool> &reduced, bool keep);
/// A dot product along the samples: the sum of the products over the samples. Fails after an error.
mlir::FailureOr<ImportedValue> dotOfSamples(OpContext &op, const ImportedValue &a, ImportedValue b);

} // namespace zorse::onnx_import
