// Random data for the values at the frontier of a head. Drawn for values of the IR and read as the
// values of the file that view them.
#pragma once

#include "HeadFrontier.h"
#include "HeadProgram.h"

#include "../Reference/Array.h"

#include "zorse/Import/ONNX/Import.h"

#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace zorse::onnx_import {

struct HeadSource;

/// Whether the argument contains a constant of the graph.
bool isLifted(mlir::func::FuncOp function, mlir::BlockArgument argument);

/// The shape of a view for `samples` samples.
std::vector<int64_t> shapeFor(const View &view, int64_t samples);

class HeadData {
public:
  HeadData(const HeadSource &source, const HeadProgram &program, const std::set<int> &cuts)
      : source(source), program(program), cuts(cuts) {}

  /// Draws data for all cuts. Draws differ in the seed and in their integers: the first draws
  /// contain ignored labels, the last ones only small ids.
  bool draw(int64_t samples, int which);
  /// Reads a value of the file through its view. None if its data were not drawn.
  std::optional<onnx_reference::Array> show(const HeadValue &value, int64_t samples) const;
  const HeadProgram::Data &numbers() const { return data; }
  const std::string &problem() const { return why; }

private:
  void fill(mlir::Value value, const std::vector<int64_t> &shape, int which);
  bool readWeight(mlir::BlockArgument argument);
  int64_t boundOf(mlir::Value value) const;
  std::optional<int64_t> ignoredIn(mlir::Value value) const;
  double uniform();

  const HeadSource &source;
  const HeadProgram &program;
  const std::set<int> &cuts;
  HeadProgram::Data data;
  uint64_t state = 0;
  std::string why;
};

} // namespace zorse::onnx_import
