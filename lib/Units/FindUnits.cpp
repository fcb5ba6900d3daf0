// zorse-find-units: turns the recognized `@model` into a chain of zorse.unit, with a forward
// function for each class.
#include "Blocks.h"
#include "Classes.h"
#include "Counts.h"
#include "Cuts.h"
#include "HiddenMatrices.h"
#include "InputRoles.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Units/Units.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <map>

namespace zorse::units {
#define GEN_PASS_DEF_FINDUNITS
#include "zorse/Units/Passes.h.inc"
} // namespace zorse::units

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

class UnitFinder {
public:
  UnitFinder(ModuleOp module, ModelGraph &&analysed, int longSpan)
      : module(module), graph(std::move(analysed)), model(graph.model),
        builder(module.getContext()) {
    std::vector<int> ends = findUnits(graph, longSpan);
    findLowPrecisionValues(graph, ends);
    int begin = 0;
    for (int end : ends) {
      outlines.push_back(outlineUnit(graph, begin, end));
      begin = end;
    }
  }

  LogicalResult run() {
    warnOfUntrained();
    builder.setInsertionPointToEnd(module.getBody());
    buildClasses();
    FailureOr<Counts> counts = buildCounts(builder, graph);
    if (failed(counts))
      return failure();
    describeInputs(graph);
    markHiddenMatrices(graph);
    replaceBody(*counts);
    return success();
  }

private:
  void warnOfUntrained() {
    DenseSet<Value> read;
    for (const Outline &outline : outlines)
      read.insert(outline.parameters.begin(), outline.parameters.end());
    for (BlockArgument argument : model.getArguments()) {
      auto flag = model.getArgAttrOfType<BoolAttr>(argument.getArgNumber(), attributes::kTrainable);
      if (graph.isParameter(argument) && flag && flag.getValue() && !graph.isTrained(argument))
        emitWarning(argument.getLoc())
            << "parameter '" << graph.nameOf(argument)
            << "' is never trained: the loss does not depend on it"
            << (read.contains(argument) ? "; it is kept as it is" : "; it is left out");
    }
  }

  void buildClasses() {
    std::map<std::string, int> ids;
    std::map<std::string, int> names;
    for (auto [u, outline] : llvm::enumerate(outlines)) {
      auto [it, isNew] = ids.emplace(outline.key, ids.size());
      classOf.push_back(it->second);
      kinds.push_back(kindOf(outline, u == 0).str());
      if (!isNew)
        continue;
      int times = ++names[kinds.back()];
      auto unitClass =
          ClassOp::create(builder, builder.getUnknownLoc(),
                          times == 1 ? kinds.back() : kinds.back() + "_" + std::to_string(times));
      classes.push_back(unitClass);
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToEnd(&unitClass.getBody().emplaceBlock());
      buildForward(builder, graph, outline);
    }
  }

  /// Replaces the operations of the model by the chain of units.
  void replaceBody(const Counts &counts) {
    Block &block = model.getBody().front();
    Operation *terminator = block.getTerminator();
    builder.setInsertionPoint(terminator);
    Operation *lastOld = terminator->getPrevNode();
    SmallVector<Value> returned(terminator->getOperands());

    for (const std::string &text : graph.known)
      known[text] = KnownOp::create(builder, model.getLoc(),
                                    RankedTensorType::get({}, builder.getF64Type()), text);
    Repeat blocks = findBlocks(classOf, kinds);
    model->setAttr(kBlocksAttr,
                   builder.getDenseI64ArrayAttr({blocks.first, blocks.period, blocks.count}));
    std::vector<std::string> labels = nameUnits(blocks, kinds);
    int64_t rngIdBase = 0;
    for (auto [u, outline] : llvm::enumerate(outlines)) {
      addUnit(outline, classes[classOf[u]], labels[u], rngIdBase, returned);
      rngIdBase += outline.randomOps;
    }
    if (!counts.results.empty()) {
      SmallVector<Value> operands;
      for (Value value : counts.operands)
        operands.push_back(isa<BlockArgument>(value) ? value : knownOf(value));
      auto call = func::CallOp::create(builder, model.getLoc(),
                                       module.lookupSymbol<func::FuncOp>(kCounts), operands);
      for (auto [i, result] : llvm::enumerate(counts.results))
        returned[result] = call.getResult(unsigned(i));
    }
    terminator->setOperands(returned);
    for (Operation *op = lastOld; op;) {
      Operation *before = op->getPrevNode();
      op->erase();
      op = before;
    }
  }

  Value knownOf(Value value) {
    return known.at(value.getDefiningOp<KnownOp>().getExpression().str());
  }

  void addUnit(const Outline &outline, ClassOp unitClass, const std::string &label,
               int64_t rngIdBase, SmallVectorImpl<Value> &returned) {
    SmallVector<Value> boundary, numbers;
    for (Value value : outline.valuesIn)
      boundary.push_back(values.lookup(value));
    func::FuncOp forward = unitClass.function(Task::Forward);
    for (unsigned i = 0; i < forward.getNumArguments(); ++i)
      if (ArgumentAttr attribute = attributeOfArgument(forward, i);
          isOfKind(attribute, ArgumentKind::Scalars))
        numbers.push_back(known.at(graph.known[attribute.getIndex()]));
    SmallVector<Type> types;
    SmallVector<Location> locations;
    SmallVector<StringRef> names;
    auto add = [&](Value value) {
      types.push_back(value.getType());
      locations.push_back(value.getLoc());
      names.push_back(nameOf(value.getLoc()));
    };
    llvm::for_each(outline.valuesOut, add);
    for (const Numerator &numerator : outline.losses)
      add(numerator.value);
    auto unit = UnitOp::create(
        builder, builder.getFusedLoc(locations), types, unitClass.getSymName(), label,
        ValueRange(SmallVector<Value>(outline.parameters.begin(), outline.parameters.end())),
        ValueRange(SmallVector<Value>(outline.inputs.begin(), outline.inputs.end())), boundary,
        numbers, uint64_t(rngIdBase), builder.getStrArrayAttr(names));
    for (auto [i, value] : llvm::enumerate(outline.valuesOut))
      values[value] = unit.getResult(unsigned(i));
    for (auto [i, numerator] : llvm::enumerate(outline.losses))
      returned[numerator.result] = unit.getResult(unsigned(outline.valuesOut.size() + i));
  }

  ModuleOp module;
  ModelGraph graph;
  func::FuncOp model;
  OpBuilder builder;
  std::vector<Outline> outlines;
  std::vector<int> classOf;       ///< by unit
  std::vector<std::string> kinds; ///< by unit
  std::vector<ClassOp> classes;
  DenseMap<Value, Value> values; ///< values of the model → values of its units
  std::map<std::string, Value> known;
};

struct FindUnitsPass : units::impl::FindUnitsBase<FindUnitsPass> {
  using FindUnitsBase::FindUnitsBase;

  void runOnOperation() final {
    if (failed(run(getOperation())))
      signalPassFailure();
  }

  LogicalResult run(ModuleOp module) {
    if (auto classes = module.getOps<ClassOp>(); !classes.empty())
      return module.emitError("zorse-find-units: expected a recognized @model, found class '@")
             << (*classes.begin()).getSymName() << "': units have been found already";
    auto model = module.lookupSymbol<func::FuncOp>(attributes::kModel);
    if (!model || model.isDeclaration() || !model.getBody().hasOneBlock())
      return module.emitError("expected a function @model of one block");
    FailureOr<ModelGraph> graph = analyseModel(model);
    return failed(graph) ? failure() : UnitFinder(module, std::move(*graph), longSpan).run();
  }
};

} // namespace
