// From @model to unit functions and the summary.
#include "Blocks.h"
#include "Classes.h"
#include "Cuts.h"
#include "Groups.h"
#include "InputRoles.h"
#include "LogitsFunction.h"
#include "OtherFunctions.h"

#include "zorse/Summary/Summary.h"
#include "zorse/Units/Units.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <map>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

FailureOr<bundle::ElementType> elementTypeOf(Location loc, Type tensor) {
  Type type = getElementTypeOrSelf(tensor);
  if (type.isF32())
    return bundle::F32;
  if (type.isF64())
    return bundle::F64;
  if (type.isBF16())
    return bundle::BF16;
  if (type.isF16())
    return bundle::F16;
  if (type.isInteger(64))
    return bundle::I64;
  if (type.isInteger(32))
    return bundle::I32;
  if (type.isInteger(1))
    return bundle::I1;
  emitError(loc) << "expects elements of type f32, f64, bf16, f16, i64, i32 or i1 across units, in inputs and in parameters, found " << type;
  return failure();
}

template <typename Message> void setShape(Message &info, RankedTensorType type) {
  for (int64_t size : type.getShape().drop_front(type.getRank() > 0 && type.isDynamicDim(0)))
    info.add_shape(size);
}

/// Raised by whoever changes how the importer or recognition writes a model that they took before: the hash of one model is another then. Snapshots
/// and plans compare hashes of one version only (zorse/Bundle/ContentHash.h), so that those of earlier versions can be resumed.
constexpr int kGraphVersion = 3;

struct Cost {
  double flops = 0, bytes = 0; // per row
};

Cost costOf(func::FuncOp function) {
  Cost cost;
  if (function)
    for (Operation &op : function.getBody().front().without_terminator())
      if (auto costed = dyn_cast<CostOpInterface>(op)) {
        OpCost c = costed.getCost();
        cost.flops += c.flopsPerRow;
        cost.bytes += c.bytesPerRow;
      }
  return cost;
}

class UnitsBuilder {
public:
  UnitsBuilder(ModuleOp module, const UnitOptions &options) : module(module), options(options), builder(module.getContext()) {}

  FailureOr<UnitModel> run() {
    auto model = module.lookupSymbol<func::FuncOp>("model");
    if (!model || model.isDeclaration() || !model.getBody().hasOneBlock())
      return wrongModule();
    FailureOr<ModelGraph> analysed = analyseModel(model);
    if (failed(analysed))
      return failure();
    graph = std::move(*analysed);
    result.functions = ModuleOp::create(model.getLoc());
    builder.setInsertionPointToStart(result.functions->getBody());
    summary().set_content_hash(options.contentHash.empty() ? contentHash(module) : options.contentHash);
    *summary().mutable_training() = options.training;

    int begin = 0;
    std::vector<int> ends = findUnits(graph, options.longSpan);
    findNarrowValues(graph, ends);
    for (int end : ends) {
      outlines.push_back(outlineUnit(graph, begin, end));
      begin = end;
    }
    if (failed(describeArguments()) || failed(buildClasses()))
      return failure();
    if (options.until != Until::Functions)
      return std::move(result);
    if (failed(describeUnits()) || failed(describeValues()))
      return failure();
    layOutGroups(summary(), options.decay, copies);
    if (failed(buildCounts(builder, graph, inputIndex, summary())))
      return failure();
    auto computeType = bundle::ElementType(summary().compute_type());
    if (failed(buildUpdates(builder, model.getLoc(), computeType == bundle::F64 ? FloatType(builder.getF64Type()) : FloatType(builder.getF32Type()),
                            summary())))
      return failure();
    if (options.logits && failed(describeLogits()))
      return failure();
    return std::move(result);
  }

private:
  bundle::ModelSummary &summary() { return result.summary; }

  LogicalResult wrongModule() {
    InFlightDiagnostic error = module.emitError("expected a function @model of one block");
    if (auto classes = module.getOps<ClassOp>(); !classes.empty())
      error << "; found class '@" << (*classes.begin()).getSymName() << "': units have been found already";
    return error;
  }

