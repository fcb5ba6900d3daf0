// Options of zorse-compile and zorse-plan for importing an ONNX model.
#pragma once

#include "zorse/Pipelines/Compile.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace zorse {

/// Values of the options as given on the command line; `resolve` checks and converts them.
struct ModelFlags {
  std::string precision = "f32", accumulate, shifted;
  bool fp32Residual = false;
  std::vector<std::string> dims;

  void addTo(CLI::App &app, pipelines::CompileOptions &options);
  /// Errors name the option, the expected value and the value found.
  Status resolve(pipelines::CompileOptions &options) const;
};

/// Adds --gradient-wire, whose names it checks.
void addGradientWire(CLI::App &app, pipelines::CompileOptions &options);

} // namespace zorse
