#include "Routines.h"

#include "CodegenHarness.h"
#include "TensorBytes.h"

#include "zorse/runtime/abi/StepScalars.h"

#include <cmath>
#include <limits>

using namespace zorse;
using namespace zorse::conformance;
using abi::OptimizerStep, abi::StepScalars;

namespace {

constexpr int64_t kInterval = 3; ///< number of good steps after which the scale is doubled

bool equal(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

struct Routines {
  Sizes &sizes;
  Machine &machine;
  const codegen::CompiledFunctions &compiled;
  bool scales;
  int64_t rows;
  Outcome outcome;
  std::vector<test::Buffer> buffers;
  std::vector<double> sums = std::vector<double>(16);
  StepScalars scalars{};
  OptimizerStep state{};

  template <typename T>
  T *at(const bundle::CompiledFunction &function, bundle::ArgumentKind kind, uint32_t index = 0) {
    for (int s = 0; s < function.arguments_size(); ++s)
      if (function.arguments(s).kind() == kind && function.arguments(s).index() == index)
        return reinterpret_cast<T *>(buffers[size_t(s)].data.get());
    return nullptr;
  }

  /// Replaces a tenth of the values by non-finite ones.
  double special(double value) {
    const double odd[] = {std::numeric_limits<double>::infinity(),
                          std::numeric_limits<double>::quiet_NaN()};
    return sizes.below(10) == 0 ? odd[sizes.below(2)] : value;
  }
  double number() { return std::normal_distribution<double>()(sizes.random); }

  void prepare(const bundle::CompiledFunction &function) {
    buffers.clear();
    for (const bundle::FunctionArgument &argument : function.arguments())
      buffers.emplace_back(size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows));
    for (double &sum : sums)
      sum = number();
    sums[0] = special(std::fabs(sums[0]) * std::ldexp(1.0, int(sizes.below(60)) - 20));
    sums[1] = double(sizes.below(4) == 0);
    sums[2] = special(sums[2]);
    scalars.clipNorm = sizes.below(2) ? 0.5 : 0;
    scalars.skipNonFinite = uint64_t(sizes.below(2));
    for (double &seed : scalars.lossGradient)
      seed = number();
    if (sizes.below(4) == 0)
      scalars.lossGradient[sizes.below(16)] = special(std::numeric_limits<double>::infinity());
    state = {double(sizes.below(100)), std::ldexp(1.0, int(sizes.below(3) * 8)),
             double(sizes.below(kInterval)), double(sizes.below(5))};
    const size_t stateBytes = scales ? sizeof state : sizeof state.updates;
    if (char *to = at<char>(function, bundle::LOCAL_METRICS))
      std::memcpy(to, sums.data(), sums.size() * sizeof(double));
    if (char *to = at<char>(function, bundle::SCALARS))
      std::memcpy(to, &scalars, offsetof(StepScalars, sums));
    if (char *to = at<char>(function, bundle::OPTIMIZER_STEP))
      std::memcpy(to, &state, stateBytes);
  }

  bool run(int function) {
    Machine::Call call{rows, 0, 0, {}, std::vector<uint8_t>(buffers.size(), 0)};
    for (test::Buffer &buffer : buffers)
      call.arguments.push_back(buffer.data.get());
    outcome.kernels += compiled.library.functions(function).launches_size();
    outcome.problem = machine.run(function, call);
    return outcome.problem.empty();
  }

  /// \param band  maximum difference; 0: equal bits
  void expect(const std::string &what, double got, double want, double band = 0) {
    if (equal(got, want) || std::fabs(got - want) <= band) {
      outcome.worst =
          std::max(outcome.worst, equal(got, want) || band == 0 ? 0 : std::fabs(got - want) / band);
      return;
    }
    if (outcome.problem.empty())
      outcome.problem = what + ": expected " + std::to_string(want) + ", got " +
                        std::to_string(got) + ", band " + std::to_string(band);
  }

  /// Squares of f32 numbers are exact in f64. A sum of n squares, in any order, has a relative
  /// error of at most n 2^-53.
  void norm(int index, const bundle::CompiledFunction &function) {
    auto *x = at<float>(function, bundle::STATE, 1);
    double squares = 0, bad = 0;
    const bool odd = sizes.index % 4 == 3;
    for (int64_t i = 0; i < rows; ++i) {
      x[i] = float(odd && (i == 0 || i == rows - 1) ? special(1e30) : number());
      squares += double(x[i]) * double(x[i]);
      bad += !std::isfinite(x[i]);
    }
    if (!run(index))
      return;
    const auto *got = at<double>(function, bundle::LOCAL_METRICS);
    expect("squares", got[0], sums[0] + squares,
           double(rows + 2) * 0x1p-53 * (std::fabs(sums[0]) + squares));
    expect("elements that are not finite", got[1], sums[1] + bad);
    for (size_t i = 2; i < sums.size(); ++i)
      expect("another sum", got[i], sums[i]);
  }

  /// Terms are added in their order, so the bits are equal.
  template <typename T> void rankedSum(int index, const bundle::CompiledFunction &function) {
    const uint32_t terms = uint32_t(function.arguments_size()) - 1;
    std::vector<T> want(static_cast<size_t>(rows));
    for (uint32_t term = 0; term < terms; ++term)
      for (int64_t i = 0; i < rows; ++i) {
        const T value = T(std::ldexp(number(), int(sizes.below(40)) - 20));
        at<T>(function, bundle::CONTRIBUTION, term)[i] = value;
        want[size_t(i)] = term == 0 ? value : want[size_t(i)] + value;
      }
    if (!run(index))
      return;
    for (int64_t i = 0; i < rows; ++i)
      expect("sum", double(at<T>(function, bundle::SUM)[i]), double(want[size_t(i)]));
  }

  void sumLoss(int index, const bundle::CompiledFunction &function) {
    std::vector<double> want = sums;
    for (uint32_t term = 0; auto *x = at<float>(function, bundle::LOSS, term); ++term) {
      double sum = 0; // in the order of the rows
      for (int64_t i = 0; i < rows; ++i) {
        x[i] = float(number());
        sum += double(x[i]);
      }
      want[2 + term] += sum;
    }
    if (!run(index))
      return;
    for (size_t i = 0; i < want.size(); ++i)
      expect("sum " + std::to_string(i), at<double>(function, bundle::LOCAL_METRICS)[i], want[i]);
  }

  /// Adds bf16 terms in f32, in their order; the first one may be an f32 sum.
  void sumOfRounded(int index, const bundle::CompiledFunction &function, mlir::Type bf16) {
    const uint32_t terms = uint32_t(function.arguments_size()) - 1;
    std::vector<float> want(static_cast<size_t>(rows));
    for (uint32_t term = 0; term < terms; ++term)
      for (int64_t i = 0; i < rows; ++i) {
        float value = float(std::ldexp(number(), int(sizes.below(40)) - 20));
        if (function.arguments(int(term)).bytes().per_row() == sizeof value) {
          at<float>(function, bundle::CONTRIBUTION, term)[i] = value;
        } else {
          const uint16_t rounded = test::halfOf(double(value), bf16);
          at<uint16_t>(function, bundle::CONTRIBUTION, term)[i] = rounded;
          value = float(test::numberOf(rounded, bf16));
        }
        want[size_t(i)] = term == 0 ? value : want[size_t(i)] + value;
      }
    if (!run(index))
      return;
    for (int64_t i = 0; i < rows; ++i)
      expect("sum", double(at<float>(function, bundle::SUM)[i]), double(want[size_t(i)]));
  }

  /// \param from, to  kinds of the f32 and of the rounded argument
  void cast(int index, const bundle::CompiledFunction &function, mlir::Type half,
            bundle::ArgumentKind from, bundle::ArgumentKind to) {
    auto *x = at<float>(function, from);
    for (int64_t i = 0; i < rows; ++i)
      x[i] = float(special(std::ldexp(number(), int(sizes.below(60)) - 30)));
    if (!run(index))
      return;
    for (int64_t i = 0; i < rows; ++i)
      expect("copy " + std::to_string(i), test::numberOf(at<uint16_t>(function, to)[i], half),
             test::numberOf(test::halfOf(double(x[i]), half), half));
  }

  void scaleSeeds(int index, const bundle::CompiledFunction &function) {
    if (!run(index))
      return;
    for (size_t i = 0; i < std::size(scalars.lossGradient); ++i)
      expect("seed", at<StepScalars>(function, bundle::SCALARS)->lossGradient[i],
             scalars.lossGradient[i] * state.lossScale);
  }

  /// docs/concepts/precision.md, "Loss scaling", and torch.nn.utils.clip_grad_norm_.
  void decide(int index, const bundle::CompiledFunction &function) {
    const double scale = scales ? state.lossScale : 1, norm = std::sqrt(sums[0]) / scale,
                 ratio = scalars.clipNorm / (norm + 1e-6);
    bool finite = sums[1] == 0 && std::isfinite(norm);
    for (size_t i = 2; i < sums.size(); ++i)
      finite &= std::isfinite(sums[i]);
    bool seeds = true;
    for (double seed : scalars.lossGradient)
      seeds &= std::isfinite(seed);
    const bool skip = !seeds || (scalars.skipNonFinite && !finite);
    const double factor = 1 / scale * (scalars.clipNorm > 0 ? ratio > 1 ? 1 : ratio : 1);
    OptimizerStep next = state;
    next.updates += skip ? 0 : 1;
    if (scales && seeds) {
      const bool grows = finite && state.goodSteps + 1 >= kInterval;
      next.lossScale = finite ? (grows ? 2 * scale : scale) : std::max(1.0, scale / 2);
      next.goodSteps = finite && !grows ? state.goodSteps + 1 : 0;
      next.overflows += !finite;
    }
    if (!run(index))
      return;
    const auto &got = at<StepScalars>(function, bundle::SCALARS)->decided;
    expect("clip factor", got.clipFactor, factor, 0x1p-51 * std::fabs(factor));
    expect("gradient norm", got.gradientNorm, norm, 0x1p-51 * norm);
    expect("skip", double(got.skip), skip);
    expect("loss scale", got.lossScale, scales ? scale : 0);
    const auto *after = at<OptimizerStep>(function, bundle::OPTIMIZER_STEP);
    expect("updates", after->updates, next.updates);
    if (!scales)
      return;
    expect("next scale", after->lossScale, next.lossScale);
    expect("good steps", after->goodSteps, next.goodSteps);
    expect("overflows", after->overflows, next.overflows);
  }
};

} // namespace

