// Diagnostics of the compiler as people read them: one line each, naming the ONNX node, its notes below.
#pragma once

#include "zorse/Base/Status.h"

#include "mlir/IR/Diagnostics.h"

#include <cstdint>
#include <string>
#include <utility>

namespace zorse::pipelines {

/// While it lives, diagnostics of the context go to standard error as
///
///     error: gpt.onnx: 'h.3/attn/MatMul_2': expects inner dimensions to agree, got ...
///
/// Remarks, which say what passes have made, are kept.
class DiagnosticPrinter {
public:
  DiagnosticPrinter(mlir::MLIRContext *context, std::string file);
  ~DiagnosticPrinter();

  /// The remarks since the last call, behind commas.
  std::string takeRemarks() { return std::exchange(remarks, std::string()); }

private:
  std::string remarks;
  mlir::MLIRContext *context;
  mlir::DiagnosticEngine::HandlerID handler;
};

/// "error: <message>" on standard error; messages of several lines get one prefix each.
void printError(const std::string &message);
/// Fails with the status, whose message has been printed then.
mlir::LogicalResult told(const Status &status);

/// "1 cell", "2 cells"
std::string counted(size_t count, const char *word);
/// "12 KiB", "3.4 MiB"
std::string megabytes(uint64_t bytes);

} // namespace zorse::pipelines
