// Between serialised programs and the exec dialect, their readable form.
//
//   StepGraph ─step::writeProgram→ bundle::Program ─programToExec→ exec.program
//                                         ↑                             │
//                                         └────────execToProgram────────┘
//
// execToProgram(programToExec(p)) is p, byte for byte. Bundles are written without exec IR. Errors are diagnostics of the context.
#pragma once

#include "bundle.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace zorse::conversion {

/// What the text calls things. `summary` and `bodies` may be null: then values, units and bodies have numbers only, and slots no access.
struct ExecNames {
  std::vector<std::string> devices; ///< by index; made up ("device3") beyond the end
  const bundle::ModelSummary *summary = nullptr;
  const bundle::BodyLibrary *bodies = nullptr;
};

/// The program of the module's only `exec.program`.
mlir::FailureOr<bundle::Program> execToProgram(mlir::ModuleOp module);

/// A serialised program as text; the inverse of execToProgram, with names.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> programToExec(mlir::MLIRContext *context, const bundle::Program &program, const ExecNames &names);

} // namespace zorse::conversion
