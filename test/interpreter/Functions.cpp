#include "Functions.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <optional>

using namespace zorse;
using namespace zorse::interpret;

uint64_t interpret::initialWord(int kind, uint32_t group, uint32_t moment, int64_t element) {
  return kind == bundle::Value::PARAMETERS ? mix(1, group, moment, uint64_t(element)) : 0;
}
uint64_t interpret::inputWord(uint32_t input, int64_t sample, size_t word, int step) { return mix(2, input, uint64_t(sample), word, uint64_t(step)); }
uint64_t interpret::scalarWord(size_t word, int step) { return mix(3, word, uint64_t(step)); }

Role interpret::roleOf(const bundle::ModelSummary &summary, uint32_t function) {
  if (function == summary.update_function_decay() || function == summary.update_function_plain())
    return Role::Update;
  if (function == summary.norm_function())
    return Role::Norm;
  if (function == summary.sum_loss_function())
    return Role::SumLoss;
  if (summary.training().loss_scale() != 0 && function == summary.scale_loss_gradient_function())
    return Role::ScaleSeeds;
  return function == summary.clip_and_check_function() ? Role::Decide : Role::Unit;
}

bool interpret::readsSeeds(const bundle::ModelSummary &summary, uint32_t body) {
  using Function = bundle::UnitFunction;
  for (const auto &unit : summary.units())
    for (auto task : {Function::BACKWARD, Function::INPUT_GRADIENTS, Function::WEIGHT_GRADIENTS})
      if (const Function *function = findFunction(classOf(summary, unit), task); unit.loss_terms_size() && function && function->function() == body)
        return true;
  return false;
}

int64_t interpret::slotBytes(const bundle::FunctionArgument &slot, int64_t rows) {
  __int128 bytes = __int128(slot.bytes().per_row()) * rows + slot.bytes().fixed();
  return bytes < 0 || bytes > (1 << 30) ? -1 : int64_t(bytes);
}

static uint64_t hashWords(uint64_t seed, const Words &words, size_t begin, size_t end) {
  for (size_t i = begin; i < end && i < words.size(); ++i)
    seed = mix(seed, words[i]);
  return seed;
}

/// The body that recomputes a unit's saved block, and the forward that made the block.
struct Repeated {
  const bundle::CompiledFunction *function;
  uint32_t forward;
};

/// Finds the unit of a body that is its forward or its recomputation.
static std::optional<Repeated> repeatedOf(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions, uint32_t index) {
  for (const auto &unit : summary.units()) {
    const auto *repeats = findFunction(classOf(summary, unit), bundle::UnitFunction::RECOMPUTE);
    const uint32_t forward = functionOf(summary, unit, bundle::UnitFunction::FORWARD).function();
    if (repeats && (index == forward || index == repeats->function()) && repeats->function() < uint32_t(functions.functions_size()))
      return Repeated{&functions.functions(int(repeats->function())), forward};
  }
  return std::nullopt;
}

/// \param saves  the body that recomputes the saved block, which then depends only on the slots of this body; null: it
/// depends on all slots
static void unit(const bundle::CompiledFunction &function, const bundle::CompiledFunction *saves, bool seeds, uint32_t index, int64_t rows,
                 int64_t sampleBase, uint64_t instanceBase, std::vector<Words> &slots, const std::vector<bool> &overwrite) {
  uint64_t common = mix(10, index, instanceBase), forSaved = common;
  std::vector<size_t> perRow(slots.size());
  auto isForSaved = [&](const bundle::FunctionArgument &slot) {
    return !saves || std::any_of(saves->arguments().begin(), saves->arguments().end(),
                                 [&](const bundle::FunctionArgument &other) { return other.kind() == slot.kind() && other.index() == slot.index(); });
  };
  for (int s = 0; s < function.arguments_size(); ++s) {
    const auto &slot = function.arguments(s);
    perRow[s] = size_t(slot.bytes().per_row()) / 4;
    for (uint64_t *hash : {&common, &forSaved}) {
      if (hash == &forSaved && !isForSaved(slot))
        continue;
      if (slot.kind() == bundle::PARAMETER)
        *hash = hashWords(*hash, slots[s], 0, slots[s].size());
      if (slot.kind() == bundle::SCALARS)
        *hash = hashWords(hashWords(*hash, slots[s], 0, kDecidedBegin), slots[s], kSeedsBegin, seeds ? kScalarWords : kSeedsBegin);
    }
    if (slot.kind() == bundle::PARAMETER_GRADIENT && overwrite[s])
      slots[s].assign(slots[s].size(), 0);
  }
  for (int64_t r = 0; r < rows; ++r) {
    uint64_t row = mix(common, uint64_t(sampleBase + r)), savedRow = mix(forSaved, uint64_t(sampleBase + r));
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).mode() == bundle::READ && perRow[s]) {
        row = hashWords(row, slots[s], size_t(r) * perRow[s], size_t(r + 1) * perRow[s]);
        if (isForSaved(function.arguments(s)))
          savedRow = hashWords(savedRow, slots[s], size_t(r) * perRow[s], size_t(r + 1) * perRow[s]);
      }
    for (int s = 0; s < function.arguments_size(); ++s) {
      const auto &slot = function.arguments(s);
      if (slot.mode() == bundle::READ || slot.kind() == bundle::WORKSPACE || slot.kind() == bundle::SCALARS)
        continue;
      uint64_t name = mix(slot.kind() == bundle::SAVED ? savedRow : row, uint64_t(slot.kind()), slot.index());
      if (slot.kind() == bundle::PARAMETER_GRADIENT) {
        for (size_t j = 0; j < slots[s].size(); ++j)
          slots[s][j] += mix(name, j);
        continue;
      }
      bool adds = slot.mode() == bundle::ACCUMULATE && !overwrite[s];
      for (size_t j = 0; j < perRow[s]; ++j) {
        uint64_t &word = slots[s][size_t(r) * perRow[s] + j];
        word = (adds ? word : 0) + mix(name, j);
      }
    }
  }
}

