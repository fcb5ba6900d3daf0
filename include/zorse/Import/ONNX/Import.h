// Imports an ONNX file into the graph IR.
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

/// The type of all floats in the imported graph, whatever types the file uses.
enum class ComputeType : uint8_t { F32, F64 };

enum class TrainableChoice : uint8_t { Train, Freeze };

/// Errors in the factors of the loss, injected by tests of the check. A damaged loss loses or
/// doubles the factor of its last term, or replaces a batch's number of samples by 7, or uses the
/// samples or counts of a part instead of those of the batch.
enum class HeadDamage : uint8_t { None, Drop, Double, Seven, SamplesOfPart, CountsOfPart };

struct ImportOptions {
  /// Values of symbolic dimensions by their name in the file ("batch", "s77", ...). Takes
  /// precedence over `sequence`.
  std::map<std::string, int64_t> dims;
  /// Length of dimension 1 of inputs if it is symbolic. 0: an error if a length is needed.
  int64_t sequence = 0;
  /// Number of consecutive samples that nodes may combine (losses of several samples, batch norms
  /// in training). Such a group is one row of the emitted graph, and the number of samples that the
  /// file reads is this one; the loss is the mean over groups. 0: such nodes are errors.
  int64_t groupRows = 0;
  /// "": the loss is an output of the graph (`lossOutput`, or the only scalar output).
  /// "cross_entropy": the importer adds the loss to `logits`.
  std::string loss;
  std::string lossOutput;
  std::string logits;
  /// Labels for `loss`: an input of the graph, or the name of a new input.
  std::string labels;
  /// The added loss compares the logits of position i with the label of position i + 1 (labels =
  /// ids), as Hugging Face models do.
  bool shiftLabels = false;
  int64_t ignoreIndex = -100;
  /// Overrides the detected shift of the labels in the graph.
  std::optional<bool> shiftedInGraph;
  ComputeType compute = ComputeType::F32;
  /// Imports a loss that depends on no parameter: it has a value, but there is nothing to train.
  bool inputsAlone = false;
  /// External data files may be missing. Parameters then have no bytes (`WeightSource.data` is
  /// null), and a constant in a missing file is an error.
  bool weightsLater = false;
  /// Maximum number of elements of a constant that is computed during import. Fills, causal masks
  /// and similar patterns are exempt. A larger constant is an error.
  int64_t maxComputed = int64_t(1) << 30;
  /// Initializers that are trained or frozen, whatever the file and the rules specify. A key is a
  /// name or a pattern in which * matches any characters. A name takes precedence over a pattern,
  /// and a longer pattern over a shorter one.
  std::map<std::string, TrainableChoice> trainable;
  /// If the file does not specify which initializers are trained and their uses are ambiguous, the
  /// likelier role is used with a warning. Otherwise this is an error.
  bool trustGuess = false;
  /// Skips the numerical comparison of the loss with the file's own nodes.
  bool trustImport = false;
  HeadDamage headDamage = HeadDamage::None;  ///< for tests
  std::function<void(mlir::ModuleOp)> alter; ///< for tests: changes the imported module before the
                                             ///< comparison
};

/// Location of the initial value of a parameter (a function argument with `zorse.parameter`).
///
/// The bytes are row-major, little-endian elements of `storedType` in the shape `storedShape`. The
/// parameter has `shape` and the compute type; elements are converted when they are copied.
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
  std::vector<WeightSource> weights; ///< one per argument with `zorse.parameter`, in the order of
                                     ///< the arguments
  std::vector<std::string> warnings; ///< human-readable; the caller prints them, they are not
                                     ///< emitted as diagnostics
  std::vector<std::string> notes; ///< decisions of the importer: the sample axis, shifts, trained
                                  ///< parameters
  int64_t nodesRead = 0;          ///< nodes of the file after inlining of functions
  bool combinesSamples = false;   ///< with `groupRows`: the loss of a group is no sum over its
                                  ///< samples
  bool freezesTraining = false;   ///< without `groupRows`: batch norms that train in the module, as
                                  ///< the file states, normalize by running statistics
  HubModel hub;
  std::optional<FileTraining> training; ///< set if the file contains training settings
  std::shared_ptr<void> storage;        ///< keeps mapped files open
};

/// Imports `path`: parses it, inlines functions, specializes shapes, folds constants, finds the
/// batch dimension, and emits `@model` as described in docs/internals/compiler.md. Errors are
/// diagnostics that name the ONNX node.
mlir::FailureOr<ImportedModel> importOnnx(const std::string &path, const ImportOptions &options,
                                          mlir::MLIRContext &context);

/// Imports a file from memory. The bytes must outlive the ImportedModel. `path` is used in messages
/// and to locate external data files.
mlir::FailureOr<ImportedModel> importOnnx(const std::string &path, const void *bytes, uint64_t size,
                                          const ImportOptions &options, mlir::MLIRContext &context);

} // namespace zorse
