// `zorse-divide-units`: one class for every device of a group that computes something different.
#include "zorse/Sharding/DivideUnits.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Base/Apportion.h"
#include "zorse/Base/CommonBoundaries.h"
#include "zorse/Dialect/Zorse/EraseDeadOps.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Format.h"

#include <map>

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

/// Whether the gradient of a whole parameter is a summand: it is partial, or a device has only its
/// part of it.
static bool isSummand(const ClassSharding &sharding, Value gradient) {
  return sharding.partial.contains(gradient) || sharding.values.contains(gradient);
}

namespace {

/// The division of an axis among the devices of a group.
struct AxisDivision {
  std::vector<Share> shares;
  /// By device: the smallest range that contains its share and that no group divides further.
  /// Empty: all groups divide the axis at the same places.
  std::vector<Share> stored;
};

std::string textOf(ArrayRef<double> shares) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (double share : shares)
    os << llvm::format("%a ", share);
  return text;
}

/// By unit: the different shares with which groups divide it, by their text.
using Divisions = std::vector<std::map<std::string, ArrayRef<double>>>;

Divisions divisionsOf(ArrayRef<UnitGroup> groups, size_t units) {
  Divisions divisions(units);
  for (const UnitGroup &group : groups) {
    const std::string text = textOf(group.shares);
    for (int64_t u : group.units)
      if (u >= 0 && u < static_cast<int64_t>(units))
        divisions[static_cast<size_t>(u)].try_emplace(text, group.shares);
  }
  return divisions;
}

/// Classes that were made for devices of groups. Groups with equal shares have the same ones.
struct MadeClasses {
  llvm::StringMap<ArrayAttr> ofUnits; ///< by class, whole parameters, and shares of groups
  llvm::StringMap<StringAttr> byText; ///< names of classes, by class and function
  llvm::StringMap<unsigned> symbols;  ///< number of added classes, by name without a suffix
  Operation *last = nullptr;          ///< class added last
};

class GroupDivider {
public:
  /// \param divisions  of all groups, which may divide the same units
  GroupDivider(ModuleOp module, const UnitGroup &group, const Divisions &divisions,
               double flopsPerByte, MadeClasses &made)
      : module(module), group(group), shares(textOf(group.shares)), divisions(divisions),
        flopsPerByte(flopsPerByte), made(made), builder(module.getContext()) {}

  LogicalResult run(ArrayRef<UnitOp> units) {
    if (!llvm::all_of(group.shares, [](double share) { return share > 0; }))
      return module.emitError("group '") << group.name << "': expected positive shares";
    for (int64_t u : group.units) {
      if (u < 0 || u >= static_cast<int64_t>(units.size()))
        return module.emitError("group '")
               << group.name << "': expected units below " << units.size() << ", got " << u;
      UnitOp unit = units[static_cast<size_t>(u)];
      FailureOr<ArrayAttr> classes = classesOf(unit, u);
      if (failed(classes))
        return failure();
      NamedAttrList groups(unit->getAttrOfType<DictionaryAttr>(kGroupsAttr));
      groups.set(group.name, *classes);
      unit->setAttr(kGroupsAttr, groups.getDictionary(module.getContext()));
    }
    return success();
  }

private:
  /// Returns the classes of the devices for a unit. Units of one class share them, for this and
  /// other groups with the same shares, if they also share the set of parameters that other units
  /// read, and the shares of the groups that divide them.
  FailureOr<ArrayAttr> classesOf(UnitOp unit, int64_t index) {
    std::string key = unit.getCallee().str() + ' ' + shares;
    for (const auto &[text, division] : divisions[static_cast<size_t>(index)])
      key += '/' + text;
    SmallVector<bool> whole;
    for (Value parameter : unit.getParameters()) {
      whole.push_back(!parameter.hasOneUse());
      key += whole.back() ? '1' : '0';
    }
    if (ArrayAttr known = made.ofUnits.lookup(key))
      return known;
    FailureOr<ArrayAttr> classes = divide(unit, whole, index);
    if (succeeded(classes))
      made.ofUnits[key] = *classes;
    return classes;
  }

