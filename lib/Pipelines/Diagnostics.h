// Human-readable diagnostics of the compiler: one line each, with the ONNX node, followed by its
// notes.
#pragma once

#include "zorse/Base/Status.h"

#include "mlir/IR/Diagnostics.h"

#include <cstdint>
#include <string>
#include <utility>

namespace zorse::pipelines {

/// Prints diagnostics of the context to standard error during its lifetime:
///
///     error: gpt.onnx: 'h.3/attn/MatMul_2': expects inner dimensions to agree, got ...
///
/// Remarks contain the results of passes and are collected.
class DiagnosticPrinter {
public:
  DiagnosticPrinter(mlir::MLIRContext *context, std::string file);
  ~DiagnosticPrinter();

  /// Returns the remarks since the last call, each after a comma.
  std::string takeRemarks() { return std::exchange(remarks, std::string()); }

private:
  std::string remarks;
  mlir::MLIRContext *context;
  mlir::DiagnosticEngine::HandlerID handler;
};

/// Prints "error: <message>" to standard error; every line of the message gets the prefix.
void printError(const std::string &message);
/// Prints the message of a failed status. Returns whether the status is success.
mlir::LogicalResult told(const Status &status);

/// Returns "1 cell", "2 cells".
std::string counted(size_t count, const char *word);
/// Returns "12 KiB", "3.4 MiB".
std::string megabytes(uint64_t bytes);

} // namespace zorse::pipelines
