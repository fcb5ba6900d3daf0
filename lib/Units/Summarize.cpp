// Computes the model summary from `@model` (a chain of units), its classes, and the settings of
// zorse-configure.
#include "Counts.h"
#include "DividedUnits.h"
#include "InputRoles.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/SampleOps.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Summary/UpdateRules.h"
#include "zorse/Units/Units.h"

#include "llvm/ADT/SmallVectorExtras.h"

#include <google/protobuf/text_format.h>

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

using Function = bundle::UnitFunction;

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
  emitError(loc) << "expects elements of type f32, f64, bf16, f16, i64, i32 or i1 across units, in "
                    "inputs and in parameters, found "
                 << type;
  return failure();
}

template <typename Message> void setShape(Message &info, RankedTensorType type) {
  for (int64_t size : type.getShape().drop_front(type.getRank() > 0 && type.isDynamicDim(0)))
    info.add_shape(size);
}

void setCost(Function &described, func::FuncOp function) {
  double flops = 0, bytes = 0; // per row
  for (Operation &op : function.getBody().front().without_terminator())
    if (auto costed = dyn_cast<CostOpInterface>(op)) {
      OpCost cost = costed.getCost();
      flops += cost.flopsPerRow;
      bytes += cost.bytesPerRow;
    }
  described.set_flops_per_row(flops);
  described.set_bytes_per_row(bytes);
}

int64_t packedBytesPerRow(func::FuncOp function, ArgumentKind kind) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (isOfKind(attributeOfResult(function, i), kind))
      bytes += autodiff::savedBytesPerRow(function.getResultTypes()[i]);
  return bytes;
}

/// Returns the positions of the arguments (or results) of a function with an argument attribute of
/// a kind, by argument index.
SmallVector<unsigned> placesOf(func::FuncOp function, ArgumentKind kind, bool results) {
  SmallVector<unsigned> places;
  for (unsigned i = 0; i < (results ? function.getNumResults() : function.getNumArguments()); ++i)
    if (isOfKind(results ? attributeOfResult(function, i) : attributeOfArgument(function, i), kind))
      places.push_back(i);
  return places;
}

class Summarizer {
public:
  explicit Summarizer(ModuleOp module) : module(module) {}

  FailureOr<bundle::ModelSummary> run() {
    model = module.lookupSymbol<func::FuncOp>(attributes::kModel);
    if (!model || model.isDeclaration() || model.getOps<UnitOp>().empty())
      return module.emitError("expected @model as a chain of units: run --zorse-find-units first");
    for (auto unit : model.getOps<UnitOp>())
      units.push_back(unit);
    if (failed(readSettings()))
      return failure();
    describeClasses();
    if (failed(describeArguments()) || failed(describeValues()))
      return failure();
    describeUnits();
    describeLoss();
    auto classNamed = [&](StringRef name) {
      return classId.lookup(StringAttr::get(module.getContext(), name));
    };
    if (failed(describeGroups(units, classNamed, summary, copies)))
      return failure();
    if (std::string problem = setUpdateRules(summary, *decay, copies); !problem.empty())
      return module.emitError(problem);
    describeLossScale();
    if (failed(describeLogits()))
      return failure();
    return std::move(summary);
  }

private:
  LogicalResult readSettings() {
    auto settings = module->getAttrOfType<StringAttr>(kSettingsAttr);
    auto rule = module->getAttrOfType<StringAttr>(kDecayAttr);
    if (!settings || !rule)
      return module.emitError("missing training settings (zorse.settings and zorse.decay): run "
                              "--zorse-configure first");
    decay = parseDecay(rule.getValue().str());
    if (!google::protobuf::TextFormat::ParseFromString(settings.str(), &summary) || !decay)
      return module.emitError(
          "cannot read zorse.settings or zorse.decay: set them by --zorse-configure");
    if (auto hash = module->getAttrOfType<StringAttr>(kContentHashAttr))
      summary.set_content_hash(hash.str());
    if (auto blocks = model->getAttrOfType<DenseI64ArrayAttr>(kBlocksAttr);
        blocks && blocks.size() == 3) {
      summary.set_blocks_first_unit(uint32_t(blocks[0]));
      summary.set_blocks_period(uint32_t(blocks[1]));
      summary.set_blocks_count(uint32_t(blocks[2]));
    }
    return success();
  }

