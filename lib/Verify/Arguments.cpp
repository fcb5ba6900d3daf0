// Computes the required contents of arguments and transfers from plan and summary, once for every
// call before the replay.
#include "Logical.h"
#include "Reductions.h"

#include <tuple>

using namespace zorse;
using namespace zorse::verify;

/// Returns the exchange of a unit of a device; null if there is none.
static const bundle::UnitFunction::Exchange *exchangeOf(const Model &model, uint32_t device,
                                                        uint32_t unit, uint32_t number) {
  for (const auto &function : model.classOf(model.unitOf(device, unit)).functions())
    for (const auto &exchange : function.exchanges())
      if (exchange.number() == number)
        return &exchange;
  return nullptr;
}

static int64_t bytesOf(const bundle::UnitFunction::Exchange &exchange, int64_t rows) {
  int64_t bytes = 0;
  for (const bundle::AffineSize &part : exchange.parts())
    bytes += extentBytes(part, rows);
  return bytes;
}

bool verify::fromDeclared(Device &device, const bundle::Instruction &instruction,
                          const bundle::Value &value, uint64_t bytes, Logical &out) {
  const Model &model = device.getModel();
  const auto &summary = model.summary;
  auto fail = [&](Code code, const std::string &message) {
    return device.report(code, instruction.id(),
                         device.where(instruction) + ": " + device.describe(value) + " " + message);
  };
  out = {value.kind(), value.id(), value.cut(), value.version(), value.begin(), value.end(), 0, 0,
         -1,           false};
  int64_t limit = model.plan.batch;
  auto known = [&](int64_t count) { return value.id() < uint64_t(count); };
  bool exists = true, perUnit = true;
  const bool ordered = value.begin() >= 0 && value.begin() < value.end();
  switch (value.kind()) {
  case bundle::Value::MOMENTS:
    exists = known(summary.groups_size()) && value.cut() < model.statesOf(value.id());
    [[fallthrough]];
  case bundle::Value::PARAMETERS:
  case bundle::Value::GRADIENTS:
  case bundle::Value::REDUCED_GRADIENTS:
  case bundle::Value::LOW_PRECISION_PARAMETERS:
    exists =
        exists && known(summary.groups_size()) &&
        (value.kind() != bundle::Value::LOW_PRECISION_PARAMETERS || model.hasCopy(value.id())) &&
        (value.kind() != bundle::Value::REDUCED_GRADIENTS ||
         value.cut() <= model.treeOf(value.id()).size());
    if (exists) {
      limit = model.countOf(value.kind(), value.id(), value.cut());
      out.stride = value.kind() == bundle::Value::LOW_PRECISION_PARAMETERS
                       ? model.copyElementSize(value.id())
                       : elementSize(model.typeOf(value.kind(), value.id(), value.cut()));
    }
    out.stays = value.kind() == bundle::Value::GRADIENTS ||
                value.kind() == bundle::Value::REDUCED_GRADIENTS;
    break;
  case bundle::Value::ACTIVATION:
  case bundle::Value::ACTIVATION_GRADIENT:
    exists = known(summary.values_size());
    out.stride = exists ? summary.values(int(value.id())).bytes_per_row() : 0;
    break;
  case bundle::Value::INPUT_ROWS:
    exists = known(summary.inputs_size());
    out.stride = exists ? summary.inputs(int(value.id())).bytes_per_row() : 0;
    break;
  case bundle::Value::LOSS_ROWS:
    exists = known(summary.units_size()) && value.cut() < uint32_t(summary.loss_size());
    out.stride = ordered ? int64_t(bytes) / (value.end() - value.begin()) : 0;
    break;
  case bundle::Value::SAVED_BLOCK:
  case bundle::Value::SAVED_FOR_WEIGHT_GRAD_BLOCK:
    exists = known(summary.units_size()) && ordered && value.end() <= limit;
    perUnit = false;
    if (exists) {
      const auto &unitClass = model.classOf(model.unitOf(device.getProgram().device(), value.id()));
      out.bytes = extentBytes(value.kind() == bundle::Value::SAVED_BLOCK
                                  ? unitClass.saved_bytes()
                                  : unitClass.saved_for_weight_grad_bytes(),
                              value.end() - value.begin());
    }
    break;
  case bundle::Value::EXCHANGED: {
    exists = known(summary.units_size()) && ordered && value.end() <= limit;
    perUnit = false;
    out.stays = true;
    const auto *exchange =
        exists ? exchangeOf(model, device.getProgram().device(), value.id(), value.cut()) : nullptr;
    exists = exchange != nullptr;
    out.bytes = exists ? bytesOf(*exchange, value.end() - value.begin()) : 0;
    if (exists && instruction.has_copy()) { // a part
      out.offset = int64_t(value.block()) * 64;
      if (out.offset + int64_t(bytes) > out.bytes)
        return fail(Code::Size, "ends behind its " + std::to_string(out.bytes) + " bytes");
      out.bytes = int64_t(bytes);
    }
    break;
  }
  case bundle::Value::STEP_SCALARS:
    perUnit = false;
    out.stays = true;
    out.bytes = bytes == uint64_t(Block::scalarsEnd) ? Block::scalarsEnd : Block::bytes;
    break;
  case bundle::Value::LOCAL_METRICS:
  case bundle::Value::GLOBAL_METRICS:
  case bundle::Value::OPTIMIZER_STEP:
    perUnit = false;
    out.stays = true;
    out.bytes = value.kind() == bundle::Value::OPTIMIZER_STEP ? model.optimizerStepBytes()
                                                              : Block::sumsBytes;
    break;
  default:
    exists = false;
  }
  if (!exists)
    return fail(Code::Malformed, "does not exist");
  if (value.version() > 1)
    return fail(Code::Malformed,
                "has version " + std::to_string(value.version()) + ", expects 0 or 1");
  if (perUnit) {
    if (!ordered || value.end() > limit)
      return fail(Code::Malformed, "is not inside 0-" + std::to_string(limit));
    out.bytes = product(value.end() - value.begin(), out.stride);
  }
  if (out.bytes != int64_t(bytes))
    return fail(Code::Size,
                "has " + std::to_string(out.bytes) + " bytes, the region " + std::to_string(bytes));
  return true;
}