  FailureOr<ArrayAttr> divide(UnitOp unit, ArrayRef<bool> whole, int64_t index) {
    ClassOp unitClass = unit.unitClass();
    func::FuncOp original = unitClass.function(Task::Joint);
    if (!original)
      return unit.emitError("expected a joint function in class '@")
             << unit.getCallee() << "': run --zorse-join-backward first";
    OwningOpRef<func::FuncOp> joint = original.clone();
    autodiff::dropPairs(*joint);
    for (BlockArgument argument : joint->getArguments())
      if (ArgumentAttr attribute = attributeOfArgument(*joint, argument.getArgNumber());
          isOfKind(attribute, ArgumentKind::Parameter) && whole[attribute.getIndex()])
        joint->setArgAttr(argument.getArgNumber(), kWholeAttr, builder.getUnitAttr());
    const ClassSharding sharding = deriveSharding(*joint, flopsPerByte);
    std::vector<AxisDivision> axes;
    axes.reserve(sharding.axes.size());
    for (const Axis &axis : sharding.axes) {
      axes.push_back(divideAxis(axis, index));
    }
    SmallVector<Attribute> classes;
    for (size_t device = 0; device < group.shares.size(); ++device)
      classes.push_back(
          FlatSymbolRefAttr::get(addClass(unitClass, *joint, sharding, axes, device)));
    return builder.getArrayAttr(classes);
  }

  AxisDivision divideAxis(const Axis &axis, int64_t index) const {
    AxisDivision axisDivision;
    std::vector<std::vector<int64_t>> counts; // of granules, by group and device
    for (const auto &[text, division] : divisions[static_cast<size_t>(index)])
      counts.push_back(apportion(axis.granules, {division.begin(), division.end()}));
    int64_t begin = 0;
    for (int64_t count : apportion(axis.granules, group.shares)) {
      axisDivision.shares.push_back({begin, begin + count});
      begin += count;
    }
    const CommonBoundaries boundaries(counts);
    for (const Share &share : axisDivision.shares)
      if (boundaries.areDifferent()) {
        const auto [begin, end] = boundaries.containing(share.begin, share.end);
        axisDivision.stored.push_back({begin, end});
      }
    return axisDivision;
  }

  /// Builds the function of a device. A group of one device has no exchanges.
  OwningOpRef<func::FuncOp> functionOf(func::FuncOp joint, const ClassSharding &sharding,
                                       ArrayRef<AxisDivision> axes, size_t device) const {
    if (group.shares.size() == 1)
      return joint.clone();
    std::vector<std::vector<Share>> shares;
    for (const AxisDivision &axis : axes)
      shares.push_back(axis.shares);
    return instantiate(joint, sharding, shares, device);
  }

  /// Whether no group divides an axis: they have one device each.
  bool isWhole(const AxisDivision &axis) const {
    return group.shares.size() == 1 && axis.stored.empty();
  }

  /// Stores divided parameters with their divided dimension first.
  void storeDivided(func::FuncOp function, func::FuncOp joint, const ClassSharding &sharding,
                    ArrayRef<AxisDivision> axes) {
    auto permutationOf = [&](Value parameter) {
      SmallVector<int64_t> permutation;
      auto it = parameter ? sharding.values.find(parameter) : sharding.values.end();
      if (it == sharding.values.end() || it->second.dim.dim == 0 || isWhole(axes[it->second.axis]))
        return permutation;
      permutation.push_back(it->second.dim.dim);
      for (int64_t d = 0; d < cast<RankedTensorType>(parameter.getType()).getRank(); ++d)
        if (d != permutation.front())
          permutation.push_back(d);
      return permutation;
    };
    OpBuilder::InsertionGuard guard(builder);
    Block &body = function.getBody().front();
    for (BlockArgument argument : joint.getArguments())
      if (const SmallVector<int64_t> permutation = permutationOf(argument); !permutation.empty()) {
        BlockArgument parameter = body.getArgument(argument.getArgNumber());
        parameter.setType(
            TransposeOp::inferType(cast<RankedTensorType>(parameter.getType()), permutation));
        builder.setInsertionPointToStart(&body);
        auto read = TransposeOp::create(builder, parameter.getLoc(), parameter,
                                        invertPermutationVector(permutation));
        parameter.replaceAllUsesExcept(read.getY(), read);
      }
    Operation *returned = body.getTerminator();
    builder.setInsertionPoint(returned);
    for (unsigned i = 0; i < joint.getNumResults(); ++i)
      if (const SmallVector<int64_t> permutation = permutationOf(parameterOfGradient(joint, i));
          !permutation.empty())
        returned->setOperand(i, permuted(returned->getOperand(i), permutation));
    function.setType(builder.getFunctionType(body.getArgumentTypes(), returned->getOperandTypes()));
  }

  /// Returns a permuted gradient. That of a matmul's weight is computed in the new order.
  Value permuted(Value gradient, ArrayRef<int64_t> permutation) {
    auto product = gradient.getDefiningOp<MatmulGradWeightOp>();
    if (product && gradient.hasOneUse() && permutation == ArrayRef<int64_t>{1, 0})
      return MatmulGradWeightOp::create(builder, product.getLoc(),
                                        TransposeOp::inferType(product.getType(), permutation),
                                        product.getB(), product.getA());
    return TransposeOp::create(builder, gradient.getLoc(), gradient, permutation);
  }