Outcome conformance::runRoutines(Sizes &sizes, const std::string &type, Machine &machine) {
  auto context = test::makeContext();
  auto module = test::parse(*context, "module {}", type);
  bundle::ModelSummary summary;
  summary.set_compute_type(type == "bf16"  ? bundle::BF16
                           : type == "f16" ? bundle::F16
                                           : bundle::F32);
  for (int term = 0; term <= sizes.index % abi::kMaxLossTerms; ++term)
    summary.add_loss();
  if (type != "f32")
    summary.add_groups()->set_param_dtype(summary.compute_type());
  const bool scales = type == "f16";
  if (scales) {
    summary.mutable_training()->set_loss_scale(1024);
    summary.mutable_training()->set_loss_scale_interval(kInterval);
  }
  auto compile = [&](const std::string &arch) -> std::optional<codegen::CompiledFunctions> {
    codegen::CodegenOptions options;
    options.useCache = false;
    options.threads = 1;
    options.arch = arch;
    auto compiled = codegen::lowerFunctions(*module, options);
    if (mlir::failed(compiled))
      return std::nullopt;
    codegen::appendBuiltinFunctions(module->getContext(), *compiled, summary,
                                    2 + uint32_t(sizes.index) % 3);
    if (mlir::failed(codegen::compileKernels(*compiled, module->getLoc())))
      return std::nullopt;
    return {std::move(compiled)};
  };
  Outcome failed;
  auto compiled = compileAndLoad(machine, failed.problem, compile);
  if (!compiled)
    return failed;
  // No elements; enough for several blocks; few.
  const int64_t elements = sizes.index % 8 == 7 ? 0
                           : sizes.index % 8 == 4
                               ? 20000 + sizes.index
                               : sizes.columns() * (sizes.index % 3 == 1 ? 3 : 1);
  Routines all{sizes, machine, *compiled, scales, elements, {}, {}};
  const mlir::Type bf16 = mlir::BFloat16Type::get(context.get()),
                   half = type == "bf16" ? bf16 : mlir::Float16Type::get(context.get());
  for (int i = 0; i < compiled->library.functions_size() && all.outcome.problem.empty(); ++i) {
    const bundle::CompiledFunction &function = compiled->library.functions(i);
    all.prepare(function);
    if (function.name() == "norm")
      all.norm(i, function);
    else if (function.name() == "sum_loss")
      all.sumLoss(i, function);
    else if (function.name() == "cast")
      all.cast(i, function, half, bundle::STATE, bundle::PARAMETER);
    else if (function.name() == codegen::kRoundTermsName)
      all.cast(i, function, bf16, bundle::CONTRIBUTION, bundle::SUM);
    else if (function.name() == "scale_seeds")
      all.scaleSeeds(i, function);
    else if (function.name() == "decide")
      all.decide(i, function);
    else if (function.name().rfind("sum.f64", 0) == 0)
      all.rankedSum<double>(i, function);
    else if (function.name().rfind("sum.f32.of_bf16", 0) == 0 ||
             function.name().rfind("sum.f32.more_bf16", 0) == 0)
      all.sumOfRounded(i, function, bf16);
    else if (function.name().rfind("sum.f32", 0) == 0)
      all.rankedSum<float>(i, function);
    else
      all.outcome.problem = "is not known to the suite";
    if (!all.outcome.problem.empty())
      all.outcome.problem = function.name() + ", " + std::to_string(all.rows) +
                            " elements: " + all.outcome.problem;
  }
  return all.outcome;
}
