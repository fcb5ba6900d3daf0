#include "zorse/runtime/Generation.h"

#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Elements.h"
#include "zorse/runtime/abi/Random.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr uint64_t kMaxBytes = uint64_t(1) << 34; ///< maximum bytes of an argument; larger ones are
                                                  ///< refused

const bundle::CompiledFunction &logitsFunction(const Bundle &bundle) {
  return bundle.functions.functions(int(bundle.summary.logits().function()));
}

const bundle::UnitInfo &headOf(const Bundle &bundle) {
  return bundle.summary.units(int(bundle.summary.logits().unit()));
}
uint32_t forwardFunction(const Bundle &bundle) {
  return functionOf(bundle.summary, headOf(bundle), bundle::UnitFunction::FORWARD).function();
}

bool isPosition(const Bundle &bundle, const bundle::FunctionArgument &argument) {
  return argument.kind() == bundle::INPUT &&
         argument.index() == uint32_t(headOf(bundle).inputs_size());
}

bool isOwn(const Bundle &bundle, const bundle::FunctionArgument &argument) {
  return argument.kind() == bundle::WORKSPACE || argument.kind() == bundle::BOUNDARY_OUT ||
         isPosition(bundle, argument);
}

/// The argument of `function` with the kind and index of `argument`, or -1.
int same(const bundle::CompiledFunction &function, const bundle::FunctionArgument &argument) {
  for (int i = 0; i < function.arguments_size(); ++i)
    if (function.arguments(i).kind() == argument.kind() &&
        function.arguments(i).index() == argument.index())
      return i;
  return -1;
}

uint64_t bytesOfRow(const bundle::FunctionArgument &argument) {
  return uint64_t(argument.bytes().fixed()) + uint64_t(argument.bytes().per_row());
}

} // namespace

/// Checks that the function accesses only its arguments. Bundles may have arbitrary contents, and
/// no program calls this function.
Status TextGenerator::check() const {
  const bundle::ModelSummary &s = bundle_.summary;
  if (!s.has_logits())
    return userError(
        bundle_.directory +
        ": was not compiled for text to be sampled; give zorse-compile --with-generation");
  const bundle::Logits &logits = s.logits();
  auto bad = [&](const std::string &what) {
    return userError(bundle_.directory + "/summary.pb: the function of the logits " + what +
                     "; compile the model again");
  };
  if (logits.function() >= uint32_t(bundle_.functions.functions_size()) ||
      logits.unit() >= uint32_t(s.units_size()))
    return bad("does not exist");
  const bundle::CompiledFunction &forward =
                                     bundle_.functions.functions(int(forwardFunction(bundle_))),
                                 &function = logitsFunction(bundle_);
  bool position = false, result = false;
  for (const bundle::FunctionArgument &argument : function.arguments()) {
    if (argument.bytes().fixed() < 0 || argument.bytes().per_row() < 0 ||
        uint64_t(argument.bytes().fixed()) > kMaxBytes ||
        uint64_t(argument.bytes().per_row()) > kMaxBytes)
      return bad("has an argument of an impossible size");
    if (isPosition(bundle_, argument)) {
      position = argument.type() == bundle::I64 && bytesOfRow(argument) >= 8;
    } else if (argument.kind() == bundle::BOUNDARY_OUT) {
      result = logits.vocabulary() > 0 && uint64_t(logits.vocabulary()) <= kMaxBytes &&
               argument.type() == logits.type() &&
               bytesOfRow(argument) >=
                   uint64_t(logits.vocabulary()) * elementBytes(logits.type()) &&
               elementBytes(logits.type()) > 0;
    } else if (argument.kind() != bundle::WORKSPACE) {
      int found = same(forward, argument);
      if (found < 0 || bytesOfRow(forward.arguments(found)) < bytesOfRow(argument) ||
          (argument.kind() != bundle::PARAMETER && argument.kind() != bundle::INPUT &&
           argument.kind() != bundle::BOUNDARY_IN && argument.kind() != bundle::SCALARS))
        return bad("reads what the unit's forward does not have");
    }
  }
  return position && result ? Status::success() : Status(bad("has no position or no result"));
}

Result<std::unique_ptr<TextGenerator>> TextGenerator::create(const Bundle &bundle, DataSource &data,
                                                             GenerationOptions options) {
  std::unique_ptr<TextGenerator> generator(new TextGenerator(bundle, std::move(options)));
  if (Status status = generator->check(); status.failed())
    return status;
  Result<std::shared_ptr<const Batch>> batch = data.batchFrom(0);
  if (batch.failed())
    return batch.error();
  generator->first_ = *batch;
  int ids = -1;
  for (int i = 0; i < bundle.summary.inputs_size() && ids < 0; ++i)
    if (inputRole(bundle.summary.inputs(i)) == "ids")
      ids = i;
  if (ids < 0)
    return userError(bundle.directory +
                     ": no input of the model takes token ids; leave out --generate-interval");
  const bundle::GraphInput &input = bundle.summary.inputs(ids);
  generator->length_ = input.bytes_per_row() / int64_t(elementBytes(input.type()));
  std::vector<int64_t> &prompt = generator->options_.prompt;
  if (prompt.empty()) {
    prompt.resize(size_t(std::max<int64_t>(1, std::min<int64_t>(8, generator->length_ / 2))));
    convertElements(generator->first_->inputs[size_t(ids)].data(), storedType(input.type()),
                    prompt.data(), StoredType::I64, int64_t(prompt.size()));
  }
  if (int64_t(prompt.size()) >= generator->length_)
    return userError("--prompt: expected fewer tokens than the " +
                     std::to_string(generator->length_) + " positions of the model, got " +
                     std::to_string(prompt.size()));
  for (int64_t id : prompt)
    if (id < 0 || (input.upper_bound() > 0 && id >= input.upper_bound()))
      return userError("--prompt: expected ids from 0 to " +
                       std::to_string(input.upper_bound() - 1) + ", got " + std::to_string(id));
  return generator;
}

