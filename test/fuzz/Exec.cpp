// Exec IR as text, to a program and back.
#include "Fuzz.h"

#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Dialect/Exec/Exec.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <memory>

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  // A context keeps every type, attribute and location it has seen: it is replaced from time to time.
  static std::unique_ptr<mlir::MLIRContext> context;
  static int uses = 0;
  if (uses++ % 1000 == 0) {
    context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
    context->loadDialect<exec::ExecDialect>();
  }
  bool said = false;
  mlir::ScopedDiagnosticHandler handler(context.get(), [&](mlir::Diagnostic &diagnostic) {
    said = true;
    return mlir::success();
  });
  std::string text(bytes);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(context.get()), "program.mlir");
  ZORSE_FUZZ_EXPECT(module || said);
  if (!module)
    return false;
  mlir::FailureOr<bundle::Program> program = conversion::execToProgram(*module);
  if (mlir::failed(program)) {
    ZORSE_FUZZ_EXPECT(said);
    return false;
  }
  // What the text says is what the program says.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> again = conversion::programToExec(context.get(), *program, {});
  if (mlir::succeeded(again)) {
    mlir::FailureOr<bundle::Program> same = conversion::execToProgram(**again);
    ZORSE_FUZZ_EXPECT(mlir::succeeded(same) && same->SerializeAsString() == program->SerializeAsString());
  } else {
    ZORSE_FUZZ_EXPECT(said);
  }
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  static const std::vector<const char *> words = {
      "exec.program",
      "exec.arena",
      "exec.queue",
      "exec.state",
      "exec.compute",
      "exec.call",
      "exec.send",
      "exec.receive",
      "exec.copy",
      "exec.load_input",
      "exec.load_scalars",
      "exec.all_gather",
      "exec.reduce_scatter",
      "exec.all_reduce",
      "exec.report",
      "@a",
      "#0",
      "#4294967295",
      "[0 : 64]",
      "after",
      "previous",
      "f32",
      "bf16",
      "parameters",
      "gradients",
      "moment",
      "value",
      "saved",
      "deferred",
      "{",
      "}",
      "(",
      ")",
      "[",
      "]",
      "->",
      ":",
      ",",
      "\n",
      "\"",
      "-",
      "0x10",
      "1.0e400",
      "unit",
      "rows",
      "attributes {}",
      "loc(unknown)",
  };
  fuzz::Random random(seed);
  return fuzz::put(fuzz::mutateText({reinterpret_cast<char *>(data), size}, words, random), data, maxSize);
}
