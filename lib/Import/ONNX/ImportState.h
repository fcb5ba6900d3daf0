// State of an import. An import is an abstract interpretation of the file's graph: every value
// becomes a constant, a number known before the step, a view of a value of the IR, or a sum over
// samples.
//
// Shapes are concrete during the import, with `rows` samples: the file's own batch size if it is
// fixed, another number if it is symbolic. This number only determines structure. The sample axis
// is a marked factor of views, its size is read as the Number B, and the emitted IR has `?`
// instead.
#pragma once

#include "Graph.h"
#include "ImportedValue.h"
#include "ModuleMetadata.h"

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

/// A reduction over all samples of a step of a value that depends only on inputs.
struct Count {
  mlir::Value numerator; ///< tensor<?xfloat>
  ReduceKind reduce = ReduceKind::Sum;
};

/// Properties of a constant with two axes: whether it is a causal mask, its window (0: none), and
/// the value `fill` of hidden floats.
struct CausalPattern {
  bool causal = false;
  int64_t window = 0;
  double fill = 0;
};

/// The use of an initializer, decided before anything is emitted. Frozen: a parameter that is not
/// trained, an argument with a separate name. Buffer: a constant that stays an argument because it
/// is large or its bytes are missing.
enum class InitializerRole : uint8_t { Constant, Trained, Frozen, Buffer };

/// The inputs of an imported cross-entropy.
struct LossInfo {
  mlir::Value labels;
  mlir::Value logits;
  std::optional<int64_t> ignore;
  int64_t classes = 0;
};

struct ImportState {
  ImportState(LoadedModel &model, FlatGraph &graph, const ImportOptions &options,
              mlir::MLIRContext &context);

  /// Whether a value depends only on inputs, not on parameters or random numbers.
  bool isFromInputs(mlir::Value value) const { return !weighted.contains(value); }
  bool dependsOnParameter(mlir::Value value) const { return tainted.contains(value); }

  LoadedModel &model;
  FlatGraph &graph;
  ModuleMetadata metadata;
  std::set<std::string> padded; ///< embedding weights with a padding row that has been applied
  const ImportOptions &options;
  int64_t tooLarge = 0; ///< elements of a constant that was too large to compute
  mlir::MLIRContext &context;
  mlir::OpBuilder builder;
  mlir::Location location;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::Block *block = nullptr;
  std::vector<mlir::DictionaryAttr> argumentAttributes;

  int lossNumber = -1; ///< value number of the loss; -1 if it is not in the file
  int64_t rows = 0;    ///< size of the sample factor in views; never used as a number of the graph
  bool rowsBaked = false;
  bool inGroup = false;         ///< a node is being imported for a group of samples
  bool combinesSamples = false; ///< the loss of a group is no sum over its samples
  std::vector<Count> counts;
  llvm::DenseSet<mlir::Value> weighted; ///< values that depend on weights or random numbers
  std::deque<ImportedValue> values; ///< by value number; a deque, because handlers keep references
                                    ///< while values are added
  std::vector<std::string> inputNames; ///< by argument
  std::map<std::string, unsigned> inputArguments;
  std::map<int, const onnx::Tensor *> initializers; ///< by value number
  std::map<const onnx::Tensor *, InitializerRole> roles;
  std::map<const onnx::Tensor *, ImportedValue> parameters;
  std::vector<std::unique_ptr<onnx::Tensor>> restored; ///< merged parameters that are separate
                                                       ///< again
  std::map<const onnx::Tensor *, const onnx::Tensor *> transposeOf; ///< matrices that the exporter
                                                                    ///< wrote twice
  std::map<const onnx::Tensor *, const onnx::Tensor *> rawSources;  ///< initializers that contain
                                                                    ///< their bytes
  std::vector<WeightSource> weights; ///< index: argument number minus number of inputs; in order of
                                     ///< creation
  std::map<unsigned, size_t> weightOfArgument;
  llvm::DenseSet<mlir::Value> tainted;
  llvm::DenseMap<size_t, llvm::SmallVector<mlir::Operation *, 1>> emitted; ///< by structural hash
  std::map<std::tuple<const Lazy *, int64_t, int64_t, int64_t, int64_t, int64_t>, CausalPattern>
      maskCache;
  std::map<std::pair<const Lazy *, int64_t>, bool> openCache;
  std::vector<LazyPtr> keepAlive; ///< keeps the keys of the caches valid
  std::vector<LossInfo> losses;
  int64_t dropouts = 0, drawnMasks = 0;
  std::map<int64_t, bool> keepsSmallNumbers; ///< by rngId of Drawn
  std::set<const onnx::Tensor *> statistics; ///< running statistics
  bool guessedSingleRow = false;
  std::vector<std::string> frozenNorms; ///< batch norms that normalize by running statistics which
                                        ///< are not updated
  bool normsMayTrain = false;           ///< --group-rows would train some of them
  bool normsTrain = false;              ///< some of them train in the module, as the file states
  int64_t inertDropouts = 0;
  std::vector<std::string> warnings, notes;
};

/// Reports an error about the file as a whole. \returns failure
mlir::LogicalResult error(ImportState &state, const llvm::Twine &message);
/// Records a warning, without duplicates.
void warn(ImportState &state, const std::string &message);

} // namespace zorse::onnx_import
