// Cuts the spine into units.
#pragma once

#include "ModelGraph.h"

namespace zorse::units {

/// Returns the ends of consecutive ranges that cover `ModelGraph::order`: range i is [ends[i - 1],
/// ends[i]).
///
/// A cut is a position that one spine value crosses. If a model has no cut over a long distance
/// (skip connections, an encoder output that every decoder layer reads), values with a distant next
/// reader are ignored: they are carried across cuts. Units are then formed from the ranges between
/// cuts:
///
///     cuts       | gather + | ln q k v attention o + | ln fc gelu proj + | ln | logits | loss |
///     units      | embedding | attention             | mlp               | head               |
///
/// A range without a matrix product joins its predecessor; from a norm on, it joins its successor.
/// The loss joins the logits, unless its predecessor is the last of several equal units and not a
/// classifier.
std::vector<int> findUnits(const ModelGraph &graph, int longSpan);

} // namespace zorse::units
