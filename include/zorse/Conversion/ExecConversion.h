// Programs in the exec dialect, their readable form. Bundles are written without it, and nothing reads it.
//
//   StepGraph ─step::writeProgram→ bundle::Program ─programToExec→ exec.program
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

/// A serialised program as text, however broken it is; what the text cannot say is an error, a diagnostic of the context.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> programToExec(mlir::MLIRContext *context, const bundle::Program &program, const ExecNames &names);

} // namespace zorse::conversion
