// From the recognised `@model` to units: a chain of zorse.unit, the functions of their classes, and the ModelSummary that planner, Step and verifier
// read.
//
// Errors are diagnostics at the model's own operations and arguments; functions return failure after emitting them.
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

/// Module attributes: what the graph does not say (zorse-configure), and what the model computed before roundings were inserted (zorse-hash-model).
inline constexpr llvm::StringLiteral kSettingsAttr =
    "zorse.settings";                                            ///< fields of ModelSummary in protobuf's text format: training, precision, name
inline constexpr llvm::StringLiteral kDecayAttr = "zorse.decay"; ///< as parseDecay reads it
inline constexpr llvm::StringLiteral kBatchAttr = "zorse.batch"; ///< i64: samples of a step
inline constexpr llvm::StringLiteral kContentHashAttr = "zorse.content_hash";
/// Texts of files (FileText) that say how the model is trained: devices and links; measured times, an array of files; the plan, which zorse-plan
/// makes canonical, or finds.
inline constexpr llvm::StringLiteral kClusterAttr = "zorse.cluster", kProfilesAttr = "zorse.profiles", kPlanAttr = "zorse.plan";
/// Of `@model`, as zorse-find-units sets it: first unit, period and count of the repeated blocks (array<i64>).
inline constexpr llvm::StringLiteral kBlocksAttr = "zorse.blocks";

#define GEN_PASS_DECL
#include "zorse/Units/Passes.h.inc"

/// Which parameters weight decay applies to.
struct DecayRule {
  bool byRank = true;                ///< rank >= 2: matrices and tables, no biases and gains
  std::vector<std::string> patterns; ///< else: a parameter whose name contains one of these
};

/// `rank`, `all`, `none` or `names:P,Q`; nothing for another text.
std::optional<DecayRule> parseDecay(llvm::StringRef text);

/// Settings as zorse-configure takes them, on one line.
std::string settingsText(const bundle::ModelSummary &settings);

struct UnitPassOptions {
  autodiff::SavePolicy saved = autodiff::SavePolicy::MinimumCut; ///< what forwards keep for their backwards
  bool sampling = false;                                         ///< also the function that text is sampled by
};

/// From a chain of units with a forward per class to all functions that programs call.
void addFunctionPasses(mlir::OpPassManager &passes, const UnitPassOptions &options);

/// The summary of a module after zorse-find-units: of what its classes have so far. Body indices, workspaces and work on GPUs are left for codegen.
mlir::FailureOr<bundle::ModelSummary> summarize(mlir::ModuleOp module);

/// A function of one of the summary's classes; null: there is none.
mlir::func::FuncOp functionOp(mlir::ModuleOp module, const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task);

/// What codegen knows of one function.
struct BodyFacts {
  uint32_t body = 0; ///< UINT32_MAX: there is none (only parts of a backward and of a forward may be missing)
  bundle::Extent workspace;
};

/// Fills body indices and workspaces: `facts` is asked once per function name (functions of classes, "counts", "update.decay", "update.plain",
/// "norm", "sum_loss", "decide", "cast"). May be called again when bodies have moved.
void assignBodies(bundle::ModelSummary &summary, const std::function<BodyFacts(llvm::StringRef function)> &facts);

/// The summary for people: one line per unit, group and value.
void printSummary(const bundle::ModelSummary &summary, llvm::raw_ostream &os);

/// Registers the passes of Passes.td.
void registerPasses();

} // namespace zorse::units
