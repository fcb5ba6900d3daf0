// Passes over graph IR. lib/Pipelines orders them; `zorse-opt` runs each alone.
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

/// What turns an imported module into the recognised graph IR the units are cut from, for use on a module: canonicalise, recognise (each op in an
/// order in which none hides another), canonicalise, lift constants, verify.
void addRecognitionPasses(mlir::OpPassManager &passes);

/// Registers all passes above and the pipeline `zorse-recognize`.
void registerTransformPasses();

} // namespace zorse