void interpret::execute(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions, uint32_t index, int64_t rows,
                        int64_t sampleBase, uint64_t instanceBase, std::vector<Words> &slots, const std::vector<bool> &overwrite) {
  const auto &function = functions.functions(int(index));
  auto find = [&](bundle::ArgumentKind kind, uint32_t i) -> int {
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).kind() == kind && function.arguments(s).index() == i)
        return s;
    return -1;
  };
  switch (roleOf(summary, index)) {
  case Role::Unit: {
    const std::optional<Repeated> repeated = repeatedOf(summary, functions, index);
    return unit(function, repeated ? repeated->function : nullptr, readsSeeds(summary, index), repeated ? repeated->forward : index, rows, sampleBase,
                instanceBase, slots, overwrite);
  }
  case Role::Update: {
    int scalars = find(bundle::SCALARS, 0), step = find(bundle::OPTIMIZER_STEP, 0);
    uint64_t common = scalars >= 0 ? hashWords(mix(20, index), slots[scalars], 0, kSeedsBegin) : mix(20, index);
    if (step >= 0)
      common = hashWords(common, slots[step], 0, 2);
    std::vector<int> states;
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).kind() == bundle::STATE)
        states.push_back(s);
    for (size_t e = 0; !states.empty() && e < slots[states[0]].size(); ++e) {
      uint64_t all = common;
      for (int s : states)
        all = mix(all, slots[s][e]);
      for (int s : states)
        if (function.arguments(s).mode() != bundle::READ)
          slots[s][e] = mix(all, function.arguments(s).index());
    }
    return;
  }
  case Role::Norm: {
    int gradients = find(bundle::STATE, 1), sums = find(bundle::LOCAL_METRICS, 0);
    for (size_t w = 0; w < kNormWords; ++w) {
      uint64_t total = overwrite[sums] ? 0 : slots[sums][w];
      for (uint64_t word : slots[gradients])
        total += mix(30, w, word);
      slots[sums][w] = total;
    }
    return;
  }
  case Role::SumLoss: {
    int sums = find(bundle::LOCAL_METRICS, 0);
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).kind() == bundle::LOSS)
        for (size_t w = 0; w < 2; ++w) {
          uint64_t &word = slots[sums][kNormWords + 2 * function.arguments(s).index() + w];
          word = overwrite[sums] ? 0 : word;
          for (uint64_t loss : slots[s])
            word += mix(40, w, loss);
        }
    return;
  }
  case Role::Decide: {
    int sums = find(bundle::LOCAL_METRICS, 0), scalars = find(bundle::SCALARS, 0), step = find(bundle::OPTIMIZER_STEP, 0);
    uint64_t all = hashWords(mix(50), slots[sums], 0, kSumWords);
    all = hashWords(all, slots[scalars], 0, kDecidedBegin);
    if (step >= 0)
      all = hashWords(all, slots[step], 2, slots[step].size());
    for (size_t w = kDecidedBegin; w < kDecidedEnd; ++w)
      slots[scalars][w] = mix(all, w);
    if (step >= 0)
      for (size_t w = 0; w < slots[step].size(); ++w)
        slots[step][w] = w < 2 ? slots[step][w] + 1 : mix(all, 51, w);
    return;
  }
  case Role::ScaleSeeds: {
    int scalars = find(bundle::SCALARS, 0), step = find(bundle::OPTIMIZER_STEP, 0);
    uint64_t scale = hashWords(mix(60), slots[step], 2, 4);
    for (size_t w = kSeedsBegin; w < kScalarWords; ++w)
      slots[scalars][w] = mix(scale, slots[scalars][w]);
    return;
  }
  }
}
