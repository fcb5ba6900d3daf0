// Fuzzes the import of ONNX files into verified graph IR.
#include "Fuzz.h"

#include "zorse/Import/ONNX/Import.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

#include <memory>

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const std::string path = [] {
    static ScratchFile data("d");
    data.write(std::string(64, 'x'));
    return scratchDirectory() + "m.onnx";
  }();
  // A context keeps all types and attributes, so it is replaced from time to time.
  static std::unique_ptr<mlir::MLIRContext> context;
  static int uses = 0;
  if (uses++ % 500 == 0)
    context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  bool said = false;
  mlir::ScopedDiagnosticHandler handler(context.get(), [&](mlir::Diagnostic &diagnostic) {
    said = true;
    ZORSE_FUZZ_EXPECT(!diagnostic.str().empty());
    return mlir::success();
  });
  ImportOptions options;
  options.sequence = 4;
  options.trustGuess = true;     // accept more inputs than by default
  options.maxComputed = 1 << 22; // to limit the time per input
  mlir::FailureOr<ImportedModel> imported =
      importOnnx(path, bytes.data(), bytes.size(), options, *context);
  ZORSE_FUZZ_EXPECT(mlir::succeeded(imported) || said);
  if (mlir::failed(imported))
    return false;
  ZORSE_FUZZ_EXPECT(mlir::succeeded(mlir::verify(*imported->module)));
  for (const WeightSource &weight : imported->weights)
    if (weight.file.empty() && weight.owned)
      touch(weight.owned->data(), weight.owned->size());
  return true;
}