  /// Parameters and inputs that some unit reads (counts may read further inputs), in the order of the model.
  LogicalResult describeArguments() {
    DenseSet<Value> read;
    for (const Outline &outline : outlines) {
      read.insert(outline.parameters.begin(), outline.parameters.end());
      read.insert(outline.inputs.begin(), outline.inputs.end());
    }
    func::FuncOp model = graph.model;
    for (BlockArgument argument : model.getArguments()) {
      unsigned i = argument.getArgNumber();
      auto type = cast<RankedTensorType>(argument.getType());
      bool parameter = graph.isParameter(argument);
      auto flag = model.getArgAttrOfType<BoolAttr>(i, attributes::kTrainable);
      if (parameter && flag && flag.getValue() && !graph.isTrained(argument))
        emitWarning(argument.getLoc()) << "parameter '" << graph.nameOf(argument) << "' is never trained: the loss does not depend on it"
                                       << (read.contains(argument) ? "; it is kept as it is" : "; it is left out");
      const bool isUnread = !read.contains(argument) && (parameter || argument.use_empty());
      if (isUnread && parameter)
        continue;
      FailureOr<bundle::ElementType> element = elementTypeOf(argument.getLoc(), type);
      if (failed(element))
        return failure();
      if (parameter) {
        parameterIndex[argument] = summary().parameters_size();
        bundle::ParameterInfo &info = *summary().add_parameters();
        info.set_name(graph.nameOf(argument).str());
        info.set_type(*element);
        info.set_trainable(graph.isTrained(argument));
        info.set_statistic(info.trainable() && model.getArgAttr(i, attributes::kStatistic));
        info.set_constant(bool(model.getArgAttr(i, attributes::kConstant)));
        Type copy = graph.narrow.lookup(argument);
        copies.push_back(!copy ? bundle::ELEMENT_TYPE_UNSPECIFIED : copy.isBF16() ? bundle::BF16 : bundle::F16);
        setShape(info, type);
        if (info.trainable() && !info.statistic())
          summary().set_compute_type(*element);
      } else {
        if (!isUnread)
          inputIndex[argument] = summary().inputs_size();
        bundle::GraphInput &info = *(isUnread ? summary().add_unread_inputs() : summary().add_inputs());
        info.set_name(graph.nameOf(argument).str());
        info.set_type(*element);
        info.set_bytes_per_row(autodiff::bytesPerRow(type));
        setShape(info, type);
        describeInput(graph, argument, info);
      }
    }
    return success();
  }

  LogicalResult buildClasses() {
    std::map<std::string, int> ids;
    std::map<std::string, int> names;
    for (auto [u, outline] : llvm::enumerate(outlines)) {
      auto [it, isNew] = ids.emplace(outline.key, ids.size());
      classOf.push_back(it->second);
      kinds.push_back(kindOf(outline, u == 0).str());
      if (!isNew)
        continue;
      int times = ++names[kinds.back()];
      const std::string name = times == 1 ? kinds.back() : kinds.back() + "_" + std::to_string(times);
      OpBuilder::InsertionGuard guard(builder);
      auto unitClass = ClassOp::create(builder, builder.getUnknownLoc(), name);
      builder.setInsertionPointToEnd(&unitClass.getBody().emplaceBlock());
      func::FuncOp forward = buildForward(builder, graph, outline);
      if (options.until == Until::Forward)
        continue;
      FailureOr<func::FuncOp> joint = autodiff::joinBackward(forward);
      if (failed(joint))
        return failure();
      if (options.until == Until::Joint)
        continue;
      if (summary().compute_type() != bundle::F64)
        autodiff::narrowStorage(*joint);
      autodiff::chooseSaved(*joint, options.saved);
      autodiff::Differentiated pair = autodiff::sliceJoint(*joint);
      builder.setInsertionPointToEnd(&unitClass.getBody().front());
      if (!pair.backward)
        pair.backward = buildEmptyBackward(forward);
      functions.push_back(pair);
      splits.push_back(autodiff::splitBackward(pair.backward));
      recomputes.push_back(autodiff::sliceSaved(pair.forward));
      describeClass(name, pair, splits.back(), recomputes.back());
    }
    return success();
  }