  void describeClasses() {
    for (auto unitClass : module.getOps<ClassOp>()) {
      classId[unitClass.getSymNameAttr()] = uint32_t(summary.classes_size());
      bundle::UnitClass &described = *summary.add_classes();
      described.set_name(unitClass.getSymName().str());
      described.mutable_saved_bytes()->set_per_row(
          packedBytesPerRow(unitClass.definer(), ArgumentKind::Saved));
      if (func::FuncOp inputs = unitClass.function(Task::InputGradients))
        described.mutable_saved_for_weight_grad_bytes()->set_per_row(
            packedBytesPerRow(inputs, ArgumentKind::SavedForWeightGrad));
      for (Function::Task task : {Function::FORWARD, Function::BACKWARD, Function::INPUT_GRADIENTS,
                                  Function::WEIGHT_GRADIENTS, Function::RECOMPUTE}) {
        func::FuncOp function = unitClass.function(static_cast<Task>(task));
        if (!function)
          continue;
        assert(compiledFunctionName(function) == functionName(described, task));
        Function &one = *described.add_functions();
        one.set_task(task);
        setCost(one, function);
        describeExchanges(function, one);
      }
      unitClass.walk([&](SampleNumberOp) { summary.set_reads_sample_numbers(true); });
    }
  }

  /// Describes parameters and inputs that a unit reads, in the order of the model. Counts may read
  /// further inputs.
  LogicalResult describeArguments() {
    for (UnitOp unit : units)
      for (auto [place, value] :
           llvm::zip(placesOf(unit.unitClass().definer(), ArgumentKind::Parameter, false),
                     unit.getParameters()))
        argumentOf[value] = {unit.unitClass().definer(), place};
    for (BlockArgument argument : model.getArguments()) {
      const bool parameter =
          bool(model.getArgAttr(argument.getArgNumber(), attributes::kParameter));
      if (parameter && !argumentOf.contains(argument))
        continue;
      FailureOr<bundle::ElementType> element = elementTypeOf(argument.getLoc(), argument.getType());
      if (failed(element))
        return failure();
      parameter ? describeParameter(argument, *element) : describeInput(argument, *element);
    }
    return success();
  }

  void describeParameter(BlockArgument argument, bundle::ElementType element) {
    unsigned i = argument.getArgNumber();
    auto [function, place] = argumentOf.lookup(argument);
    argumentIndex[argument] = uint32_t(summary.parameters_size());
    bundle::ParameterInfo &info = *summary.add_parameters();
    info.set_name(model.getArgAttrOfType<StringAttr>(i, attributes::kParameter).str());
    info.set_type(element);
    info.set_trainable(bool(function.getArgAttr(place, autodiff::kGradientAttr)));
    info.set_running_stat(info.trainable() && model.getArgAttr(i, attributes::kRunningStat));
    info.set_constant(bool(model.getArgAttr(i, attributes::kConstant)));
    if (auto hidden = model.getArgAttrOfType<DenseI64ArrayAttr>(i, kHiddenAttr);
        hidden && info.trainable()) {
      info.mutable_hidden()->set_rows(hidden[0]);
      info.mutable_hidden()->set_columns(hidden[1]);
    }
    auto copy = function.getArgAttrOfType<TypeAttr>(place, autodiff::kLowPrecisionAttr);
    copies.push_back(!copy                      ? bundle::ELEMENT_TYPE_UNSPECIFIED
                     : copy.getValue().isBF16() ? bundle::BF16
                                                : bundle::F16);
    setShape(info, cast<RankedTensorType>(argument.getType()));
    if (info.trainable() && !info.running_stat())
      summary.set_compute_type(element);
  }

