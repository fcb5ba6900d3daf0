// An ONNX model whose units groups of devices divide.
#pragma once

#include "zorse/Pipelines/Compile.h"
#include "zorse/Planning/DividedModel.h"

namespace zorse::pipelines {

/// Compiles the functions of the devices of groups. Every division imports the file.
class DivisibleOnnx final : public planning::DivisibleModel {
public:
  /// \param options  of the compilation; `plan` is not used
  explicit DivisibleOnnx(CompileOptions options);
  /// Errors have been printed: their messages are empty.
  Result<planning::DividedModel> divide(const std::vector<planning::UnitGroup> &groups) override;

private:
  CompileOptions options;
};

} // namespace zorse::pipelines