  /// Adds the class of a device, or finds an equal one. \returns its name
  StringAttr addClass(ClassOp like, func::FuncOp joint, const ClassSharding &sharding,
                      ArrayRef<AxisDivision> axes, size_t device) {
    OwningOpRef<func::FuncOp> function = functionOf(joint, sharding, axes, device);
    storeDivided(*function, joint, sharding, axes);
    describeParameters(*function, joint, sharding, axes, device);
    OwningOpRef<func::FuncOp> less = function->clone();
    dropRepeatedGradients(*less);
    if (group.shares.size() > 1 && exchangesOf(*less) != exchangesOf(*function))
      makeSummands(*function, device);
    else if (device > 0)
      function = std::move(less);
    std::string text;
    llvm::raw_string_ostream os(text);
    os << like.getSymName() << ' ';
    function->print(os, OpPrintingFlags().useLocalScope());
    StringAttr &name = made.byText[text];
    if (name)
      return name;
    builder.setInsertionPointAfter(made.last ? made.last : like.getOperation());
    std::string symbol = like.getSymName().str() + "." + group.name + "." + std::to_string(device);
    if (const unsigned more = made.symbols[symbol]++) // other groups divide other units of the
                                                      // class
      symbol += "." + std::to_string(more);
    auto added = ClassOp::create(builder, like.getLoc(), symbol);
    added.getBody().emplaceBlock();
    added.getBody().front().push_back(function.release());
    made.last = added;
    return name = added.getSymNameAttr();
  }

  void describeParameters(func::FuncOp function, func::FuncOp joint, const ClassSharding &sharding,
                          ArrayRef<AxisDivision> axes, size_t device) {
    Operation *returned = joint.getBody().front().getTerminator();
    for (BlockArgument argument : joint.getArguments())
      if (auto it = sharding.values.find(argument); it != sharding.values.end()) {
        const AxisDivision &axis = axes[it->second.axis];
        const Share share = axis.shares[device];
        if (isWhole(axis))
          continue;
        SmallVector<int64_t> begins, widths;
        for (const GranuleMap::Segment &segment : it->second.dim.map.segments) {
          begins.push_back(segment.begin);
          widths.push_back(segment.width);
        }
        SmallVector<NamedAttribute> shard{
            builder.getNamedAttr("dim", builder.getI64IntegerAttr(it->second.dim.dim)),
            builder.getNamedAttr("begins", builder.getDenseI64ArrayAttr(begins)),
            builder.getNamedAttr("widths", builder.getDenseI64ArrayAttr(widths)),
            builder.getNamedAttr("first", builder.getI64IntegerAttr(share.begin)),
            builder.getNamedAttr("count", builder.getI64IntegerAttr(share.count()))};
        if (!axis.stored.empty())
          shard.push_back(builder.getNamedAttr(
              "stored", builder.getDenseI64ArrayAttr(
                            {axis.stored[device].begin, axis.stored[device].count()})));
        function.setArgAttr(argument.getArgNumber(), kShardAttr, builder.getDictionaryAttr(shard));
      }
    for (unsigned i = 0; i < joint.getNumResults(); ++i)
      if (BlockArgument parameter = parameterOfGradient(joint, i);
          parameter && group.shares.size() > 1 && !sharding.values.contains(parameter) &&
          isSummand(sharding, returned->getOperand(i)))
        function.setArgAttr(parameter.getArgNumber(), kPartialGradientAttr, builder.getUnitAttr());
  }

  /// Whether only the first device computes a gradient: that of a whole parameter that is no
  /// summand.
  static bool isRepeated(func::FuncOp function, unsigned result) {
    BlockArgument parameter = parameterOfGradient(function, result);
    return parameter && !function.getArgAttr(parameter.getArgNumber(), kShardAttr) &&
           !function.getArgAttr(parameter.getArgNumber(), kPartialGradientAttr);
  }

  static void dropRepeatedGradients(func::FuncOp function) {
    llvm::BitVector dropped(function.getNumResults());
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (isRepeated(function, i))
        dropped.set(i);
    function.getBody().front().getTerminator()->eraseOperands(dropped);
    (void)function.eraseResults(dropped);
    eraseDeadOps(function.getBody().front());
  }

  static size_t exchangesOf(func::FuncOp function) {
    return static_cast<size_t>(llvm::count_if(function.getBody().front(), [](Operation &op) {
      return isa<AllReduceOp, AllGatherOp>(op);
    }));
  }