  void describeClass(const std::string &name, const autodiff::Differentiated &pair, const autodiff::SplitBackward &split, func::FuncOp recompute) {
    using Function = bundle::UnitFunction;
    bundle::UnitClass &unitClass = *summary().add_classes();
    unitClass.set_name(name);
    unitClass.mutable_saved_bytes()->set_per_row(packedBytesPerRow(pair.forward, SlotKind::Saved));
    if (split.inputs)
      unitClass.mutable_deferred_bytes()->set_per_row(packedBytesPerRow(split.inputs, SlotKind::Deferred));
    for (auto [task, function] : {std::pair(Function::FORWARD, pair.forward), std::pair(Function::BACKWARD, pair.backward),
                                  std::pair(Function::INPUT_GRADIENTS, split.inputs), std::pair(Function::WEIGHT_GRADIENTS, split.weights),
                                  std::pair(Function::RECOMPUTE, recompute)}) {
      if (!function)
        continue;
      assert(bodyName(function) == functionName(unitClass, task));
      Function &described = *unitClass.add_functions();
      const Cost cost = costOf(function);
      described.set_task(task);
      described.set_flops_per_row(cost.flops);
      described.set_bytes_per_row(cost.bytes);
    }
  }

  /// Every unit has a backward body, also a frozen one. It reads one argument because a body without slots would not be called.
  func::FuncOp buildEmptyBackward(func::FuncOp forward) {
    auto function = func::FuncOp::create(builder, forward.getLoc(), stringifyTask(Task::Backward),
                                         builder.getFunctionType(forward.getArgumentTypes().take_front(1), {}));
    function.setArgAttr(0, attributes::kSlot, slotOfArgument(forward, 0));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(function.addEntryBlock());
    func::ReturnOp::create(builder, forward.getLoc());
    return function;
  }

  LogicalResult describeUnits() {
    Repeat blocks = findBlocks(classOf, kinds);
    summary().set_blocks_first_unit(blocks.first);
    summary().set_blocks_period(blocks.period);
    summary().set_blocks_count(blocks.count);
    std::vector<std::string> names = nameUnits(blocks, kinds);

    uint64_t instances = 0;
    for (auto [u, outline] : llvm::enumerate(outlines)) {
      bundle::UnitInfo &unit = *summary().add_units();
      unit.set_name(names[u]);
      unit.set_class_id(classOf[u]);
      unit.set_instance_base(instances);
      instances += outline.instances;
      for (BlockArgument parameter : outline.parameters)
        unit.add_parameters(parameterIndex[parameter]);
      for (BlockArgument input : outline.inputs) {
        unit.add_inputs(inputIndex[input]);
        summary().mutable_inputs(inputIndex[input])->add_units(u);
      }
      for (const Numerator &numerator : outline.losses)
        for (auto [k, other] : llvm::enumerate(graph.numerators))
          if (other.result == numerator.result)
            unit.add_loss_terms(k);
      unit.set_splits(bool(splits[classOf[u]].inputs));
    }
    return success();
  }

  LogicalResult describeLogits() {
    auto head = llvm::find_if(outlines, [](const Outline &outline) { return !outline.losses.empty(); });
    assert(head != outlines.end() && "a model has a loss");
    auto unit = uint32_t(head - outlines.begin());
    OpBuilder::InsertionGuard guard(builder);
    func::FuncOp forward = functions[classOf[unit]].forward;
    builder.setInsertionPointToEnd(forward->getBlock());
    FailureOr<func::FuncOp> function = buildLogits(builder, forward, int64_t(head->inputs.size()));
    if (failed(function))
      return failure();
    result.logits = bodyName(*function);
    auto type = cast<RankedTensorType>(function->getResultTypes()[0]);
    FailureOr<bundle::ElementType> element = elementTypeOf(function->getLoc(), type);
    if (failed(element))
      return failure();
    bundle::Logits &logits = *summary().mutable_logits();
    logits.set_unit(unit);
    logits.set_vocabulary(type.getDimSize(1));
    logits.set_type(*element);
    return success();
  }

  static int64_t packedBytesPerRow(func::FuncOp function, SlotKind kind) {
    int64_t bytes = 0;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (isSlot(slotOfResult(function, i), kind))
        bytes += autodiff::savedBytesPerRow(function.getResultTypes()[i]);
    return bytes;
  }