/// Computes the content before and after a collective of what the devices of a group exchange. Runs
/// of its shards count elements.
static bool fromExchange(Device &device, const bundle::Instruction &instruction,
                         const bundle::Collective &collective, Logical &whole, Logical &term) {
  const Model &model = device.getModel();
  const bundle::Value &value = collective.value;
  auto fail = [&](Code code, const std::string &message) {
    return device.report(code, instruction.id(), device.where(instruction) + ": " + message);
  };
  if (value.id() >= uint32_t(model.summary.units_size()) || value.id() != collective.group)
    return fail(Code::Declared, "is of a unit that does not exist");
  const auto *exchange = exchangeOf(model, device.getProgram().device(), value.id(), value.cut());
  if (!exchange || value.begin() < 0 || value.begin() >= value.end() ||
      value.end() > model.plan.batch)
    return fail(Code::Declared, "is of an exchange or samples that do not exist");
  const bool sums = exchange->kind() == bundle::UnitFunction::Exchange::ALL_REDUCE;
  if (!sums && !collective.gathers)
    return fail(Code::Declared, "sums what the devices gather");
  if (collective.type != exchange->type())
    return fail(Code::Mismatched,
                "element type " + std::to_string(int(collective.type)) + " is not the exchange's");
  const int64_t bytes = bytesOf(*exchange, value.end() - value.begin());
  if (!fromDeclared(device, instruction, value, uint64_t(bytes), whole))
    return false;
  std::vector<Shard> shards = bundle::shardsOf(collective.shards);
  std::sort(shards.begin(), shards.end());
  const int64_t size = elementSize(exchange->type());
  int64_t next = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].begin != next)
      return fail(Code::Mismatched, "its shards do not tile the exchange");
    next = shards[i].end;
    if (!sums && (i >= size_t(exchange->parts_size()) ||
                  product(shards[i].end - shards[i].begin, size) !=
                      extentBytes(exchange->parts(int(i)), value.end() - value.begin())))
      return fail(Code::Mismatched, "its shards are not the parts of the devices");
  }
  if (product(next, size) != bytes)
    return fail(Code::Mismatched, "its shards do not tile the exchange");
  whole.version = 1;
  term = whole;
  // A gather of parts reads what the devices have written; a gather of a sum, what they have
  // summed.
  term.version = collective.gathers && sums ? 1 : 0;
  return true;
}

