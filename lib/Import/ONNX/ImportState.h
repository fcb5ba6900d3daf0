// What an import has made so far. An import is the abstract interpretation of the file's graph: every value becomes a constant, a number known before
// the step, a view of a value of the IR, or a sum over samples.
//
// Shapes are concrete while this runs: `rows` samples (the file's own batch where it is baked, another number where it is symbolic). This number is
// for structure alone: the axis of samples is a factor of views that is marked as such, its size is read as the Number B, and what is emitted has `?`
// instead.
#pragma once

#include "Facts.h"
#include "Graph.h"
#include "ImportedValue.h"

#include "zorse/Import/ONNX/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <deque>
#include <map>
#include <set>
#include <string>

namespace zorse::onnx_import {

/// A number that is a reduction over all samples of a step of what follows from inputs alone.
struct Count {
  mlir::Value numerator; ///< tensor<?xfloat>
  ReduceKind reduce = ReduceKind::Sum;
};

/// What is known about a constant of two axes: a causal mask, perhaps with a window (0: none), whose hidden floats are `fill`.
struct CausalPattern {
  bool causal = false;
  int64_t window = 0;
  double fill = 0;
};

/// What an initializer is used as, before anything is emitted. Frozen: a parameter that is not trained, an argument of its own name. Buffer: a
/// constant that stays an argument because of its size, or because its bytes are not there.
enum class InitializerRole : uint8_t { Constant, Trained, Frozen, Buffer };

/// What a cross-entropy was made of.
struct LossInfo {
  mlir::Value labels;
  mlir::Value logits;
  std::optional<int64_t> ignore;
  int64_t classes = 0;
};

struct ImportState {
  ImportState(LoadedModel &model, FlatGraph &graph, const ImportOptions &options, mlir::MLIRContext &context);

  /// Whether a value follows from inputs alone: no parameter, no random number.
  bool isFromInputs(mlir::Value value) const { return !weighted.contains(value); }
  bool dependsOnParameter(mlir::Value value) const { return tainted.contains(value); }

  LoadedModel &model;
  FlatGraph &graph;
  Facts facts;
  std::set<std::string> padded; ///< tables whose padding has been honoured
  const ImportOptions &options;
  int64_t tooLarge = 0; ///< elements of a constant that was not computed
  mlir::MLIRContext &context;
  mlir::OpBuilder builder;
  mlir::Location location;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::Block *block = nullptr;
  std::vector<mlir::DictionaryAttr> argumentAttributes;

  int lossNumber = -1; ///< the value that is the loss; -1: it is not in the file
  int64_t rows = 0;    ///< the size of the sample factor in views; never a number of the graph
  bool rowsBaked = false;
  std::vector<Count> counts;
  llvm::DenseSet<mlir::Value> weighted; ///< values that follow from other than inputs: of weights and of random numbers
  std::deque<ImportedValue> values;     ///< by value number; handlers keep references while others are added
  std::vector<std::string> inputNames;  ///< by argument
  std::map<std::string, unsigned> inputArguments;
  std::map<int, const onnx::Tensor *> initializers; ///< by value number
  std::map<const onnx::Tensor *, InitializerRole> roles;
  std::map<const onnx::Tensor *, ImportedValue> parameters;
  std::vector<std::unique_ptr<onnx::Tensor>> restored;              ///< parameters taken apart again
  std::map<const onnx::Tensor *, const onnx::Tensor *> transposeOf; ///< matrices that the exporter wrote twice
  std::map<const onnx::Tensor *, const onnx::Tensor *> rawSources;  ///< where their bytes are
  std::vector<WeightSource> weights;                                ///< by argument - number of inputs, in order of creation
  std::map<unsigned, size_t> weightOfArgument;
  llvm::DenseSet<mlir::Value> tainted;
  llvm::DenseMap<size_t, llvm::SmallVector<mlir::Operation *, 1>> emitted; ///< by structural hash
  std::map<std::tuple<const Lazy *, int64_t, int64_t, int64_t, int64_t, int64_t>, CausalPattern> maskCache;
  std::map<std::pair<const Lazy *, int64_t>, bool> openCache;
  std::vector<LazyPtr> keepAlive; ///< keys of the caches
  std::vector<LossInfo> losses;
  int64_t dropouts = 0, drawnMasks = 0;
  std::map<int64_t, bool> keepsSmallNumbers; ///< by instance of Drawn
  std::set<const onnx::Tensor *> statistics; ///< running ones
  bool guessedSingleRow = false;
  std::vector<std::string> frozenNorms; ///< batch norms that normalise by running statistics which do not move
  bool normsMayTrain = false;           ///< --batch-norm-rows would train some of them
  int64_t inertDropouts = 0;
  std::vector<std::string> warnings, notes;
};

/// Reports an error of the file as a whole. \returns failure
mlir::LogicalResult error(ImportState &state, const llvm::Twine &message);
/// Keeps a warning, once.
void warn(ImportState &state, const std::string &message);

} // namespace zorse::onnx_import
