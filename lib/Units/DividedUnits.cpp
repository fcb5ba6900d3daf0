#include "DividedUnits.h"

#include "zorse/Sharding/DivideUnits.h"
#include "zorse/Summary/FlatGroups.h"
#include "zorse/Summary/ParameterParts.h"
#include "zorse/Summary/Summary.h"

#include "zorse/Autodiff/Autodiff.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

static bundle::ElementType typeOf(Type element) {
  return element.isF64()    ? bundle::F64
         : element.isBF16() ? bundle::BF16
         : element.isF16()  ? bundle::F16
                            : bundle::F32;
}

void units::describeExchanges(func::FuncOp function, bundle::UnitFunction &described) {
  for (Operation &op : function.getBody().front()) {
    if (!isa<AllReduceOp, AllGatherOp>(op))
      continue;
    bundle::UnitFunction::Exchange &exchange = *described.add_exchanges();
    exchange.set_number(static_cast<uint32_t>(op.getAttrOfType<IntegerAttr>("number").getInt()));
    exchange.set_kind(isa<AllReduceOp>(op) ? bundle::UnitFunction::Exchange::ALL_REDUCE
                                           : bundle::UnitFunction::Exchange::ALL_GATHER);
    exchange.set_type(typeOf(getElementTypeOrSelf(op.getOperand(0).getType())));
    for (Value part : op.getResults()) {
      bundle::AffineSize &bytes = *exchange.add_parts();
      const int64_t rounded = autodiff::savedBytesPerRow(part.getType());
      carriesSamples(part.getType()) ? bytes.set_per_row(rounded) : bytes.set_fixed(rounded);
    }
  }
}

namespace {

class GroupDescriber {
public:
  GroupDescriber(ArrayRef<UnitOp> units, function_ref<uint32_t(StringRef)> classId,
                 bundle::ModelSummary &summary, std::vector<bundle::ElementType> &copies)
      : units(units), classId(classId), summary(summary), copies(copies) {}

  LogicalResult run() {
    if (auto order = UnitOp(units.front())
                         ->getParentOfType<ModuleOp>()
                         ->getAttrOfType<ArrayAttr>(sharding::kGroupOrderAttr))
      for (DictionaryAttr group : order.getAsRange<DictionaryAttr>())
        groupNamed(cast<StringAttr>(group.get("name")).str(),
                   static_cast<size_t>(cast<IntegerAttr>(group.get("devices")).getInt()));
    for (auto [u, unit] : llvm::enumerate(units))
      if (auto groups = unit->getAttrOfType<DictionaryAttr>(sharding::kGroupsAttr))
        for (NamedAttribute group : groups)
          if (failed(addUnit(static_cast<uint32_t>(u), group.getName(),
                             cast<ArrayAttr>(group.getValue()))))
            return failure();
    for (auto [u, unit] : llvm::enumerate(units))
      if (unit->hasAttr(sharding::kGroupsAttr)) {
        summary.mutable_units(static_cast<int>(u))->clear_parameters();
        summary.mutable_units(static_cast<int>(u))->set_splits(false);
      }
    dropUnreadParameters(summary, copies);
    return success();
  }

private:
  LogicalResult addUnit(uint32_t u, StringRef name, ArrayAttr classes) {
    bundle::DeviceGroup &group = groupNamed(name.str(), classes.size());
    group.add_units(u);
    for (auto [m, symbol] : llvm::enumerate(classes)) {
      const StringRef className = cast<FlatSymbolRefAttr>(symbol).getValue();
      auto unitClass =
          SymbolTable::lookupNearestSymbolFrom<ClassOp>(units[u], cast<FlatSymbolRefAttr>(symbol));
      if (!unitClass)
        return UnitOp(units[u]).emitError("expected a zorse.class @")
               << className << " for group '" << name << "', found none";
      addMember(*group.mutable_members(static_cast<int>(m))->add_units(), u, unitClass,
                classId(className));
    }
    splitAlike(group);
    return checkExchanges(u, group);
  }

  bundle::DeviceGroup &groupNamed(const std::string &name, size_t members) {
    for (bundle::DeviceGroup &group : *summary.mutable_device_groups())
      if (group.name() == name)
        return group;
    bundle::DeviceGroup &group = *summary.add_device_groups();
    group.set_name(name);
    for (size_t m = 0; m < members; ++m)
      group.add_members();
    return group;
  }

  void addMember(bundle::UnitInfo &made, uint32_t u, ClassOp unitClass, uint32_t id) {
    made = summary.units(static_cast<int>(u));
    made.set_class_id(id);
    made.set_splits(bool(unitClass.function(Task::InputGradients)));
    func::FuncOp forward = unitClass.definer(), backward = unitClass.function(Task::Backward);
    for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
      ArgumentAttr attribute = attributeOfArgument(forward, i);
      if (!isOfKind(attribute, ArgumentKind::Parameter))
        continue;
      const uint32_t position = static_cast<uint32_t>(attribute.getIndex());
      const uint32_t parameter = made.parameters(static_cast<int>(position));
      if (auto shard = forward.getArgAttrOfType<DictionaryAttr>(i, sharding::kShardAttr))
        parts.divide(made, position, divisionOf(shard));
      else if (summary.parameters(static_cast<int>(parameter)).trainable() &&
               !hasGradient(backward, attribute.getIndex()))
        made.add_other_contributes(attribute.getIndex());
    }
  }