bool verify::fromCollective(Device &device, const bundle::Instruction &instruction,
                            const bundle::Collective &collective, Logical &whole, Logical &term) {
  const Model &model = device.getModel();
  const bundle::Value &value = collective.value;
  if (value.kind() == bundle::Value::EXCHANGED)
    return fromExchange(device, instruction, collective, whole, term);
  auto fail = [&](Code code, const std::string &message) {
    return device.report(code, instruction.id(), device.where(instruction) + ": " + message);
  };
  const uint32_t group = value.id();
  if (!isState(value.kind()) || group >= uint32_t(model.summary.groups_size()) ||
      group != collective.group)
    return fail(Code::Declared, "is of group " + std::to_string(collective.group) +
                                    ", which is not the declared group");
  const auto &info = model.summary.groups(int(group));
  const bool copy = collective.gathers && model.hasCopy(group);
  if (!fromDeclared(device, instruction, value,
                    uint64_t(info.elements() *
                             (copy ? model.copyElementSize(group) : model.groupElementSize(group))),
                    whole))
    return false;
  const bool kind = collective.gathers
                        ? value.kind() == (copy ? bundle::Value::LOW_PRECISION_PARAMETERS
                                                : bundle::Value::PARAMETERS)
                        : value.kind() == bundle::Value::REDUCED_GRADIENTS ||
                              value.kind() == bundle::Value::GRADIENTS;
  if (!kind || value.begin() != 0 || value.end() != info.elements())
    return fail(Code::Declared, "expects the whole group");
  if (collective.type != (copy ? info.param_dtype() : info.type()))
    return fail(Code::Mismatched,
                "element type " + std::to_string(int(collective.type)) + " is not the group's");
  for (const auto *ends : {&collective.shards.end(), &collective.parts.end()})
    for (int64_t end : *ends)
      if (end > info.elements())
        return fail(Code::Malformed, "a run ends at element " + std::to_string(end) + " of " +
                                         std::to_string(info.elements()));
  if (collective.gathers)
    return true;
  const auto summed = Reduction(model, collective).termOf(device.getProgram().device());
  if (!summed && collective.isMember(device.getProgram().device()))
    return fail(Code::Contributions,
                "expects the sums of all devices, or of all parts, of a group of the tree that the "
                "plan's nodes and sites make");
  whole.kind = bundle::Value::REDUCED_GRADIENTS;
  term = whole;
  term.kind = summed ? summed->kind : bundle::Value::GRADIENTS;
  term.cut = summed ? summed->cut : 0;
  return true;
}

