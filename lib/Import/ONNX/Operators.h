// The operators that the importer supports: names, operator sets, operands, attributes with their
// defaults, and the functions that import them. Each source file registers its operators in one
// table at its end.
//
// An attribute that is not registered is an error, because ignoring it would silently change the
// mathematics of the model.
#pragma once

#include "Graph.h"

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <deque>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace zorse::onnx_import {

class OpContext;

/// Imports one node. Fails after an error.
using ImportFunction = mlir::LogicalResult (*)(OpContext &op);

/// An attribute: its type, and its default if the file omits it.
struct AttributeInfo {
  enum class Type : uint8_t {
    Real = 1,
    Integer,
    Text,
    Tensor,
    Graph,
    Reals,
    Integers,
    Texts
  }; // numbers of AttributeProto.AttributeType
  using Default = std::variant<std::monostate, int64_t, double, const char *, std::vector<int64_t>>;

  const char *name;
  Type type;
  Default otherwise = {}; ///< monostate: the import function computes the default
  bool isRequired = false;
  bool isIgnored = false;                ///< no value of it changes the mathematics; not read
  std::vector<const char *> values = {}; ///< supported values; empty: all
};

// Attributes of each type, with their defaults.
inline AttributeInfo integer(const char *name) { return {name, AttributeInfo::Type::Integer}; }
inline AttributeInfo integer(const char *name, int64_t otherwise) {
  return {name, AttributeInfo::Type::Integer, otherwise};
}
inline AttributeInfo real(const char *name) { return {name, AttributeInfo::Type::Real}; }
inline AttributeInfo real(const char *name, double otherwise) {
  return {name, AttributeInfo::Type::Real, otherwise};
}
inline AttributeInfo text(const char *name) { return {name, AttributeInfo::Type::Text}; }
inline AttributeInfo text(const char *name, const char *otherwise) {
  return {name, AttributeInfo::Type::Text, otherwise};
}
inline AttributeInfo integers(const char *name) { return {name, AttributeInfo::Type::Integers}; }
inline AttributeInfo integers(const char *name, std::vector<int64_t> otherwise) {
  return {name, AttributeInfo::Type::Integers, std::move(otherwise)};
}
inline AttributeInfo reals(const char *name) { return {name, AttributeInfo::Type::Reals}; }
inline AttributeInfo texts(const char *name) { return {name, AttributeInfo::Type::Texts}; }
inline AttributeInfo constant(const char *name) { return {name, AttributeInfo::Type::Tensor}; }
inline AttributeInfo body(const char *name) { return {name, AttributeInfo::Type::Graph}; }
inline AttributeInfo required(AttributeInfo attribute) {
  return attribute.isRequired = true, attribute;
}
inline AttributeInfo ignored(AttributeInfo attribute) {
  return attribute.isIgnored = true, attribute;
}
inline AttributeInfo only(AttributeInfo attribute, std::vector<const char *> values) {
  return attribute.values = std::move(values), attribute;
}
/// Concatenates attributes that several operators share and attributes of one operator.
std::vector<AttributeInfo> with(std::vector<AttributeInfo> shared, std::vector<AttributeInfo> own);

/// Versions of the operator set for which a registration is valid.
struct Opsets {
  int64_t first = 0, last = std::numeric_limits<int64_t>::max();
};
inline Opsets since(int64_t first) { return {first}; }
inline Opsets until(int64_t last) { return {0, last}; }

constexpr size_t kAny = std::numeric_limits<size_t>::max();

struct Registration {
  std::vector<const char *> names; ///< operators that one function imports; "domain.Name" outside
                                   ///< of the default domain
  size_t min, max;                 ///< min and max number of operands
  std::vector<AttributeInfo> attributes;
  ImportFunction import;
  Opsets opsets = {};

  const AttributeInfo *attribute(llvm::StringRef name) const; ///< null if no attribute has this
                                                              ///< name
};

class OperatorRegistry {
public:
  void add(std::vector<Registration> operators);
  const Registration *find(const GraphNode &node) const; ///< null if the operator is not known, or
                                                         ///< not in this version

private:
  std::deque<Registration> all;
  llvm::StringMap<std::vector<const Registration *>> byName;
};

// Registration functions, one per source file.
void registerActivationOps(OperatorRegistry &registry);
void registerAttentionOps(OperatorRegistry &registry);
void registerComposedReductions(OperatorRegistry &registry);
void registerUnaryOps(OperatorRegistry &registry);
void registerElementwiseOps(OperatorRegistry &registry);
void registerIndexOps(OperatorRegistry &registry);
void registerStatisticOps(OperatorRegistry &registry);
void registerEinsumOps(OperatorRegistry &registry);
void registerRegroupOps(OperatorRegistry &registry);
void registerControlOps(OperatorRegistry &registry);
void registerConvolutionOps(OperatorRegistry &registry);
void registerPoolingOps(OperatorRegistry &registry);
void registerPickOps(OperatorRegistry &registry);
void registerScatterOps(OperatorRegistry &registry);
void registerRunningOps(OperatorRegistry &registry);
void registerLinearOps(OperatorRegistry &registry);
void registerReduceOps(OperatorRegistry &registry);
void registerLossOps(OperatorRegistry &registry);
void registerSequenceOps(OperatorRegistry &registry);
void registerViewOps(OperatorRegistry &registry);
void registerSliceOps(OperatorRegistry &registry);
void registerResizeOps(OperatorRegistry &registry);
void registerRecurrentOps(OperatorRegistry &registry);
void registerGridOps(OperatorRegistry &registry);
void registerFourierOps(OperatorRegistry &registry);
void registerDrawnOps(OperatorRegistry &registry);

/// The registration of the operator of a node; null if it is not known.
const Registration *registrationOf(const GraphNode &node);
/// Whether every element of the results depends on one element of each operand, by broadcasting.
/// Also true for Dropout.
bool isElementwise(const GraphNode &node);

/// Operands and attributes of `node` that do not match the registration: their number, types or
/// values. Empty if all match.
std::vector<std::string> notUnderstood(const GraphNode &node, const Registration &rule);

/// A hint for an operator that is not supported; empty if there is none.
llvm::StringRef remedyFor(llvm::StringRef op);

/// The type of the value of `attribute`: the specified type, else the type of the field that is
/// set; 0 if neither.
int32_t typeOf(const onnx::Attribute &attribute);

} // namespace zorse::onnx_import
