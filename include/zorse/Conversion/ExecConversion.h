// Between the step graph, the exec dialect and serialised programs.
//
//   StepGraph ─stepToExec→ exec.program ─execToProgram→ bundle::Program
//                               ↑                            │
//                               └───────programToExec────────┘
//
// execToProgram(programToExec(p)) is p, byte for byte. One module per device; many devices are converted with one context each, because attributes
// live as long as their context. Errors are diagnostics of the context.
#pragma once

#include "bundle.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace zorse::step {
struct StepGraph;
}

namespace zorse::conversion {

/// What the text calls things. `summary` and `bodies` may be null: then values, units and bodies have numbers only, and slots no access.
struct ExecNames {
  std::vector<std::string> devices; ///< by index; made up ("device3") beyond the end
  const bundle::ModelSummary *summary = nullptr;
  const bundle::BodyLibrary *bodies = nullptr;
};

/// The program of `device`. `names.bodies` is required: calls bind exactly the slots their bodies have.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> stepToExec(mlir::MLIRContext *context, const step::StepGraph &graph, uint32_t device,
                                                              const ExecNames &names);

/// The program of the module's only `exec.program`.
mlir::FailureOr<bundle::Program> execToProgram(mlir::ModuleOp module);

/// A serialised program as text; the inverse of execToProgram, with names.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> programToExec(mlir::MLIRContext *context, const bundle::Program &program, const ExecNames &names);

} // namespace zorse::conversion