static UnitArgument unitArgument(const Model &model, uint32_t device, uint32_t index,
                                 const bundle::FunctionArgument &argument) {
  const bundle::ModelSummary &summary = model.summary;
  const auto &unit = model.unitOf(device, index);
  const uint32_t i = argument.index();
  auto at = [&](const auto &list) { return i < uint32_t(list.size()); };
  UnitArgument out;
  auto rowsOf = [&](bundle::Value::Kind kind, uint32_t id, uint32_t cut, int64_t bytesPerRow) {
    out.exists = out.rows = true;
    out.value.kind = kind;
    out.value.id = id;
    out.value.cut = cut;
    out.value.stride = out.bytesPerRow = bytesPerRow;
  };
  auto blockOf = [&](bundle::Value::Kind kind, const bundle::AffineSize &bytes) {
    rowsOf(kind, index, 0, bytes.per_row());
    out.value.stride = 0;
    out.fixedBytes = bytes.fixed();
  };
  switch (argument.kind()) {
  case bundle::PARAMETER:
  case bundle::PARAMETER_GRADIENT: {
    if (!at(unit.parameters()))
      break;
    const auto &parameter = summary.parameters(unit.parameters(int(i)));
    if (argument.kind() == bundle::PARAMETER_GRADIENT && !parameter.trainable())
      break;
    const Compact elements = bundle::parameterRuns(summary, unit, i);
    out.exists = true;
    const bool copy = argument.kind() == bundle::PARAMETER &&
                      summary.groups(int(parameter.group())).param_dtype() !=
                          bundle::ELEMENT_TYPE_UNSPECIFIED;
    out.value.kind = copy ? bundle::Value::LOW_PRECISION_PARAMETERS
                     : argument.kind() == bundle::PARAMETER ? bundle::Value::PARAMETERS
                                                            : bundle::Value::GRADIENTS;
    out.value.id = parameter.group();
    out.value.parameter = unit.parameters(int(i));
    std::tie(out.value.begin, out.value.end) = bundle::hullOf(elements);
    out.value.stride =
        elementSize(copy ? summary.groups(int(parameter.group())).param_dtype() : parameter.type());
    out.fixedBytes = elements.elements() * out.value.stride;
    break;
  }
  case bundle::INPUT:
    if (at(unit.inputs()))
      rowsOf(bundle::Value::INPUT_ROWS, unit.inputs(int(i)), 0,
             summary.inputs(int(unit.inputs(int(i)))).bytes_per_row());
    break;
  case bundle::BOUNDARY_IN:
    if (at(unit.values_in()))
      rowsOf(bundle::Value::ACTIVATION, unit.values_in(int(i)), 0,
             summary.values(int(unit.values_in(int(i)))).bytes_per_row());
    break;
  case bundle::BOUNDARY_IN_GRADIENT:
    if (at(unit.values_in()))
      rowsOf(bundle::Value::ACTIVATION_GRADIENT, unit.values_in(int(i)), index,
             summary.values(int(unit.values_in(int(i)))).bytes_per_row());
    break;
  case bundle::BOUNDARY_OUT:
    if (at(unit.values_out()))
      rowsOf(bundle::Value::ACTIVATION, unit.values_out(int(i)), 0,
             summary.values(int(unit.values_out(int(i)))).bytes_per_row());
    break;
  case bundle::BOUNDARY_OUT_GRADIENT:
    if (at(unit.values_out()))
      rowsOf(bundle::Value::ACTIVATION_GRADIENT, unit.values_out(int(i)), index + 1,
             summary.values(int(unit.values_out(int(i)))).bytes_per_row());
    break;
  case bundle::SAVED:
    blockOf(bundle::Value::SAVED_BLOCK, model.classOf(unit).saved_bytes());
    break;
  case bundle::SAVED_FOR_WEIGHT_GRAD:
    blockOf(bundle::Value::SAVED_FOR_WEIGHT_GRAD_BLOCK,
            model.classOf(unit).saved_for_weight_grad_bytes());
    break;
  case bundle::LOSS:
    if (at(unit.loss_terms()))
      rowsOf(bundle::Value::LOSS_ROWS, index, unit.loss_terms(int(i)), argument.bytes().per_row());
    break;
  case bundle::EXCHANGE:
    if (const auto *exchange = exchangeOf(model, device, index, i)) {
      rowsOf(bundle::Value::EXCHANGED, index, i, 0);
      for (const bundle::AffineSize &part : exchange->parts()) {
        out.fixedBytes += part.fixed();
        out.bytesPerRow += part.per_row();
      }
    }
    break;
  case bundle::SCALARS:
    out.exists = true;
    out.value.kind = bundle::Value::STEP_SCALARS;
    break;
  default:
    break;
  }
  return out;
}