  void describeInput(BlockArgument argument, bundle::ElementType element) {
    if (!argument.use_empty())
      argumentIndex[argument] = uint32_t(summary.inputs_size());
    bundle::GraphInput &info =
        *(argument.use_empty() ? summary.add_unread_inputs() : summary.add_inputs());
    info.set_name(
        model.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attributes::kInput).str());
    info.set_type(element);
    info.set_bytes_per_row(autodiff::bytesPerRow(argument.getType()));
    setShape(info, cast<RankedTensorType>(argument.getType()));
    readInput(model, argument.getArgNumber(), info);
  }

  void describeUnits() {
    DenseMap<Value, uint32_t> terms = termOfValue();
    for (auto [u, op] : llvm::enumerate(units)) {
      bundle::UnitInfo &unit = *summary.mutable_units(int(u));
      unit.set_name(op.getLabel().str());
      unit.set_class_id(classId.lookup(op.getCalleeAttr().getAttr()));
      unit.set_rng_id_base(op.getRngIdBase());
      for (Value parameter : op.getParameters())
        unit.add_parameters(argumentIndex.lookup(parameter));
      for (Value input : op.getInputs()) {
        unit.add_inputs(argumentIndex.lookup(input));
        summary.mutable_inputs(int(argumentIndex.lookup(input)))->add_units(uint32_t(u));
      }
      for (Value result : op.getResults())
        if (auto term = terms.find(result); term != terms.end())
          unit.add_loss_terms(term->second);
      unit.set_splits(bool(op.unitClass().function(Task::InputGradients)));
    }
  }

  LogicalResult describeValues() {
    DenseMap<Value, uint32_t> index;
    for (auto [u, unit] : llvm::enumerate(units)) {
      bundle::UnitInfo &described = *summary.add_units();
      func::FuncOp forward = unit.unitClass().definer();
      for (auto [place, value] :
           llvm::zip(placesOf(forward, ArgumentKind::BoundaryOut, true), unit.getResults())) {
        auto type = cast<RankedTensorType>(value.getType());
        if (auto lowPrecision =
                forward.getResultAttrOfType<TypeAttr>(place, autodiff::kLowPrecisionAttr))
          type = RankedTensorType::get(type.getShape(), lowPrecision.getValue());
        FailureOr<bundle::ElementType> element = elementTypeOf(value.getLoc(), type);
        if (failed(element))
          return failure();
        index[value] = uint32_t(summary.values_size());
        bundle::ValueInfo &info = *summary.add_values();
        StringRef name = nameOfResult(value);
        info.set_name(name.empty() ? "value " + std::to_string(index[value]) : name.str());
        info.set_type(*element);
        info.set_bytes_per_row(autodiff::bytesPerRow(type));
        info.set_producer(uint32_t(u));
        info.set_needs_gradient(bool(forward.getResultAttr(place, autodiff::kGradientAttr)));
        setShape(info, type);
        described.add_values_out(index[value]);
      }
      for (Value value : unit.getBoundary()) {
        described.add_values_in(index.lookup(value));
        summary.mutable_values(int(index.lookup(value)))->add_users(uint32_t(u));
      }
    }
    return success();
  }

  static StringRef nameOfResult(OpResult value) {
    return cast<StringAttr>(cast<UnitOp>(value.getOwner()).getNames()[value.getResultNumber()]);
  }

  /// Returns the results of the model with a role, sorted by `number`.
  SmallVector<unsigned> resultsOf(StringRef role, StringRef number) {
    SmallVector<std::pair<int64_t, unsigned>> found;
    for (unsigned i = 0; i < model.getNumResults(); ++i) {
      auto its = model.getResultAttrOfType<StringAttr>(i, attributes::kRole);
      auto order = model.getResultAttrOfType<IntegerAttr>(i, number);
      if (its && order && its.getValue() == role)
        found.push_back({order.getInt(), i});
    }
    llvm::stable_sort(found, llvm::less_first());
    return llvm::map_to_vector(found, [](auto &one) { return one.second; });
  }

  Value returned(unsigned result) {
    return model.getBody().front().getTerminator()->getOperand(result);
  }

  /// Maps results of units to terms of the loss.
  DenseMap<Value, uint32_t> termOfValue() {
    DenseMap<Value, uint32_t> terms;
    for (auto [k, result] : llvm::enumerate(resultsOf("numerator", attributes::kTerm)))
      terms[returned(result)] = uint32_t(k);
    return terms;
  }

  /// Describes terms, counts and known numbers. zorse-find-units has checked them.
  void describeLoss() {
    for (unsigned result : resultsOf("numerator", attributes::kTerm)) {
      bundle::LossTerm &term = *summary.add_loss();
      StringRef name = nameOfResult(cast<OpResult>(returned(result)));
      term.set_name(
          name.empty()
              ? "loss " +
                    std::to_string(
                        model.getResultAttrOfType<IntegerAttr>(result, attributes::kTerm).getInt())
              : name.str());
      term.set_factor(model.getResultAttrOfType<StringAttr>(result, attributes::kFactor).str());
    }
    summary.set_count_function(-1);
    for (unsigned result : resultsOf("count", attributes::kCount)) {
      bundle::Count &count = *summary.add_counts();
      count.set_reduce(
          *parseReduce(model.getResultAttrOfType<StringAttr>(result, attributes::kReduce).str()));
      count.set_meaning(model.getResultAttrOfType<StringAttr>(result, attributes::kMeaning).str());
    }
    for (auto call : model.getOps<func::CallOp>())
      for (Value operand : call.getOperands())
        if (isa<BlockArgument>(operand))
          summary.add_count_inputs(argumentIndex.lookup(operand));
    if (auto counts = module.lookupSymbol<func::FuncOp>(kCounts))
      counts.walk([&](SampleNumberOp) { summary.set_reads_sample_numbers(true); });
    for (auto known : model.getOps<KnownOp>())
      summary.add_known(known.getExpression().str());
  }

  void describeLossScale() {
    bundle::TrainingOptions &training = *summary.mutable_training();
    if (!precisionOf(summary).needsScaling())
      return;
    auto batch = module->getAttrOfType<IntegerAttr>(kBatchAttr);
    if (training.loss_scale() == 0)
      training.set_loss_scale(
          firstLossScale(summary, (batch ? batch.getInt() : 1) / samplesPerRow(summary)));
    if (training.loss_scale_interval() == 0)
      training.set_loss_scale_interval(kLossScaleInterval);
  }

  LogicalResult describeLogits() {
    for (auto [u, unit] : llvm::enumerate(units)) {
      func::FuncOp function = unit.unitClass().function(Task::Logits);
      if (!function)
        continue;
      auto type = cast<RankedTensorType>(function.getResultTypes()[0]);
      FailureOr<bundle::ElementType> element = elementTypeOf(function->getLoc(), type);
      if (failed(element))
        return failure();
      bundle::Logits &logits = *summary.mutable_logits();
      logits.set_unit(uint32_t(u));
      logits.set_vocabulary(type.getDimSize(1));
      logits.set_type(*element);
      return success();
    }
    return success();
  }

  ModuleOp module;
  func::FuncOp model;
  SmallVector<UnitOp> units;
  bundle::ModelSummary summary;
  std::optional<WeightDecayFilter> decay;
  DenseMap<StringAttr, uint32_t> classId;
  /// Of parameters that units read: a forward and its argument number.
  DenseMap<Value, std::pair<func::FuncOp, unsigned>> argumentOf;
  DenseMap<Value, uint32_t> argumentIndex; ///< of parameters and of inputs, numbered separately
  std::vector<bundle::ElementType> copies; ///< by parameter: type in which it is read; unspecified:
                                           ///< its own
};

} // namespace

FailureOr<bundle::ModelSummary> units::summarize(ModuleOp module) {
  return Summarizer(module).run();
}
