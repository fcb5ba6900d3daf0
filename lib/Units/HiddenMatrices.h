// Weights of hidden layers, whose matrices Muon orthogonalizes.
#pragma once

#include "ModelGraph.h"

namespace zorse::units {

/// Marks trained parameters of the model that are weights of hidden layers with kHiddenAttr: the
/// sizes of the matrices of which they consist. All reads of such a parameter are matmuls, directly
/// or through views, and from each of them a path leads to the loss that passes another matmul with
/// a parameter. Tables of embeddings, biases, gains, and the last layer before the loss are no
/// hidden weights (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024).
/// A filter of a convolution is one matrix of [output channels, all others].
void markHiddenMatrices(const ModelGraph &graph);

} // namespace zorse::units
