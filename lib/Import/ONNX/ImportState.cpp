#include "ImportState.h"

#include "mlir/IR/Diagnostics.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

ImportState::ImportState(LoadedModel &model, FlatGraph &graph, const ImportOptions &options,
                         MLIRContext &context)
    : model(model), graph(graph), options(options), context(context), builder(&context),
      location(UnknownLoc::get(&context)) {}

LogicalResult zorse::onnx_import::error(ImportState &state, const Twine &message) {
  return emitError(UnknownLoc::get(&state.context)) << state.model.path() << ": " << message,
         failure();
}

void zorse::onnx_import::warn(ImportState &state, const std::string &message) {
  if (std::find(state.warnings.begin(), state.warnings.end(), message) == state.warnings.end())
    state.warnings.push_back(message);
}
