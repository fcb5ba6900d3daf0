// Diagnostics of the compiler as people read them: one line each, naming the ONNX node, its notes below.
#pragma once

#include "mlir/IR/Diagnostics.h"

#include <string>

namespace zorse::pipelines {

/// While it lives, diagnostics of the context go to standard error as
///
///     error: gpt.onnx: 'h.3/attn/MatMul_2': expects inner dimensions to agree, got ...
class DiagnosticPrinter {
public:
  DiagnosticPrinter(mlir::MLIRContext *context, std::string file);
  ~DiagnosticPrinter();

private:
  mlir::MLIRContext *context;
  mlir::DiagnosticEngine::HandlerID handler;
};

/// "error: <message>" on standard error; messages of several lines get one prefix each.
void printError(const std::string &message);

} // namespace zorse::pipelines
