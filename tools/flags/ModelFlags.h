// How an ONNX model is read: options that zorse-compile and zorse-plan share.
#pragma once

#include "zorse/Pipelines/Compile.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace zorse {

struct ModelFlags {
  std::string precision = "f32", residual, accumulate, shifted;
  std::vector<std::string> dims;

  void addTo(CLI::App &app, pipelines::CompileOptions &options);
  /// Errors name the option, what it expects and what it got.
  Status resolve(pipelines::CompileOptions &options) const;
};

} // namespace zorse
