// What the importer knows of each operator, apart from its meaning: how many operands it has, and which attributes.
#pragma once

#include "Graph.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct AttributeRule {
  int32_t type = 0; ///< as AttributeProto.AttributeType counts them
  bool required = false;
  bool read = true;                ///< by the handler
  std::vector<std::string> values; ///< the only ones that are supported; empty: all
};

struct OperatorRule {
  size_t least = 0, most = 0; ///< operands
  llvm::StringMap<AttributeRule> attributes;

  static constexpr size_t kAny = std::numeric_limits<size_t>::max();

  /// \param attributes  words "name:type", with "!" behind if it is required, "~" if no value of it changes the mathematics, and "=a|b" if
  ///                    only these values are supported (the handler then need not read it). Types: i(nteger), f(loat), s(tring), t(ensor), g(raph),
  ///                    is, fs, ss.
  OperatorRule(size_t least, size_t most, llvm::StringRef attributes);
};

/// What `node` says and the rule does not know: operands, attributes, their types and values. Empty if nothing.
std::vector<std::string> notUnderstood(const GraphNode &node, const OperatorRule &rule);

/// What to do about an operator that there is no handler for; empty if there is nothing particular to say.
llvm::StringRef remedyFor(llvm::StringRef op);

/// The type of `attribute`'s value: as it says, else by the field that is there; 0 if neither.
int32_t typeOf(const onnx::Attribute &attribute);

} // namespace zorse::onnx_import
