#include "RunCase.h"

#include "../../lib/Codegen/Common/ArgumentLayout.h"

#include "CodegenHarness.h"
#include "TensorBytes.h"
#include "Tolerances.h"

#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>
#include <sstream>

using namespace mlir;
using namespace zorse;
using namespace zorse::conformance;
using namespace zorse::test;
using reference::Tensor;

namespace {

constexpr double kBefore = 0.5; ///< initial value of results that are added to

struct Runner {
  func::FuncOp function;
  const bundle::CompiledFunction &compiled;
  int64_t rows;
  reference::Options options;
  std::vector<Tensor> arguments;

  Runner(func::FuncOp function, const bundle::CompiledFunction &compiled, int64_t rows,
         uint64_t seed)
      : function(function), compiled(compiled), rows(rows) {
    options.rows = rows;
    options.seed = 42;
    options.step = 3;
    options.sampleBase = 5;
    options.rngIdBase = 11;
    std::mt19937_64 random(seed);
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      arguments.push_back(makeArgument(i, random));
  }

  /// Chooses numbers that make a missing or repeated element visible. One in eight is four times as
  /// large. Such faults occur at the edges of rows and of a block's part of a row. There, numbers
  /// grow with the row's length, so that a sum without one of them is outside its band, also if it
  /// is a sum of exponentials. Ids include the first and the last of their range.
  Tensor makeArgument(unsigned i, std::mt19937_64 &random) {
    auto type = cast<RankedTensorType>(function.getArgumentTypes()[i]);
    Type element = type.getElementType();
    Tensor tensor;
    int64_t count = 1;
    for (int64_t size : type.getShape()) {
      tensor.shape.push_back(ShapedType::isDynamic(size) ? rows : size);
      count *= tensor.shape.back();
    }
    auto number = [&](StringRef name, int64_t otherwise) {
      auto attribute = function.getArgAttrOfType<IntegerAttr>(i, name);
      return attribute ? attribute.getInt() : otherwise;
    };
    const int64_t low = number("test.low", 0), high = number("test.high", 2),
                  columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    const bool positive = function.getArgAttr(i, "test.positive") != nullptr,
               spread = function.getArgAttr(i, "test.spread") != nullptr;
    std::normal_distribution<double> normal;
    for (int64_t j = 0; j < count; ++j) {
      double value = 0;
      if (isa<FloatType>(element)) {
        value = normal(random);
        const int64_t column = j % columns;
        const bool edge = column == 0 || column == columns - 1 || (column + 1) % 1024 < 2;
        if (edge && columns > 64)
          value = (i == 0 || value > 0 ? 1 : -1) *
                  (std::fabs(value) + 2 + std::log(double(columns)));
        else if (edge || random() % 8 == 0)
          value *= 4;
        value = positive ? std::fabs(value) + 0.1
                : spread ? std::ldexp(value, int(random() % 18) - 12)
                         : value;
      } else {
        value = double(j == 0           ? low
                       : j == count - 1 ? high - 1
                                        : low + int64_t(random() % uint64_t(high - low)));
      }
      if (element.isF32())
        value = float(value);
      if (isHalf(element))
        value = numberOf(halfOf(value, element), element);
      tensor.values.push_back(value);
    }
    if (auto fixed = function.getArgAttrOfType<FloatAttr>(i, "test.value"))
      for (double &value : tensor.values)
        value = fixed.getValueAsDouble();
    return tensor;
  }

  char *address(std::vector<Buffer> &buffers, ArgumentAttr attribute) {
    const bool scalars = isOfKind(attribute, ArgumentKind::Scalars);
    for (int i = 0; i < compiled.arguments_size(); ++i)
      if (int(compiled.arguments(i).kind()) == int(attribute.getKind()) &&
          (scalars || compiled.arguments(i).index() == attribute.getIndex()))
        return buffers[size_t(i)].data.get() + (scalars ? codegen::offsetOfScalar(attribute) : 0);
    return nullptr;
  }

  Type element(unsigned result) { return getElementTypeOrSelf(function.getResultTypes()[result]); }
  bool accumulates(unsigned result) {
    return isOfKind(attributeOfResult(function, result), ArgumentKind::ParameterGradient);
  }

