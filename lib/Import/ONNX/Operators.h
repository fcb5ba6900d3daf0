// What the importer knows of each operator, apart from its meaning: how many operands it has, and which attributes.
#pragma once

#include "Graph.h"

#include "mlir/Support/LLVM.h"
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

class OpContext;

/// Imports one node. Fails after an error.
using Handler = mlir::LogicalResult (*)(OpContext &op);

struct Operator {
  OperatorRule rule;
  Handler handler;
};

struct OperatorTable {
  llvm::StringMap<Operator> operators;
  /// \param attributes  as OperatorRule reads them
  void add(std::initializer_list<const char *> names, size_t least, size_t most, const char *attributes, Handler handler);
};

// The operators of each file.
void addActivationOps(OperatorTable &table);
void addAttentionOps(OperatorTable &table);
void addComposedReductions(OperatorTable &table);
void addUnaryOps(OperatorTable &table);
void addElementwiseOps(OperatorTable &table);
void addIndexOps(OperatorTable &table);
void addStatisticOps(OperatorTable &table);
void addEinsumOps(OperatorTable &table);
void addRegroupOps(OperatorTable &table);
void addControlOps(OperatorTable &table);
void addConvolutionOps(OperatorTable &table);
void addPoolingOps(OperatorTable &table);
void addPickOps(OperatorTable &table);
void addScatterOps(OperatorTable &table);
void addRunningOps(OperatorTable &table);
void addLinearOps(OperatorTable &table);
void addReduceOps(OperatorTable &table);
void addLossOps(OperatorTable &table);
void addSequenceOps(OperatorTable &table);
void addViewOps(OperatorTable &table);
void addSliceOps(OperatorTable &table);
void addResizeOps(OperatorTable &table);
void addRecurrentOps(OperatorTable &table);
void addGridOps(OperatorTable &table);
void addFourierOps(OperatorTable &table);
void addDrawnOps(OperatorTable &table);

/// What is registered of a node's operator; null if it is not known.
const Operator *operatorOf(const GraphNode &node);

/// What `node` says and the rule does not know: operands, attributes, their types and values. Empty if nothing.
std::vector<std::string> notUnderstood(const GraphNode &node, const OperatorRule &rule);

/// What to do about an operator that there is no handler for; empty if there is nothing particular to say.
llvm::StringRef remedyFor(llvm::StringRef op);

/// The type of `attribute`'s value: as it says, else by the field that is there; 0 if neither.
int32_t typeOf(const onnx::Attribute &attribute);

} // namespace zorse::onnx_import