bool TextGenerator::observes(const bundle::Instruction &instruction, bool evaluation) const {
  if (!evaluation || !instruction.has_compute() || instruction.phase() != bundle::FORWARD)
    return false;
  const auto &calls = instruction.compute().calls();
  return std::any_of(calls.begin(), calls.end(), [&](const bundle::Call &call) {
    return call.unit() == int32_t(bundle_.summary.logits().unit()) && call.sample_base() == 0 &&
           call.function() == forwardFunction(bundle_);
  });
}

void TextGenerator::observe(const ObservedCall &call) {
  if (!call.evaluation || call.call.unit() != int32_t(bundle_.summary.logits().unit()) ||
      call.call.sample_base() != 0 || call.call.function() != forwardFunction(bundle_))
    return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!position_)
    return; // an evaluation for another purpose
  Status status = run(call);
  if (status.failed())
    trouble_ = status;
}

Status TextGenerator::run(const ObservedCall &call) {
  const bundle::CompiledFunction &function = logitsFunction(bundle_);
  if (!memory_) {
    size_t bytes = 0;
    for (const bundle::FunctionArgument &argument : function.arguments()) {
      places_.push_back(bytes);
      if (isOwn(bundle_, argument))
        bytes += (bytesOfRow(argument) + 511) / 512 * 512;
    }
    Result<std::unique_ptr<DeviceMemory>> memory = call.memory.allocate(bundle::DEVICE, bytes, {});
    if (memory.failed())
      return memory.error();
    memory_ = std::move(*memory);
  }
  std::vector<DeviceAddress> addresses;
  DeviceAddress result;
  for (int i = 0; i < function.arguments_size(); ++i) {
    const bundle::FunctionArgument &argument = function.arguments(i);
    addresses.push_back(isOwn(bundle_, argument) ? memory_->base() + places_[size_t(i)]
                                                 : call.addresses[same(call.function, argument)]);
    if (isPosition(bundle_, argument))
      if (Status status = call.memory.write(addresses.back(), &*position_, sizeof *position_);
          status.failed())
        return status;
    if (argument.kind() == bundle::BOUNDARY_OUT)
      result = addresses.back();
  }
  std::vector<uint8_t> overwrite(addresses.size(), 1);
  FunctionArguments arguments;
  arguments.rows = 1;
  arguments.rngIdBase = call.call.rng_id_base();
  arguments.addresses = addresses.data();
  arguments.overwrite = overwrite.data();
  if (Status status = call.memory.runFunction(bundle_.summary.logits().function(), arguments);
      status.failed())
    return status;
  const StoredType type = storedType(bundle_.summary.logits().type());
  logits_.resize(size_t(bundle_.summary.logits().vocabulary()));
  std::vector<std::byte> stored(logits_.size() * bytesOf(type));
  if (Status status = call.memory.read(stored.data(), result, stored.size()); status.failed())
    return status;
  convertElements(stored.data(), type, logits_.data(), StoredType::F64, int64_t(logits_.size()));
  return Status::success();
}

std::shared_ptr<const Batch> TextGenerator::ask(const std::vector<int64_t> &ids) {
  auto batch = std::make_shared<Batch>(*first_);
  for (int i = 0; i < bundle_.summary.inputs_size(); ++i) {
    const bundle::GraphInput &input = bundle_.summary.inputs(i);
    if (inputRole(input) != "ids")
      continue;
    const auto count = std::min<int64_t>(
        int64_t(ids.size()), input.bytes_per_row() / int64_t(elementBytes(input.type())));
    convertElements(ids.data(), StoredType::I64, batch->inputs[size_t(i)].data(),
                    storedType(input.type()), count);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  position_ = int64_t(ids.size()) - 1;
  logits_.clear();
  return batch;
}

Result<std::optional<int64_t>> TextGenerator::answer(uint64_t step, size_t drawn) {
  std::lock_guard<std::mutex> lock(mutex_);
  position_.reset();
  if (trouble_)
    return *trouble_;
  if (logits_.empty())
    return std::optional<int64_t>();
  const auto max =
      std::max_element(logits_.begin(), logits_.end(), [](double a, double b) { return a < b; });
  if (options_.temperature == 0 || !std::isfinite(*max))
    return std::optional<int64_t>(max - logits_.begin());
  double sum = 0;
  std::vector<double> up;
  for (double logit : logits_)
    up.push_back(sum += std::isfinite(logit) ? std::exp((logit - *max) / options_.temperature) : 0);
  const uint64_t random = abi::mix64(abi::randomStream(options_.seed, step, drawn, 0));
  const double at = double(random >> 11) * 0x1p-53 * sum;
  auto found = std::upper_bound(up.begin(), up.end(), at);
  return std::optional<int64_t>(std::min<int64_t>(found - up.begin(), int64_t(up.size()) - 1));
}

Result<int64_t> zorse::runtime::agreeOnToken(ProcessGroup &group, const std::string &name,
                                             const std::optional<int64_t> &mine) {
  Result<std::vector<std::string>> all =
      group.allGatherBytes(name, mine ? std::to_string(*mine) : "");
  if (all.failed())
    return all.error();
  for (const std::string &text : *all)
    if (!text.empty())
      return int64_t(std::strtoll(text.c_str(), nullptr, 10));
  return internalError("no rank has computed the logits of " + name);
}
