// Turns the recognized `@model` into units: a chain of zorse.unit, the functions of their classes,
// and the ModelSummary that the planner, Step and the verifier read. A unit is the smallest slice
// of the graph that a plan can place.
//
// Errors are diagnostics at the model's operations and arguments. Functions return failure after
// emitting them.
#pragma once

#include "bundle.pb.h"
#include "zorse/Autodiff/Autodiff.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
}
namespace mlir {
class OpPassManager;
namespace arith {
class ArithDialect;
}
} // namespace mlir

namespace zorse {
class ZorseDialect;
}

namespace zorse::units {

/// Module attributes: settings that the graph does not contain (zorse-configure), and the hash of
/// the model before roundings were inserted (zorse-hash-model).
/// Fields of ModelSummary in protobuf's text format: training, precision, name.
inline constexpr llvm::StringLiteral kSettingsAttr = "zorse.settings";
inline constexpr llvm::StringLiteral kDecayAttr = "zorse.decay"; ///< text for parseDecay
inline constexpr llvm::StringLiteral kBatchAttr = "zorse.batch"; ///< i64: samples per step
inline constexpr llvm::StringLiteral kContentHashAttr = "zorse.content_hash";
/// Contents of the files (FileText) that describe the training: the cluster's devices and links;
/// measured times, an array of files; the plan. zorse-plan writes the plan in canonical form, or
/// searches one.
inline constexpr llvm::StringLiteral kClusterAttr = "zorse.cluster",
                                     kProfilesAttr = "zorse.profiles", kPlanAttr = "zorse.plan";
/// Attribute of `@model` that zorse-find-units sets: first unit, period and count of the repeated
/// blocks (array<i64>).
inline constexpr llvm::StringLiteral kBlocksAttr = "zorse.blocks";
/// Of a parameter: [rows, columns] of the matrices of which it consists, if it is a weight of a
/// hidden layer.
inline constexpr llvm::StringLiteral kHiddenAttr = "zorse.hidden";

#define GEN_PASS_DECL
#include "zorse/Units/Passes.h.inc"

/// Formats settings in one line, as an option of zorse-configure.
std::string settingsText(const bundle::ModelSummary &settings);

struct UnitPassOptions {
  autodiff::RecomputePolicy saved = autodiff::RecomputePolicy::MinCut; ///< tensors that forwards
                                                                       ///< save for their backwards
  /// Makes a pass that runs on joint functions; null: none.
  std::function<std::unique_ptr<mlir::Pass>()> onJoint;
  bool sampling = false; ///< also create the function for text generation
};

/// Adds the passes from a chain of units with a forward per class to all functions that programs
/// call.
void addFunctionPasses(mlir::OpPassManager &passes, const UnitPassOptions &options);

/// Summarizes a module after zorse-find-units, with the functions that its classes have so far.
/// Codegen fills in compiled function indices, workspaces and work on GPUs.
mlir::FailureOr<bundle::ModelSummary> summarize(mlir::ModuleOp module);

/// Returns a function of one of the summary's classes; null if there is none.
mlir::func::FuncOp functionOp(mlir::ModuleOp module, const bundle::UnitClass &unitClass,
                              bundle::UnitFunction::Task task);

/// Results of codegen for one function.
struct FunctionSizes {
  uint32_t function = 0; ///< UINT32_MAX: not compiled (allowed only for parts of a backward and of
                         ///< a forward)
  bundle::AffineSize workspace;
};

/// Fills compiled function indices and workspaces. Calls `sizes` once per function name (functions
/// of classes, "counts", "update.decay", "update.plain", "norm", "sum_loss", "decide", "cast"). May
/// be called again after compiled functions have moved.
void assignFunctions(bundle::ModelSummary &summary,
                     const std::function<FunctionSizes(llvm::StringRef function)> &sizes);

/// Prints a human-readable summary: one line per unit, group and value.
void printSummary(const bundle::ModelSummary &summary, llvm::raw_ostream &os);

/// Registers the passes of Passes.td.
void registerPasses();

} // namespace zorse::units