  LogicalResult describeValues() {
    DenseMap<Value, unsigned> index;
    for (auto [u, outline] : llvm::enumerate(outlines)) {
      for (Value value : outline.valuesOut) {
        auto type = cast<RankedTensorType>(value.getType());
        if (Type narrow = graph.narrow.lookup(value))
          type = RankedTensorType::get(type.getShape(), narrow);
        FailureOr<bundle::ElementType> element = elementTypeOf(value.getLoc(), type);
        if (failed(element))
          return failure();
        index[value] = summary().values_size();
        bundle::ValueInfo &info = *summary().add_values();
        StringRef name = nameOf(value.getLoc());
        info.set_name(name.empty() ? "value " + std::to_string(index[value]) : name.str());
        info.set_type(*element);
        info.set_bytes_per_row(autodiff::bytesPerRow(type));
        info.set_producer(u);
        info.set_needs_gradient(graph.active.contains(value));
        setShape(info, cast<RankedTensorType>(value.getType()));
        summary().mutable_units(u)->add_values_out(index[value]);
      }
      for (Value value : outline.valuesIn) {
        summary().mutable_units(u)->add_values_in(index[value]);
        summary().mutable_values(index[value])->add_users(u);
      }
    }
    return success();
  }

  ModuleOp module;
  const UnitOptions &options;
  OpBuilder builder;
  UnitModel result;
  ModelGraph graph;
  std::vector<Outline> outlines;
  std::vector<int> classOf;
  std::vector<std::string> kinds;
  std::vector<autodiff::Differentiated> functions; ///< by class
  std::vector<autodiff::SplitBackward> splits;     ///< by class
  std::vector<func::FuncOp> recomputes;            ///< by class; null where nothing is saved
  std::vector<bundle::ElementType> copies;         ///< by parameter: the type it is read in; unspecified: its own
  DenseMap<Value, unsigned> parameterIndex, inputIndex;
};

} // namespace

std::string units::contentHash(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os, OpPrintingFlags().elideLargeElementsAttrs(1 << 20).elideLargeResourceString(64).useLocalScope());
  return std::to_string(kGraphVersion) + "-" + llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(text)), /*LowerCase=*/true);
}

FailureOr<UnitModel> units::buildUnits(ModuleOp model, const UnitOptions &options) { return UnitsBuilder(model, options).run(); }

func::FuncOp units::functionOp(const UnitModel &model, const bundle::UnitClass &unitClass, bundle::UnitFunction::Task task) {
  auto found = model.functions.get().lookupSymbol<ClassOp>(unitClass.name());
  return found ? found.function(static_cast<Task>(task)) : func::FuncOp();
}

void units::assignBodies(UnitModel &model, const std::function<BodyFacts(StringRef)> &facts) {
  bundle::ModelSummary &summary = model.summary;
  for (bundle::UnitClass &unitClass : *summary.mutable_classes())
    for (bundle::UnitFunction &function : *unitClass.mutable_functions()) {
      const BodyFacts known = facts(functionName(unitClass, function.task()));
      function.set_body(known.body);
      if (known.body != UINT32_MAX) // what is known of one that was left out stays known
        *function.mutable_workspace() = known.workspace;
    }
  if (model.functions->lookupSymbol("counts"))
    summary.set_count_body(facts("counts").body);
  if (!model.logits.empty())
    summary.mutable_logits()->set_body(facts(model.logits).body);
  summary.set_update_body_decay(facts("update.decay").body);
  summary.set_update_body_plain(facts("update.plain").body);
  if (llvm::any_of(summary.groups(), [](const bundle::GroupInfo &group) { return group.statistic(); }))
    summary.set_update_body_statistics(facts("update.statistics").body);
  summary.set_norm_body(facts("norm").body);
  summary.set_sum_loss_body(facts("sum_loss").body);
  summary.set_decide_body(facts("decide").body);
  if (llvm::any_of(summary.groups(), [](const bundle::GroupInfo &group) { return group.copy_type() != bundle::ELEMENT_TYPE_UNSPECIFIED; }))
    summary.set_cast_body(facts("cast").body);
  if (zorse::scalesLoss(summary))
    summary.set_scale_seeds_body(facts("scale_seeds").body);
}