  /// Makes repeated gradients summands: of all devices but the first they are zero. Devices need
  /// this if they take part in an exchange for such a gradient alone.
  void makeSummands(func::FuncOp function, size_t device) {
    Operation *returned = function.getBody().front().getTerminator();
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      if (!isRepeated(function, i))
        continue;
      function.setArgAttr(parameterOfGradient(function, i).getArgNumber(), kPartialGradientAttr,
                          builder.getUnitAttr());
      if (device == 0)
        continue;
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPoint(returned);
      Value gradient = returned->getOperand(i);
      Value zero =
          createSplat(builder, gradient.getLoc(), cast<RankedTensorType>(gradient.getType()), 0);
      returned->setOperand(
          i, arith::MulFOp::create(builder, gradient.getLoc(), gradient, zero).getResult());
    }
  }

  ModuleOp module;
  const UnitGroup &group;
  const std::string shares; ///< the group's, as a key
  const Divisions &divisions;
  const double flopsPerByte;
  MadeClasses &made;
  OpBuilder builder;
};

struct DivideUnitsPass : PassWrapper<DivideUnitsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DivideUnitsPass)
  DivideUnitsPass(std::vector<UnitGroup> groups, double given) : groups(std::move(groups)) {
    flopsPerByte = given;
  }
  DivideUnitsPass(const DivideUnitsPass &other) : PassWrapper(other), groups(other.groups) {}

  StringRef getArgument() const final { return "zorse-divide-units"; }
  StringRef getDescription() const final {
    return "Add the classes of the devices that divide units (tensor parallelism)";
  }

  void runOnOperation() final {
    for (const std::string &text : texts) {
      FailureOr<UnitGroup> group = parse(text);
      if (failed(group))
        return signalPassFailure();
      groups.push_back(std::move(*group));
    }
    if (failed(divideUnits(getOperation(), groups, flopsPerByte)))
      signalPassFailure();
  }

  /// Reads `BEGIN-END:SHARE/SHARE/...`.
  FailureOr<UnitGroup> parse(StringRef text) {
    UnitGroup group;
    group.name = "g" + std::to_string(groups.size());
    auto [range, shares] = text.split(':');
    auto [begin, end] = range.split('-');
    int64_t first = 0, last = 0;
    bool good = !begin.getAsInteger(10, first) && !end.getAsInteger(10, last) && first < last &&
                last < (1 << 20);
    for (int64_t u = first; good && u < last; ++u)
      group.units.push_back(u);
    for (StringRef share : llvm::split(shares, '/')) {
      double value = 0;
      good = good && !share.getAsDouble(value) && value > 0;
      group.shares.push_back(value);
    }
    if (!good || group.shares.size() < 2)
      return getOperation().emitError("zorse-divide-units: expected BEGIN-END:SHARE/SHARE with at "
                                      "least two positive shares, got '")
             << text << "'";
    return group;
  }

  ListOption<std::string> texts{
      *this, "group", llvm::cl::desc("BEGIN-END:SHARE/SHARE/...: units and the devices' shares")};
  Option<double> flopsPerByte{
      *this, "flops-per-byte",
      llvm::cl::desc("FLOPs that a device computes in the time of one exchanged byte"),
      llvm::cl::init(kFlopsPerByte)};
  std::vector<UnitGroup> groups;
};

} // namespace

LogicalResult sharding::divideUnits(ModuleOp module, ArrayRef<UnitGroup> groups,
                                    double flopsPerByte) {
  auto model = module.lookupSymbol<func::FuncOp>(attributes::kModel);
  if (!model || model.isDeclaration())
    return module.emitError("expected @model as a chain of units: run --zorse-find-units first");
  const SmallVector<UnitOp> units(model.getOps<UnitOp>());
  Builder builder(module.getContext());
  SmallVector<Attribute> order;
  const Divisions divisions = divisionsOf(groups, units.size());
  MadeClasses made;
  for (const UnitGroup &group : groups) {
    if (failed(GroupDivider(module, group, divisions, flopsPerByte, made).run(units)))
      return failure();
    order.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("devices", builder.getI64IntegerAttr(group.shares.size())),
         builder.getNamedAttr("name", builder.getStringAttr(group.name))}));
  }
  if (!order.empty())
    module->setAttr(kGroupOrderAttr, builder.getArrayAttr(order));
  return success();
}

std::unique_ptr<Pass> sharding::createDivideUnits(std::vector<UnitGroup> groups,
                                                  double flopsPerByte) {
  return std::make_unique<DivideUnitsPass>(std::move(groups), flopsPerByte);
}