const std::vector<UnitArgument> &UnitArguments::of(uint32_t device, const bundle::Call &call) {
  auto &known = functions[size_t(call.unit())];
  auto function = std::find_if(known.begin(), known.end(), [&](const Function &other) {
    return other.function == call.function();
  });
  if (function == known.end()) {
    function = known.insert(known.end(), {call.function(), -1, {}});
    for (const auto &argument : model.functions.functions(int(call.function())).arguments())
      function->arguments.push_back(unitArgument(model, device, uint32_t(call.unit()), argument));
  }
  if (function->rows != call.rows()) {
    function->rows = call.rows();
    for (UnitArgument &argument : function->arguments)
      argument.value.bytes = extentBytes(argument.fixedBytes, argument.bytesPerRow, call.rows());
  }
  return function->arguments;
}

namespace {

/// The arguments of one call.
class CallArguments {
public:
  CallArguments(Device &device, const bundle::Instruction &instruction, const bundle::Call &call)
      : device(device), model(device.getModel()), instruction(instruction), call(call),
        function(model.functions.functions(int(call.function()))),
        bindings(device.getProgram(), call) {}

  int size() const { return bindings.size(); }

  /// \param unit  the required content of the argument of a unit function; null: the call has no
  /// unit
  /// \param out   in: the value of the unit function; completed
  bool find(int index, const UnitArgument *unit, Logical &out) const {
    const auto &argument = function.arguments(index);
    const bundle::ArgumentBinding binding = bindings[index];
    const int64_t bytes = int64_t(binding.region.bytes());
    if (argument.kind() == bundle::WORKSPACE ||
        !model.segmentHas(call.function(), call.segment(), index))
      return true;
    if (unit) {
      if (!unit->exists)
        return fail(argument, Code::Call,
                    "does not exist in unit '" + model.summary.units(call.unit()).name() + "'");
      if (unit->rows) {
        out.begin = call.sample_base();
        out.end = call.sample_base() + call.rows();
      }
      if (out.kind == bundle::Value::EXCHANGED)
        out.version = isExchanged(out.cut);
    } else if (argument.kind() == bundle::SCALARS) {
      out.kind = bundle::Value::STEP_SCALARS;
      out.id = argument.mode() == bundle::READ ? 1 : 0;
    } else if (argument.kind() == bundle::LOCAL_METRICS) {
      out.kind = argument.mode() == bundle::READ ? bundle::Value::GLOBAL_METRICS
                                                 : bundle::Value::LOCAL_METRICS;
      out.bytes = Block::sumsBytes;
    } else if (argument.kind() == bundle::OPTIMIZER_STEP) {
      out.kind = bundle::Value::OPTIMIZER_STEP;
      out.version = model.isUpdate(call.function()) ? 1 : 0; // updates start from the decision's
                                                             // result
      out.bytes = model.isUpdate(call.function()) ? 8 : model.optimizerStepBytes();
    } else if (argument.kind() == bundle::STATE || argument.kind() == bundle::LOSS ||
               isCopyOfCast(argument)) {
      return findDeclared(argument, binding, out);
    } else {
      return fail(argument, Code::Call, "belongs to a unit, the call names none");
    }
    if (out.kind == bundle::Value::STEP_SCALARS) {
      if (bytes != Block::scalarsEnd && bytes != Block::bytes)
        return fail(argument, Code::Size,
                    "has " + std::to_string(bytes) + " bytes, expects " +
                        std::to_string(Block::bytes));
      out.bytes = bytes;
    }
    if (out.bytes != bytes)
      return fail(argument, Code::Size,
                  "has " + std::to_string(bytes) + " bytes, its value " +
                      std::to_string(out.bytes));
    return checkDeclared(argument, binding.value, out);
  }

private:
  Device &device;
  const Model &model;
  const bundle::Instruction &instruction;
  const bundle::Call &call;
  const bundle::CompiledFunction &function;
  const bundle::ArgumentBindings bindings;

  bool fail(const bundle::FunctionArgument &argument, Code code, const std::string &message) const {
    return device.report(code, instruction.id(),
                         device.where(instruction) + ": argument '" + argument.name() + "' of '" +
                             function.name() + "' " + message);
  }

