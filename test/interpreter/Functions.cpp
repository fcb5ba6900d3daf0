#include "Functions.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <optional>

using namespace zorse;
using namespace zorse::interpret;

uint64_t interpret::initialWord(int kind, uint32_t group, uint32_t moment, int64_t element) {
  return kind == bundle::Value::PARAMETERS ? mix(1, group, moment, uint64_t(element)) : 0;
}
uint64_t interpret::inputWord(uint32_t input, int64_t sample, size_t word, int step) {
  return mix(2, input, uint64_t(sample), word, uint64_t(step));
}
uint64_t interpret::scalarWord(size_t word, int step) { return mix(3, word, uint64_t(step)); }

Role interpret::roleOf(const bundle::ModelSummary &summary, uint32_t function) {
  for (const bundle::UpdateRule &rule : summary.update_rules())
    if (function == rule.function())
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
      if (const Function *function = findFunction(classOf(summary, unit), task);
          unit.loss_terms_size() && function && function->function() == body)
        return true;
  return false;
}

int64_t interpret::argumentBytes(const bundle::FunctionArgument &argument, int64_t rows) {
  __int128 bytes = __int128(argument.bytes().per_row()) * rows + argument.bytes().fixed();
  return bytes < 0 || bytes > (1 << 30) ? -1 : int64_t(bytes);
}

static uint64_t hashWords(uint64_t seed, const Words &words, size_t begin, size_t end) {
  for (size_t i = begin; i < end && i < words.size(); ++i)
    seed = mix(seed, words[i]);
  return seed;
}

/// The function that recomputes a unit's saved block, and the forward that made the block.
struct Repeated {
  const bundle::CompiledFunction *function;
  uint32_t forward;
};

/// Finds the unit of a function that is its forward or its recomputation.
static std::optional<Repeated> repeatedOf(const bundle::ModelSummary &summary,
                                          const bundle::FunctionLibrary &functions,
                                          uint32_t index) {
  for (const auto &unit : summary.units()) {
    const auto *repeats = findFunction(classOf(summary, unit), bundle::UnitFunction::RECOMPUTE);
    const uint32_t forward = functionOf(summary, unit, bundle::UnitFunction::FORWARD).function();
    if (repeats && (index == forward || index == repeats->function()) &&
        repeats->function() < uint32_t(functions.functions_size()))
      return Repeated{&functions.functions(int(repeats->function())), forward};
  }
  return std::nullopt;
}

/// \param saves  the function that recomputes the saved block, which then depends only on the
/// arguments of this function; null: it depends on all arguments
static void unit(const bundle::CompiledFunction &function, const bundle::CompiledFunction *saves,
                 bool seeds, uint32_t index, int64_t rows, int64_t sampleBase, uint64_t rngIdBase,
                 std::vector<Words> &arguments, const std::vector<bool> &overwrite) {
  uint64_t common = mix(10, index, rngIdBase), forSaved = common;
  std::vector<size_t> perRow(arguments.size());
  auto isForSaved = [&](const bundle::FunctionArgument &argument) {
    return !saves || std::any_of(saves->arguments().begin(), saves->arguments().end(),
                                 [&](const bundle::FunctionArgument &other) {
                                   return other.kind() == argument.kind() &&
                                          other.index() == argument.index();
                                 });
  };
  for (int s = 0; s < function.arguments_size(); ++s) {
    const auto &argument = function.arguments(s);
    perRow[s] = size_t(argument.bytes().per_row()) / 4;
    for (uint64_t *hash : {&common, &forSaved}) {
      if (hash == &forSaved && !isForSaved(argument))
        continue;
      if (argument.kind() == bundle::PARAMETER)
        *hash = hashWords(*hash, arguments[s], 0, arguments[s].size());
      if (argument.kind() == bundle::SCALARS)
        *hash = hashWords(hashWords(*hash, arguments[s], 0, kDecidedBegin), arguments[s],
                          kSeedsBegin, seeds ? kScalarWords : kSeedsBegin);
    }
    if (argument.kind() == bundle::PARAMETER_GRADIENT && overwrite[s])
      arguments[s].assign(arguments[s].size(), 0);
  }
  for (int64_t r = 0; r < rows; ++r) {
    uint64_t row = mix(common, uint64_t(sampleBase + r)),
             savedRow = mix(forSaved, uint64_t(sampleBase + r));
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).mode() == bundle::READ && perRow[s]) {
        row = hashWords(row, arguments[s], size_t(r) * perRow[s], size_t(r + 1) * perRow[s]);
        if (isForSaved(function.arguments(s)))
          savedRow =
              hashWords(savedRow, arguments[s], size_t(r) * perRow[s], size_t(r + 1) * perRow[s]);
      }
    for (int s = 0; s < function.arguments_size(); ++s) {
      const auto &argument = function.arguments(s);
      if (argument.mode() == bundle::READ || argument.kind() == bundle::WORKSPACE ||
          argument.kind() == bundle::SCALARS)
        continue;
      uint64_t name = mix(argument.kind() == bundle::SAVED ? savedRow : row,
                          uint64_t(argument.kind()), argument.index());
      if (argument.kind() == bundle::PARAMETER_GRADIENT) {
        for (size_t j = 0; j < arguments[s].size(); ++j)
          arguments[s][j] += mix(name, j);
        continue;
      }
      bool adds = argument.mode() == bundle::ACCUMULATE && !overwrite[s];
      for (size_t j = 0; j < perRow[s]; ++j) {
        uint64_t &word = arguments[s][size_t(r) * perRow[s] + j];
        word = (adds ? word : 0) + mix(name, j);
      }
    }
  }
}

