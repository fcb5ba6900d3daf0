// Passes over graph IR. lib/Pipelines determines their order; `zorse-opt` runs each of them alone.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
namespace arith {
class ArithDialect;
}
namespace math {
class MathDialect;
}
class OpPassManager;
} // namespace mlir

namespace zorse {

class ZorseDialect;

#define GEN_PASS_DECL
#include "zorse/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "zorse/Transforms/Passes.h.inc"

/// Module attribute: a dictionary from the names of lifted constants to their values.
inline constexpr llvm::StringLiteral kConstantValueAttr = "zorse.constant_value";

/// Adds the passes that turn an imported module into the recognized graph IR from which units are
/// cut: canonicalize, recognize operations in an order in which none hides another, canonicalize,
/// lift constants, verify. They run on a module.
void addRecognitionPasses(mlir::OpPassManager &passes);

/// Registers all passes above and the pipeline `zorse-recognize`.
void registerTransformPasses();

} // namespace zorse