  /// Whether an exchange of the function precedes the launches of the call.
  bool isExchanged(uint32_t number) const {
    uint32_t before = 0;
    for (const bundle::Launch &launch : function.launches())
      if (launch.has_exchange() && before++ < call.segment() &&
          function.arguments(int(launch.exchange().argument())).index() == number)
        return true;
    return false;
  }

  bool isCopyOfCast(const bundle::FunctionArgument &argument) const {
    return argument.kind() == bundle::PARAMETER && model.hasCopies() &&
           call.function() == model.summary.cast_function();
  }

  /// State of updates and norms, and loss rows: the extent is the declared one.
  bool findDeclared(const bundle::FunctionArgument &argument,
                    const bundle::ArgumentBinding &binding, Logical &out) const {
    const bundle::Value &value = binding.value;
    if (!fromDeclared(device, instruction, value, binding.region.bytes(), out))
      return false;
    if (argument.kind() == bundle::LOSS
            ? value.kind() != bundle::Value::LOSS_ROWS || value.cut() != argument.index()
        : isCopyOfCast(argument) ? value.kind() != bundle::Value::LOW_PRECISION_PARAMETERS
        : argument.index() == 0  ? value.kind() != bundle::Value::PARAMETERS
        : argument.index() == 1
            ? value.kind() != bundle::Value::REDUCED_GRADIENTS &&
                  value.kind() != bundle::Value::GRADIENTS
            : value.kind() != bundle::Value::MOMENTS || value.cut() != argument.index() - 2)
      return fail(argument, Code::Declared, "declares " + device.describe(value));
    const int64_t perRow = value.kind() == bundle::Value::MOMENTS
                               ? model.entriesPerRow(call.function(), value.cut())
                               : model.elementsPerRow(call.function());
    if (value.end() - value.begin() != product(call.rows(), perRow))
      return fail(argument, Code::Call,
                  "holds " + std::to_string(value.end() - value.begin()) + ", the call has " +
                      std::to_string(call.rows()) + " rows");
    if (value.version())
      return fail(argument, Code::Declared,
                  "declares " + device.describe(value) + ", expects version 0");
    if (out.kind == bundle::Value::GRADIENTS)
      out.kind = bundle::Value::REDUCED_GRADIENTS;
    return true;
  }

  /// The declared value must be the one that plan and summary imply. The cut of a gradient may be
  /// named from either side.
  bool checkDeclared(const bundle::FunctionArgument &argument, const bundle::Value &value,
                     const Logical &out) const {
    bool ranged = out.stride || isBlock(out.kind);
    bool same = value.kind() == out.kind &&
                (out.kind == bundle::Value::STEP_SCALARS || value.id() == out.id) &&
                (!ranged || (value.begin() == out.begin && value.end() == out.end)) &&
                (out.kind != bundle::Value::LOSS_ROWS || value.cut() == out.cut) &&
                (out.kind != bundle::Value::EXCHANGED ||
                 (value.cut() == out.cut && value.version() == out.version &&
                  value.begin() == out.begin && value.end() == out.end));
    if (out.kind == bundle::Value::GLOBAL_METRICS)
      same = value.kind() == bundle::Value::GLOBAL_METRICS ||
             value.kind() == bundle::Value::LOCAL_METRICS;
    if (same)
      return true;
    bundle::Value expected;
    expected.set_kind(out.kind);
    expected.set_id(out.id);
    expected.set_cut(out.cut);
    expected.set_begin(out.begin);
    expected.set_end(out.end);
    return fail(argument, Code::Declared,
                "declares " + device.describe(value) + ", expects " + device.describe(expected));
  }
};

} // namespace

bool verify::fromCall(Device &device, UnitArguments &units, const bundle::Instruction &instruction,
                      const bundle::Call &call, std::vector<Logical> &values) {
  const UnitArgument *unit = call.unit() >= 0 ? units.of(device.getProgram().device(), call).data()
                                              : nullptr;
  const CallArguments arguments(device, instruction, call);
  bool good = true;
  for (int s = 0; s < arguments.size(); ++s) {
    values.push_back(unit ? unit[s].value : Logical());
    good = arguments.find(s, unit ? unit + s : nullptr, values.back()) && good;
  }
  return good;
}
