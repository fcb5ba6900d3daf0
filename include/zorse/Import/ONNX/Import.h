// From an ONNX file to the graph IR.
#pragma once

#include "zorse/Import/ONNX/FileTraining.h"
#include "zorse/Import/ONNX/HubName.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class MLIRContext;
}

namespace zorse {

/// Of all floats of the imported graph, whatever the file has.
enum class ComputeType : uint8_t { F32, F64 };

enum class TrainableChoice : uint8_t { Train, Freeze };

/// Mistakes in the factors of the loss, for tests of the check: what a compiler computes that takes 7, or the samples or counts of a part, for those
/// of a batch, or that loses or doubles the factor of the last term.
enum class HeadDamage : uint8_t { None, Drop, Double, Seven, SamplesOfPart, CountsOfPart };

struct ImportOptions {
  /// Values of symbolic dimensions by the name they have in the file ("batch", "s77", ...); wins over `sequence`.
  std::map<std::string, int64_t> dims;
  /// Length of dimension 1 of inputs where it is symbolic; 0: an error if one is needed.
  int64_t sequence = 0;
  /// Samples that a batch norm in training takes the statistics of together; such a group is a row of what is emitted. 0: such a node is an error.
  int64_t batchNormRows = 0;
  /// "": the loss is an output of the graph (`lossOutput`, or the only scalar one). "cross_entropy": it is added to `logits`.
  std::string loss;
  std::string lossOutput;
  std::string logits;
  /// Labels for `loss`: an input of the graph, or a new input of this name.
  std::string labels;
  /// The added loss compares logits of position i with the label of position i + 1 (labels = ids), as Hugging Face models do.
  bool shiftLabels = false;
  int64_t ignoreIndex = -100;
  /// Overrides what the importer finds out about the graph's own shift of the labels.
  std::optional<bool> shiftedInGraph;
  ComputeType compute = ComputeType::F32;
  /// A loss that no parameter reaches is imported: there is nothing to train, but it has a value.
  bool inputsAlone = false;
  /// Files of external data may be missing: parameters then have no bytes (`WeightSource.data` null), and a constant among them is an error.
  bool weightsLater = false;
  /// Most elements of a constant that is computed while importing and is no fill, causal mask or the like; more are an error.
  int64_t mostComputed = int64_t(1) << 30;
  /// Initializers by name, or by a pattern in which * stands for any characters, that are trained or frozen whatever the file and the rules say. A
  /// name wins over a pattern, a longer pattern over a shorter one.
  std::map<std::string, TrainableChoice> trainable;
  /// Where the file does not say which initializers are trained and their uses are ambiguous, the likelier answer is taken with a warning; otherwise
  /// it is an error.
  bool trustGuess = false;
  /// The loss is not compared with the file's own nodes by numbers.
  bool trustImport = false;
  HeadDamage headDamage = HeadDamage::None;  ///< for tests
  std::function<void(mlir::ModuleOp)> alter; ///< for tests: changes what was imported before it is compared
};

/// Where the initial value of a parameter (an argument `zorse.parameter` of the function) is.
///
/// The bytes are row-major, little-endian elements of `storedType` in the shape `storedShape`; the parameter has its `shape` in the compute type:
/// conversion, if any, happens when they are copied.
struct WeightSource {
  enum class Type : uint8_t { F32, F64, F16, BF16, I64, I32, I16, I8, U8, Bool };

  std::string parameter;
  std::vector<int64_t> shape;
  Type storedType = Type::F32;
  std::string file; ///< empty: `owned` holds the bytes
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::shared_ptr<const std::vector<uint8_t>> owned;
  const uint8_t *data = nullptr; ///< the same bytes, mapped; valid while the ImportedModel lives
  HubName hub;
};

struct ImportedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module; ///< holds `func.func @model`
  std::vector<WeightSource> weights;        ///< one per argument with `zorse.parameter`, in the order of the arguments
  std::vector<std::string> warnings;        ///< for people: a tool prints them; they are not emitted as diagnostics
  std::vector<std::string> notes;           ///< what was decided: the sample axis, shifts, trained parameters
  int64_t nodesRead = 0;                    ///< nodes of the file, functions inlined
  HubModel hub;
  std::optional<FileTraining> training; ///< where the file brings its own
  std::shared_ptr<void> storage;        ///< keeps mapped files open
};

/// Imports `path`: parses, inlines, specialises shapes, folds, finds the sample axis, and emits `@model` as docs/architecture.md describes a model.
/// Errors are diagnostics that name the ONNX node.
mlir::FailureOr<ImportedModel> importOnnx(const std::string &path, const ImportOptions &options, mlir::MLIRContext &context);

/// The same for a file whose bytes are in memory and stay there while the ImportedModel lives. `path`: for messages; external data lie beside it.
mlir::FailureOr<ImportedModel> importOnnx(const std::string &path, const void *bytes, uint64_t size, const ImportOptions &options,
                                          mlir::MLIRContext &context);

} // namespace zorse