  static bool hasGradient(func::FuncOp backward, uint32_t parameter) {
    return backward && llvm::any_of(llvm::seq(backward.getNumResults()), [&](unsigned i) {
             ArgumentAttr attribute = attributeOfResult(backward, i);
             return isOfKind(attribute, ArgumentKind::ParameterGradient) &&
                    attribute.getIndex() == parameter;
           });
  }

  static ParameterDivision divisionOf(DictionaryAttr shard) {
    auto number = [&](StringRef name) { return cast<IntegerAttr>(shard.get(name)).getInt(); };
    auto list = [&](StringRef name) {
      return cast<DenseI64ArrayAttr>(shard.get(name)).asArrayRef().vec();
    };
    ParameterDivision division{static_cast<uint32_t>(number("dim")),
                               list("begins"),
                               list("widths"),
                               {number("first"), number("count")},
                               {number("first"), number("count")}};
    if (shard.contains("stored"))
      division.stored = {list("stored")[0], list("stored")[1]};
    return division;
  }

  /// The backward of the last unit is split only if all devices split it. It stays in one part if
  /// gradients of parameters need an exchange: the devices compute W at different times.
  void splitAlike(bundle::DeviceGroup &group) const {
    const int last = group.units_size() - 1;
    const bool split = llvm::all_of(group.members(), [&](const auto &member) {
      const bundle::UnitFunction *weights = findFunction(classOf(summary, member.units(last)),
                                                         bundle::UnitFunction::WEIGHT_GRADIENTS);
      return member.units(last).splits() && weights && weights->exchanges_size() == 0;
    });
    for (auto &member : *group.mutable_members())
      member.mutable_units(last)->set_splits(split);
  }

  /// The functions of all devices have the same exchanges in the same order; those that recompute
  /// may differ (ValidatePlan).
  LogicalResult checkExchanges(uint32_t u, const bundle::DeviceGroup &group) const {
    auto exchanges = [&](const bundle::DeviceGroup::Member &member) {
      std::string text;
      const bundle::UnitInfo &unit = *member.units().rbegin();
      for (const bundle::UnitFunction &function : classOf(summary, unit).functions()) {
        const bool isPart = function.task() == bundle::UnitFunction::INPUT_GRADIENTS ||
                            function.task() == bundle::UnitFunction::WEIGHT_GRADIENTS;
        if (function.task() == bundle::UnitFunction::RECOMPUTE || (isPart && !unit.splits()))
          continue;
        for (const bundle::UnitFunction::Exchange &exchange : function.exchanges())
          text += std::to_string(function.task()) + ":" + std::to_string(exchange.kind()) +
                  std::to_string(exchange.number()) + " ";
      }
      return text;
    };
    for (const bundle::DeviceGroup::Member &member : group.members())
      if (exchanges(member) != exchanges(group.members(0)))
        return llvm::any_of(group.members(), [&](const auto &any) { return hasNoShare(any); })
                   ? UnitOp(units[u]).emitError("group '")
                         << group.name() << "': a device has no share of unit '"
                         << UnitOp(units[u]).getLabel()
                         << "', and needs fewer of the exchanged values than the others, which is "
                            "not supported yet: expected fewer devices or more equal shares"
                   : UnitOp(units[u]).emitError("group '")
                         << group.name() << "': two devices have different exchanges ("
                         << exchanges(group.members(0)) << "and " << exchanges(member)
                         << "); this is a compiler bug";
    return success();
  }

  /// Whether a device has no granules of a parameter of the last unit.
  bool hasNoShare(const bundle::DeviceGroup::Member &member) const {
    return llvm::any_of(member.units().rbegin()->parameters(),
                        [&](uint32_t parameter) {
                          const bundle::ParameterInfo &info =
                              summary.parameters(static_cast<int>(parameter));
                          return info.has_shard() && elementsOf(info) == 0;
                        }) ||
           llvm::any_of(member.units().rbegin()->parts(),
                        [](const auto &part) { return part.end().empty(); });
  }

  ArrayRef<UnitOp> units;
  function_ref<uint32_t(StringRef)> classId;
  bundle::ModelSummary &summary;
  std::vector<bundle::ElementType> &copies;
  ParameterParts parts{summary, copies};
};

} // namespace

LogicalResult units::describeGroups(ArrayRef<UnitOp> units,
                                    function_ref<uint32_t(StringRef)> classId,
                                    bundle::ModelSummary &summary,
                                    std::vector<bundle::ElementType> &copies) {
  return GroupDescriber(units, classId, summary, copies).run();
}
