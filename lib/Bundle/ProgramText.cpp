#include "zorse/Bundle/ProgramText.h"

#include "ArgumentBindings.h"

#include "zorse/Summary/Summary.h"

#include <charconv>
#include <cstdio>

using namespace zorse;
using namespace zorse::bundle;

namespace {

/// Names indexed by the schema's numbers; empty for numbers without a name.
template <size_t N> std::string word(const char *const (&words)[N], int number) {
  return number >= 0 && number < int(N) ? words[number] : "";
}

constexpr const char *kMemory[] = {"", "device", "pinned_host", "host", "nvme"};
constexpr const char *kQueues[] = {"",          "compute", "send", "receive",         "collective",
                                   "to_device", "to_host", "io",   "device_to_device"};
constexpr const char *kPhases[] = {"",       "load",      "gather", "forward",     "backward",
                                   "reduce", "grad_norm", "update", "read_metrics"};
constexpr const char *kValues[] = {"none",
                                   "parameters",
                                   "gradients",
                                   "reduced_gradients",
                                   "moments",
                                   "activation",
                                   "activation_gradient",
                                   "saved",
                                   "input",
                                   "scalars",
                                   "loss",
                                   "local_metrics",
                                   "global_metrics",
                                   "optimizer_step",
                                   "saved_for_weight_grad",
                                   "low_precision_parameters",
                                   "exchanged"};
constexpr const char *kTasks[] = {"",
                                  "F",
                                  "B",
                                  "W",
                                  "R",
                                  "norm",
                                  "clip_and_check",
                                  "update",
                                  "sum_loss",
                                  "cast",
                                  "scale_loss_gradient"};
constexpr const char *kOrders[] = {"", "fixed_order"};
constexpr const char *kAccess[] = {"use", "read", "write", "update", "add"};
static_assert(NVME == 4 && DEVICE_TO_DEVICE == 8 && READ_METRICS == 8 &&
              Value::LOW_PRECISION_PARAMETERS == 15 && Compute::SCALE_LOSS_GRADIENT == 10 &&
              FIXED_ORDER == 1 && ACCUMULATE == 4);

const char *typeWord(ElementType type) {
  return elementBytes(type) ? elementTypeName(type) : "none";
}

std::string quoted(const std::string &name) {
  std::string text = "\"";
  for (unsigned char c : name)
    if (c >= ' ' && c < 127 && c != '"' && c != '\\') {
      text += char(c);
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "\\%02X", c);
      text += code;
    }
  return text + '"';
}

/// Formats a symbol: `@a`, `@"a100:0"`.
std::string symbol(const std::string &name) {
  bool plain = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
  for (unsigned char c : name)
    plain &= std::isalnum(c) || c == '_' || c == '$' || c == '.';
  return '@' + (plain ? name : quoted(name));
}