void interpret::execute(const bundle::ModelSummary &summary,
                        const bundle::FunctionLibrary &functions, uint32_t index, int64_t rows,
                        int64_t sampleBase, uint64_t rngIdBase, std::vector<Words> &arguments,
                        const std::vector<bool> &overwrite) {
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
    return unit(function, repeated ? repeated->function : nullptr, readsSeeds(summary, index),
                repeated ? repeated->forward : index, rows, sampleBase, rngIdBase, arguments,
                overwrite);
  }
  case Role::Update: {
    int scalars = find(bundle::SCALARS, 0), step = find(bundle::OPTIMIZER_STEP, 0);
    uint64_t common = scalars >= 0 ? hashWords(mix(20, index), arguments[scalars], 0, kSeedsBegin)
                                   : mix(20, index);
    if (step >= 0)
      common = hashWords(common, arguments[step], 0, 2);
    std::vector<int> states;
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).kind() == bundle::STATE)
        states.push_back(s);
    // The rows of a call are elements or whole blocks: each number depends on all of its row.
    for (int64_t row = 0; row < rows; ++row) {
      uint64_t all = common;
      auto forRow = [&](auto visit) {
        for (int s : states) {
          const size_t width = arguments[s].size() / size_t(rows);
          for (size_t e = 0; e < width; ++e)
            visit(s, arguments[s][size_t(row) * width + e], e);
        }
      };
      forRow([&](int, uint64_t word, size_t) { all = mix(all, word); });
      forRow([&](int s, auto &word, size_t e) {
        if (function.arguments(s).mode() != bundle::READ)
          word = mix(all, function.arguments(s).index(), e);
      });
    }
    return;
  }
  case Role::Norm: {
    int gradients = find(bundle::STATE, 1), sums = find(bundle::LOCAL_METRICS, 0);
    for (size_t w = 0; w < kNormWords; ++w) {
      uint64_t total = overwrite[sums] ? 0 : arguments[sums][w];
      for (uint64_t word : arguments[gradients])
        total += mix(30, w, word);
      arguments[sums][w] = total;
    }
    return;
  }
  case Role::SumLoss: {
    int sums = find(bundle::LOCAL_METRICS, 0);
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).kind() == bundle::LOSS)
        for (size_t w = 0; w < 2; ++w) {
          uint64_t &word = arguments[sums][kNormWords + 2 * function.arguments(s).index() + w];
          word = overwrite[sums] ? 0 : word;
          for (uint64_t loss : arguments[s])
            word += mix(40, w, loss);
        }
    return;
  }
  case Role::Decide: {
    int sums = find(bundle::LOCAL_METRICS, 0), scalars = find(bundle::SCALARS, 0),
        step = find(bundle::OPTIMIZER_STEP, 0);
    uint64_t all = hashWords(mix(50), arguments[sums], 0, kSumWords);
    all = hashWords(all, arguments[scalars], 0, kDecidedBegin);
    if (step >= 0)
      all = hashWords(all, arguments[step], 2, arguments[step].size());
    for (size_t w = kDecidedBegin; w < kDecidedEnd; ++w)
      arguments[scalars][w] = mix(all, w);
    if (step >= 0)
      for (size_t w = 0; w < arguments[step].size(); ++w)
        arguments[step][w] = w < 2 ? arguments[step][w] + 1 : mix(all, 51, w);
    return;
  }
  case Role::ScaleSeeds: {
    int scalars = find(bundle::SCALARS, 0), step = find(bundle::OPTIMIZER_STEP, 0);
    uint64_t scale = hashWords(mix(60), arguments[step], 2, 4);
    for (size_t w = kSeedsBegin; w < kScalarWords; ++w)
      arguments[scalars][w] = mix(scale, arguments[scalars][w]);
    return;
  }
  }
}
