// Where the spine is cut into units.
#pragma once

#include "ModelGraph.h"

namespace zorse::units {

/// Ranges of `ModelGraph::order`, consecutive and complete: range i is [ends[i - 1], ends[i]).
///
/// A cut is a place that one spine value crosses. Where a model has none over a long way (skip connections, an encoder whose output every decoder
/// layer reads), values that wait long for their next reader are set aside and carried. Cuts then become units:
///
///     cuts       | gather + | ln q k v attention o + | ln fc gelu proj + | ln | logits | loss |
///     units      | embedding | attention             | mlp               | head               |
///
/// What holds no matrix product joins its predecessor, from a norm on its successor; the loss joins the logits, unless its predecessor is the last of
/// several equal units and no classifier.
std::vector<int> findUnits(const ModelGraph &graph, int longSpan);

} // namespace zorse::units