/// Returns the shortest text that parses to the same double, with a decimal point.
std::string shortest(double value) {
  char digits[40];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  if (text.find_first_of(".n") == std::string::npos) // also contained in "inf" and "nan"
    text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

/// base + count, wrapping on overflow in an invalid program.
int64_t endOf(int64_t base, int64_t count) {
  return static_cast<int64_t>(static_cast<uint64_t>(base) + static_cast<uint64_t>(count));
}

class Writer {
public:
  Writer(const Program &program, const ProgramNames &names) : program(program), names(names) {}

  Result<std::string> run() {
    text = "exec.program " + device(program.device()) + " device " +
           std::to_string(program.device()) + " of [";
    for (uint32_t i = 0; i < std::max<uint32_t>(names.devices.size(), program.device() + 1); ++i)
      text += (i ? ", " : "") + device(i);
    text += "] planned " + std::to_string(program.planned_bytes()) + " {\n";
    for (const Arena &arena : program.arenas())
      text += "  exec.arena " + word(kMemory, arena.kind()) + ' ' + std::to_string(arena.bytes()) +
              '\n';
    for (int i = 0; i < program.queues_size(); ++i)
      text += "  exec.queue " + queue(i) + '\n';
    for (const PersistentState &state : program.state())
      text += "  exec.state " + value(state.value()) + " at " + region(state.region()) + " : " +
              typeWord(state.type()) + '\n';
    for (const Instruction &e : program.instructions())
      if (Status status = instruction(e); status.failed())
        return status;
    text += "}\n";
    return std::move(text);
  }

private:
  std::string device(uint32_t index) const {
    if (index == program.device() && !program.device_name().empty())
      return symbol(program.device_name());
    return symbol(index < names.devices.size() ? names.devices[index]
                                               : "device" + std::to_string(index));
  }
  std::string queue(int index) const {
    return word(kQueues, program.queues(index).kind()) + std::to_string(program.queues(index).id());
  }
  static std::string region(const Region &r) {
    return std::to_string(r.arena()) + ':' + std::to_string(r.offset()) + '+' +
           std::to_string(r.bytes());
  }

  /// Returns ` "head"`; empty if there is no name.
  template <typename Table> static std::string nameIn(const Table &table, uint32_t index) {
    return index < uint32_t(table.size()) && !table[int(index)].name().empty()
               ? ' ' + quoted(table[int(index)].name())
               : "";
  }
  std::string nameOf(const Value &v) const {
    if (!names.summary)
      return "";
    switch (v.kind()) {
    case Value::PARAMETERS:
    case Value::LOW_PRECISION_PARAMETERS:
    case Value::GRADIENTS:
    case Value::REDUCED_GRADIENTS:
    case Value::MOMENTS:
      return nameIn(names.summary->groups(), v.id());
    case Value::ACTIVATION:
    case Value::ACTIVATION_GRADIENT:
      return nameIn(names.summary->values(), v.id());
    case Value::SAVED_BLOCK:
    case Value::SAVED_FOR_WEIGHT_GRAD_BLOCK:
    case Value::LOSS_ROWS:
      return nameIn(names.summary->units(), v.id());
    case Value::INPUT_ROWS:
      return nameIn(names.summary->inputs(), v.id());
    default:
      return "";
    }
  }

  std::string value(const Value &v) const {
    const bool single = v.kind() == Value::NONE || v.kind() == Value::STEP_SCALARS ||
                        v.kind() >= Value::LOCAL_METRICS;
    std::string out = word(kValues, v.kind());
    if (v.id() || !single)
      out += ' ' + std::to_string(v.id());
    out += nameOf(v);
    if (v.cut())
      out += " cut " + std::to_string(v.cut());
    if (v.begin() || v.end())
      out += " [" + std::to_string(v.begin()) + ':' + std::to_string(v.end()) + ']';
    if (v.version())
      out += " version " + std::to_string(v.version());
    return out;
  }

  template <typename Indices> std::string devices(const Indices &indices) const {
    std::string out;
    for (uint32_t index : indices)
      out += (out.empty() ? "" : ", ") + device(index);
    return '[' + out + ']';
  }
  std::string extents(const ShardRanges &e) const {
    std::string out;
    for (int i = 0; i < e.members_size(); ++i)
      out += (i ? ", " : "") + device(e.members(i)) + ' ' +
             std::to_string(i < e.begin_size() ? e.begin(i) : 0) + ':' +
             std::to_string(i < e.end_size() ? e.end(i) : 0);
    return '[' + out + ']';
  }
  /// Nothing: members have the whole.
  std::string runs(const char *word, const ShardRanges &e) const {
    return e.members().empty() ? "" : word + extents(e);
  }

  /// Returns the text after `on`: queue, phase, waits and times.
  Result<std::string> when(const Instruction &e) const {
    auto exists = [&](uint32_t index) { return index < uint32_t(program.queues_size()); };
    if (!exists(e.queue()))
      return internal(e, "expects a queue of the program, got number " + std::to_string(e.queue()));
    std::string out = " on " + queue(e.queue()) + " in " + word(kPhases, e.phase()), waits;
    for (const Wait &wait : e.waits()) {
      if (!exists(wait.queue()))
        return internal(e, "expects to wait on a queue of the program, got number " +
                               std::to_string(wait.queue()));
      waits += (waits.empty() ? "" : ", ") + queue(wait.queue()) + ':' +
               std::to_string(wait.position()) + (wait.previous_step() ? " previous" : "");
    }
    if (!waits.empty())
      out += " after [" + waits + ']';
    if (e.planned_start() != 0 || e.planned_end() != 0)
      out += " time [" + shortest(e.planned_start()) + ", " + shortest(e.planned_end()) + ']';
    return out;
  }

  static Status internal(const Instruction &e, const std::string &why) {
    return userError("instruction " + std::to_string(e.id()) + ": " + why);
  }

  Status instruction(const Instruction &e) {
    Result<std::string> tail = when(e);
    if (tail.failed())
      return tail.error();
    if (e.what_case() == Instruction::WHAT_NOT_SET)
      return internal(e, "expects an operation, got an empty instruction or one of a later format");
    if (const LoadInput &load = e.load_input(); e.has_load_input())
      if (const Value &v = load.value(); v.id() != load.input() ||
                                         v.begin() != load.sample_base() ||
                                         v.end() != endOf(v.begin(), load.rows()))
        return internal(
            e, "expects the value to be the rows it loads, [" + std::to_string(load.sample_base()) +
                   ':' + std::to_string(endOf(load.sample_base(), load.rows())) + "] of input " +
                   std::to_string(load.input()) + ", got [" + std::to_string(v.begin()) + ':' +
                   std::to_string(v.end()) + "] of " + std::to_string(v.id()));
    auto [kind, what] = describe(e);
    text += "  exec." + kind + ' ' + std::to_string(e.id()) + ' ' + what + *tail;
    if (e.has_compute()) {
      text += " {\n";
      for (const Call &c : e.compute().calls())
        call(c);
      text += "  }";
    }
    text += '\n';
    return Status::success();
  }

  /// Returns the name of an instruction, and the description of its operation.
  std::pair<std::string, std::string> describe(const Instruction &e) const {
    switch (e.what_case()) {
    case Instruction::kCompute:
      return {"compute",
              word(kTasks, e.compute().task()) +
                  (e.compute().cell() < 0 ? "" : " cell " + std::to_string(e.compute().cell())) +
                  (e.compute().group() < 0 ? "" : " group " + std::to_string(e.compute().group()))};
    case Instruction::kCopy:
      return {"copy", value(e.copy().value()) + " from " + region(e.copy().from()) + " into " +
                          region(e.copy().to())};
    case Instruction::kSend:
      return {"send", value(e.send().value()) + " to " + device(e.send().peer()) + " from " +
                          region(e.send().region())};
    case Instruction::kReceive:
      return {"receive", value(e.receive().value()) + " from " + device(e.receive().peer()) +
                             " into " + region(e.receive().region())};
    case Instruction::kLoadInput:
      return {"load_input",
              value(e.load_input().value()) + " into " + region(e.load_input().region())};
    case Instruction::kLoadScalars:
      return {"load_scalars",
              value(e.load_scalars().value()) + " into " + region(e.load_scalars().region())};
    case Instruction::kAllGather:
      return {"all_gather", shared(e.all_gather()) + " shards " + extents(e.all_gather().shards()) +
                                " readers " + devices(e.all_gather().readers()) +
                                runs(" reads ", e.all_gather().reads()) + places(e.all_gather())};
    case Instruction::kReduceScatter: {
      const ReduceScatter &r = e.reduce_scatter();
      return {"reduce_scatter",
              shared(r) + ' ' + word(kOrders, r.order()) + " of " + devices(r.contributors()) +
                  " shards " + extents(r.shards()) + runs(" terms ", r.terms()) + places(r) +
                  parts(" receive_buffer ", r.receive_buffer()) +
                  parts(" send_buffer ", r.send_buffer()) +
                  (r.chunk() ? " chunk " + std::to_string(r.chunk()) : "") +
                  (r.term_type() ? std::string(" term_type ") + typeWord(r.term_type()) : "")};
    }
    case Instruction::kAllReduce: {
      const AllReduce &r = e.all_reduce();
      return {"all_reduce", value(r.from()) + " becomes " + value(r.to()) + " : " +
                                typeWord(r.type()) + ' ' + word(kOrders, r.order()) + " of " +
                                devices(r.members()) + " at " + region(r.region()) +
                                parts(" receive_buffer ", r.receive_buffer())};
    }
    default:
      return {"read_metrics",
              value(e.read_metrics().value()) + " at " + region(e.read_metrics().region())};
    }
  }
  template <typename Collective> std::string shared(const Collective &c) const {
    return value(c.value()) + " group " + std::to_string(c.group()) + " : " + typeWord(c.type());
  }
  template <typename Collective> static std::string places(const Collective &c) {
    return " full " + region(c.full()) + " shard " + region(c.shard());
  }
  static std::string parts(const char *name, const Region &r) {
    return r.bytes() || r.arena() || r.offset() ? name + region(r) : "";
  }

  void call(const Call &c) {
    const CompiledFunction *function =
        names.functions && c.function() < uint32_t(names.functions->functions_size())
            ? &names.functions->functions(int(c.function()))
            : nullptr;
    text += "    exec.call " + std::to_string(c.function());
    if (function && !function->name().empty())
      text += ' ' + quoted(function->name());
    if (c.unit() >= 0)
      text += " unit " + std::to_string(c.unit()) +
              (names.summary ? nameIn(names.summary->units(), c.unit()) : "");
    text += " rows [" + std::to_string(c.sample_base()) + ':' +
            std::to_string(endOf(c.sample_base(), c.rows())) + ']';
    if (c.rng_id_base())
      text += " rng_id " + std::to_string(static_cast<int64_t>(c.rng_id_base()));
    const ArgumentBindings arguments(program, c);
    for (int i = 0; i < arguments.size(); ++i) {
      const AccessMode mode = function && i < function->arguments_size()
                                  ? function->arguments(i).mode()
                                  : ACCESS_UNSPECIFIED;
      text += (i ? "," : " (") + ("\n      " + word(kAccess, mode)) +
              (arguments[i].overwrite ? " overwriting " : " ") + value(arguments[i].value) +
              " at " + region(arguments[i].region);
    }
    text += arguments.size() ? ")\n" : "\n";
  }

  const Program &program;
  const ProgramNames &names;
  std::string text;
};

} // namespace

Result<std::string> zorse::bundle::programText(const Program &program, const ProgramNames &names) {
  return Writer(program, names).run();
}