  std::string run(Machine &machine, bool add, const std::vector<Tensor> &expected,
                  const std::vector<Banded> &bands, double &worst) {
    std::vector<Buffer> buffers;
    Machine::Call call{rows, options.sampleBase, options.rngIdBase, {}, {}};
    for (const bundle::FunctionArgument &argument : compiled.arguments()) {
      Buffer &buffer = buffers.emplace_back(
          size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows));
      call.arguments.push_back(buffer.data.get());
      if (argument.kind() == bundle::SCALARS) {
        abi::StepScalars scalars{};
        scalars.step = options.step;
        scalars.seed = options.seed;
        std::memcpy(buffer.data.get(), &scalars, offsetof(abi::StepScalars, sums));
      }
    }
    call.overwrite.assign(buffers.size(), !add);
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      char *to = address(buffers, attributeOfArgument(function, i));
      if (!to)
        return "no buffer for argument " + std::to_string(i);
      write(to, getElementTypeOrSelf(function.getArgumentTypes()[i]), arguments[i].values);
    }
    if (add)
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        if (accumulates(i))
          write(address(buffers, attributeOfResult(function, i)), element(i),
                std::vector<double>(expected[i].values.size(), kBefore));
    std::string problem = machine.run(0, call);
    for (unsigned i = 0; problem.empty() && i < function.getNumResults(); ++i) {
      const char *from = address(buffers, attributeOfResult(function, i));
      const double before = add && accumulates(i) ? kBefore : 0;
      if (machine.records())
        machine.expect(expectation(i, from, buffers, expected[i].values, bands[i], before));
      else
        problem = compare(i, read(from, element(i), expected[i].values.size()), expected[i].values,
                          bands[i], before, worst);
    }
    return problem;
  }

  /// The maximum difference of an element of a result to which `before` is added.
  struct Tolerance {
    double want, error;
    bool apart; ///< the expanded function computes a different value
  };
  static Tolerance bandAt(size_t i, const std::vector<double> &expected, const Banded &band,
                          double before) {
    const double want = expected[i] + before,
                 between = expected[i] == band.value.values[i]
                               ? 0
                               : std::fabs(expected[i] - band.value.values[i]);
    double error = band.error.values[i];
    // The reference computes the same as the expanded function, except for rounded numbers in the
    // expansion.
    const bool apart = !(between <= error || between <= 1e-12 * std::fabs(expected[i])) &&
                       !std::isnan(expected[i]);
    error = std::isfinite(between) ? error + between : error;
    if (before != 0)
      error += 0x1p-24 * (std::fabs(want) + error + band.roundings * before);
    return {want, error, apart};
  }

  ExpectedResult expectation(unsigned result, const char *from, const std::vector<Buffer> &buffers,
                             const std::vector<double> &expected, const Banded &band,
                             double before) {
    ExpectedResult out;
    for (const Buffer &buffer : buffers)
      if (from >= buffer.data.get() && from < buffer.data.get() + buffer.size) {
        out.argument = uint32_t(&buffer - buffers.data());
        out.offset = uint64_t(from - buffer.data.get());
      }
    const Type type = element(result);
    out.type = type.isF32()    ? "f32"
               : type.isF64()  ? "f64"
               : type.isBF16() ? "bf16"
               : type.isF16()  ? "f16"
                               : "";
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tolerance at = bandAt(i, expected, band, before);
      out.middle.push_back(float(at.want));
      // Both numbers are rounded to f32.
      out.error.push_back(std::isnan(at.error)
                              ? INFINITY
                              : float(at.error + std::fabs(at.want) * 0x1p-23) * (1 + 0x1p-20f));
    }
    return out;
  }

  std::string compare(unsigned result, const std::vector<double> &got,
                      const std::vector<double> &expected, const Banded &band, double before,
                      double &worst) {
    for (size_t i = 0; i < got.size(); ++i) {
      const auto [want, error, apart] = bandAt(i, expected, band, before);
      const double off = got[i] == want ? 0 : std::fabs(got[i] - want);
      const bool same = off <= error || (std::isnan(want) && std::isnan(got[i]));
      if (same && !apart) {
        worst = std::max(worst, off == 0 || error == 0 ? 0 : off / error);
        continue;
      }
      std::ostringstream text;
      text.precision(9);
      text << "result " << result << " element " << i << ": expected " << want << ", got " << got[i]
           << ", band " << error;
      if (apart)
        text << "; expanded, the function gives " << band.value.values[i];
      return text.str();
    }
    return "";
  }
};

} // namespace

std::optional<codegen::CompiledFunctions> conformance::compileAndLoad(
    Machine &machine, std::string &problem,
    const std::function<std::optional<codegen::CompiledFunctions>(const std::string &arch)>
        &compile) {
  if (Machine *companion = machine.companion();
      companion && !compileAndLoad(*companion, problem, compile))
    return std::nullopt;
  auto compiled = compile(machine.arch);
  problem = compiled ? machine.load(*compiled) : "does not compile for " + machine.arch;
  return problem.empty() ? std::move(compiled) : std::nullopt;
}

Outcome conformance::runCase(const Case &test, const std::string &type, Machine &machine,
                             uint64_t seed) {
  Outcome outcome;
  auto fail = [&](const std::string &problem) {
    outcome.problem = problem;
    return outcome;
  };
  auto context = makeContext();
  OwningOpRef<ModuleOp> module = parse(*context, test.text, type);
  if (!module)
    return fail("does not parse:\n" + test.text);
  auto compile = [&](const std::string &arch) -> std::optional<codegen::CompiledFunctions> {
    codegen::CodegenOptions options;
    options.useCache = false;
    options.threads = 1;
    options.optimizationLevel = 2;
    options.arch = arch;
    OwningOpRef<ModuleOp> own(module->clone());
    auto compiled = codegen::compileFunctions(*own, options);
    return {std::move(compiled)};
  };
  std::string problem;
  auto compiled = compileAndLoad(machine, problem, compile);
  if (!compiled)
    return fail(problem + ":\n" + test.text);
  auto function = *module->getOps<func::FuncOp>().begin();
  const bundle::CompiledFunction &code = compiled->library.functions(0);
  outcome.kernels = code.launches_size();
  if (!machine.needsResults())
    return fail(machine.run(0, {test.rows, 0, 0, {}, {}}));
  Runner runner(function, code, test.rows, seed);
  auto expected = reference::evaluate(function, runner.arguments, runner.options);
  auto bands = tolerancesOf(function, runner.arguments, runner.options);
  if (failed(expected) || failed(bands))
    return fail("has no reference:\n" + test.text);
  bool adds = false;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    adds |= runner.accumulates(i);
  for (bool add : {false, true})
    if ((!add || adds) && outcome.problem.empty())
      outcome.problem = runner.run(machine, add, *expected, *bands, outcome.worst);
  return outcome;
}
