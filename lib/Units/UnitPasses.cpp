// Registers the passes related to units, and defines their order.
#include "LogitsFunction.h"

#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Summary/UpdateRules.h"
#include "zorse/Support/RegularFile.h"
#include "zorse/Units/Units.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <google/protobuf/text_format.h>

namespace zorse::units {
#define GEN_PASS_DEF_HASHMODEL
#define GEN_PASS_DEF_CONFIGURE
#define GEN_PASS_DEF_ADDLOGITS
#define GEN_PASS_DEF_PRINTSUMMARY
#define GEN_PASS_REGISTRATION
#include "zorse/Units/Passes.h.inc"
} // namespace zorse::units

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

/// Increase this after a change of the importer, of recognition or of names of the dialect that
/// changes the IR of an existing model, because its hash changes. Checkpoints and plans compare
/// only hashes of the same version (zorse/Bundle/ContentHash.h), so checkpoints of earlier versions
/// can still be resumed.
constexpr int kGraphVersion = 4;

/// Hashes the model without locations. Lifted constants are hashed by their names, which contain a
/// hash of their values.
struct HashModelPass : units::impl::HashModelBase<HashModelPass> {
  void runOnOperation() final {
    ModuleOp module = getOperation();
    if (module->hasAttr(kContentHashAttr))
      return;
    const DictionaryAttr all = module->getAttrDictionary();
    for (StringRef setting :
         {kSettingsAttr, kDecayAttr, kBatchAttr, kClusterAttr, kProfilesAttr, kPlanAttr})
      module->removeAttr(setting);
    OpPrintingFlags flags; // set explicitly, because the defaults depend on command-line options
    flags.elideLargeElementsAttrs(1 << 20)
        .elideLargeResourceString(64)
        .useLocalScope()
        .printNameLocAsPrefix(false)
        .enableDebugInfo(false);
    std::string text;
    llvm::raw_string_ostream os(text);
    module.print(os, flags);
    module->setAttrs(all);
    const std::string hash =
        llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(text)), /*LowerCase=*/true);
    module->setAttr(kContentHashAttr,
                    StringAttr::get(&getContext(), std::to_string(kGraphVersion) + "-" + hash));
  }
};

struct ConfigurePass : units::impl::ConfigureBase<ConfigurePass> {
  using ConfigureBase::ConfigureBase;

  void runOnOperation() final {
    bundle::ModelSummary read;
    if (!google::protobuf::TextFormat::ParseFromString(settings, &read)) {
      getOperation().emitError("zorse-configure: settings: expected fields of ModelSummary such as "
                               "'training { optimizer: SGD momentum: 0.9 }', found '")
          << settings << "'";
      return signalPassFailure();
    }
    if (!parseDecay(decay)) {
      getOperation().emitError(
          "zorse-configure: decay: expected rank, all, none or names:P,Q, found '")
          << decay << "'";
      return signalPassFailure();
    }
    Builder b(&getContext());
    auto set = [&](StringRef name, bool given, Attribute value) {
      if (given || !getOperation()->hasAttr(name))
        getOperation()->setAttr(name, value);
    };
    set(kSettingsAttr, settings.hasValue(), b.getStringAttr(settingsText(read)));
    set(kDecayAttr, decay.hasValue(), b.getStringAttr(decay));
    set(kBatchAttr, batch.hasValue(), b.getI64IntegerAttr(batch));
    SmallVector<Attribute> measured;
    for (const std::string &path : profiles)
      measured.push_back(fileAt(path));
    if (!measured.empty())
      set(kProfilesAttr, true, b.getArrayAttr(measured));
    if (!cluster.empty())
      set(kClusterAttr, true, fileAt(cluster));
    if (!plan.empty())
      set(kPlanAttr, true, fileAt(plan));
  }

  /// Reads a file. An error fails the pass.
  Attribute fileAt(const std::string &path) {
    Result<std::string> text = readRegularFile(path, size_t(256) << 20); // each reader of the text
                                                                         // checks its own limits
    if (text.failed()) {
      getOperation().emitError("zorse-configure: ") << text.message();
      signalPassFailure();
    }
    return fileAttr(&getContext(), {path, text.failed() ? "" : *text});
  }
};

struct AddLogitsPass : units::impl::AddLogitsBase<AddLogitsPass> {
  void runOnOperation() final {
    auto model = getOperation().lookupSymbol<func::FuncOp>(attributes::kModel);
    if (model)
      for (auto unit : model.getOps<UnitOp>())
        if (func::FuncOp forward = unit.unitClass().function(Task::Forward);
            forward && hasLoss(forward)) {
          OpBuilder builder(&getContext());
          builder.setInsertionPointToEnd(forward->getBlock());
          if (failed(buildLogits(builder, forward, int64_t(unit.getInputs().size()))))
            signalPassFailure();
          return;
        }
    getOperation().emitError("zorse-add-logits: expected @model with a unit whose forward has a "
                             "loss: run --zorse-find-units first");
    signalPassFailure();
  }

  static bool hasLoss(func::FuncOp forward) {
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (isOfKind(attributeOfResult(forward, i), ArgumentKind::Loss))
        return true;
    return false;
  }
};

struct PrintSummaryPass : units::impl::PrintSummaryBase<PrintSummaryPass> {
  void runOnOperation() final {
    markAllAnalysesPreserved();
    FailureOr<bundle::ModelSummary> summary = summarize(getOperation());
    if (failed(summary))
      return signalPassFailure();
    printSummary(*summary, llvm::outs());
  }
};

} // namespace

std::string units::settingsText(const bundle::ModelSummary &settings) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(settings, &text);
  return StringRef(text).rtrim().str();
}

void units::addFunctionPasses(OpPassManager &passes, const UnitPassOptions &options) {
  passes.addPass(autodiff::createJoinBackward());
  if (options.onJoint)
    passes.addPass(options.onJoint());
  passes.addPass(autodiff::createLowPrecisionStorage());
  passes.addPass(autodiff::createChooseSaved(options.saved));
  passes.addPass(autodiff::createSliceJoint());
  if (options.sampling)
    passes.addPass(createAddLogits());
  passes.addPass(createAddStepFunctions());
}

func::FuncOp units::functionOp(ModuleOp module, const bundle::UnitClass &unitClass,
                               bundle::UnitFunction::Task task) {
  auto found = module.lookupSymbol<ClassOp>(unitClass.name());
  return found ? found.function(static_cast<Task>(task)) : func::FuncOp();
}

void units::registerPasses() { registerUnitsPasses(); }
