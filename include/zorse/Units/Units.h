// From the recognised `@model` to units: cuts, classes and their functions, state groups, and the ModelSummary that planner, Step and verifier read.
//
// Errors are diagnostics at the model's own operations and arguments; functions return failure after emitting them.
#pragma once

#include "bundle.pb.h"
#include "zorse/Autodiff/Autodiff.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
}
namespace mlir {
class Pass;
}

namespace zorse::units {

/// Which parameters weight decay applies to.
struct DecayRule {
  /// By default rank >= 2 decays (matrices and tables do, biases and gains do not). With patterns, a parameter decays iff its name contains none
  /// of `never` and (`always` is empty or it contains one of `always`).
  std::vector<std::string> always;
  std::vector<std::string> never;
  bool byName = false;
};

/// How far `buildUnits` goes.
enum class Until { Forward, Joint, Functions };

struct UnitOptions {
  autodiff::SavePolicy saved = autodiff::SavePolicy::MinimumCut;
  DecayRule decay;
  bundle::TrainingOptions training; ///< copied into the summary; decides the moments and the update functions.
  /// A value that waits for its next reader over at least this many matrix products and attentions is carried across cuts where no narrow cut exists.
  int longSpan = 9;
  std::string contentHash; ///< of the model before roundings were inserted; empty: of the module as it is
  bool logits = false;     ///< also the function that text is sampled by, `@<class>.logits` of the unit with the loss
  Until until =
      Until::Functions; ///< earlier: only a function `@<class>.forward` or `@<class>.joint` of each class, for a look at them, and no summary
};

struct UnitModel {
  mlir::OwningOpRef<mlir::ModuleOp> functions; ///< the summary's classes, `@counts`, `@update.*`
  bundle::ModelSummary summary;
  std::string logits; ///< "head.logits"; empty: not asked for
};

/// A function of one of the summary's classes.
mlir::func::FuncOp functionOp(const UnitModel &model, const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task);

/// Of a recognised model, for ModelSummary.content_hash; locations do not count, and lifted constants count by their names, which hold a hash of
/// their values.
std::string contentHash(mlir::ModuleOp model);

/// Finds units and classes in `@model`, differentiates each class once and fills the summary. Where nothing is trained and no gradient passes, the
/// backward of a class does nothing. Body indices and workspace sizes are left for codegen (`assignBodies`).
mlir::FailureOr<UnitModel> buildUnits(mlir::ModuleOp model, const UnitOptions &options);

/// What codegen knows of one function.
struct BodyFacts {
  uint32_t body = 0; ///< UINT32_MAX: there is none (only parts of a backward and of a forward may be missing)
  bundle::Extent workspace;
};

/// Fills body indices and workspaces: `facts` is asked once per function name (unit functions, "counts", "update.decay", "update.plain",
/// "norm", "sum_loss", "decide", "cast", that of the logits, and the parts of backwards and of forwards). May be called again when bodies have moved.
void assignBodies(UnitModel &model, const std::function<BodyFacts(llvm::StringRef function)> &facts);

/// The summary for people: one line per unit, group and value.
void printSummary(const bundle::ModelSummary &summary, llvm::raw_ostream &os);

/// `zorse-find-units` with its default options.
std::unique_ptr<mlir::Pass> createFindUnits();

/// Registers `zorse-find-units` (replaces `@model` by the unit functions and prints the summary with `print-summary`).
void registerPasses();

} // namespace zorse::units
