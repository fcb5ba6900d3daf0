#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Expression.h"
#include "zorse/runtime/HostCpu.h"
#include "zorse/runtime/Training.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>

using namespace zorse;
using namespace zorse::runtime;

/// Bytes of a function's scalars argument; the sums have a separate argument.
constexpr size_t kScalarBytes = offsetof(zorse::abi::StepScalars, sums);

/// Runs one function over all rows of the batch on one thread of the host, and evaluates
/// expressions of its counts.
class KnownNumbers::Implementation {
public:
  explicit Implementation(const Bundle &bundle) : bundle_(bundle) {}

  Status prepare() {
    for (const bundle::LossTerm &term : bundle_.summary.loss())
      if (Status status = parse(term.factor(), factors_); status.failed())
        return status;
    for (const std::string &text : bundle_.summary.known())
      if (Status status = parse(text, known_); status.failed())
        return status;
    if (bundle_.summary.counts().empty())
      return Status::success();
    if (bundle_.summary.count_function() < 0)
      return userError(
          bundle_.directory +
          "/summary.pb: the loss has counts, but there is no function that counts them");
    const uint32_t target = hostTarget(bundle_),
                   function = uint32_t(bundle_.summary.count_function());
    function_ = &bundle_.target(target).functions(int(function));
    DeviceRequest request;
    request.name = "host";
    Result<std::unique_ptr<QueuedDevice>> device =
        makeHostCpu(bundle_, target, {function}, request);
    if (device.failed())
      return device.error();
    device_ = std::move(*device);
    for (const bundle::FunctionArgument &argument : function_->arguments())
      readsNumbers_ |= argument.kind() == bundle::SCALARS;
    for (int j = 0; j < bundle_.summary.counts_size(); ++j) {
      outputs_.push_back(outputArgument(j));
      if (outputs_.back() < 0)
        return userError(bundle_.directory +
                         "/functions.pb: the function that counts has no output " +
                         std::to_string(j));
    }
    return allocateArguments();
  }

  // A count may depend on numbers that are derived from earlier counts. Every pass makes at least
  // one more count correct; if a pass changes no count, all are correct.
  Result<std::vector<double>> count(const Batch &batch, int64_t rows) {
    std::vector<double> result(counts(), 0);
    const double samples = double(rows * bundle_.samplesPerRow);
    for (size_t pass = 0; pass < counts(); ++pass) {
      Result<std::vector<double>> next = countOnce(batch, rows, samples, result);
      if (next.failed())
        return next;
      const bool same = std::memcmp(next->data(), result.data(), result.size() * sizeof(double)) ==
                        0;
      result = std::move(*next);
      if (same || !readsNumbers_)
        break;
    }
    return result;
  }

  bundle::Count::Reduce reduceOf(size_t j) const { return bundle_.summary.counts(int(j)).reduce(); }

  double none(size_t j) const {
    const double infinity = std::numeric_limits<double>::infinity();
    return reduceOf(j) == bundle::Count::MAX   ? -infinity
           : reduceOf(j) == bundle::Count::MIN ? infinity
                                               : 0;
  }

  /// NaN stays NaN for every reduction.
  double join(size_t j, double a, double b) const {
    if (reduceOf(j) == bundle::Count::SUM || std::isnan(a) || std::isnan(b))
      return a + b;
    return reduceOf(j) == bundle::Count::MAX ? std::max(a, b) : std::min(a, b);
  }

  const std::vector<Expression> &factors() const { return factors_; }
  const std::vector<Expression> &known() const { return known_; }
  size_t counts() const { return size_t(bundle_.summary.counts_size()); }

private:
  Status parse(const std::string &text, std::vector<Expression> &expressions) {
    Result<Expression> expression = Expression::parse(text);
    if (expression.failed())
      return userError(
          bundle_.directory + "/summary.pb: '" + text +
          "' is no expression of the samples of a step and its counts: " + expression.message());
    for (uint32_t count : expression->counts())
      if (count >= counts())
        return userError(bundle_.directory + "/summary.pb: '" + text + "' reads n" +
                         std::to_string(count) + ", and there are " + std::to_string(counts()) +
                         " counts");
    expressions.push_back(std::move(*expression));
    return Status::success();
  }

  /// Runs the function once. Its numbers of the step are derived from `counts`.
  Result<std::vector<double>> countOnce(const Batch &batch, int64_t rows, double samples,
                                        const std::vector<double> &counts) {
    std::vector<double> result;
    if (!function_)
      return result;
    for (int i = 0; i < function_->arguments_size(); ++i) {
      if (function_->arguments(i).kind() == bundle::INPUT) {
        const auto &bytes =
            batch.inputs[bundle_.summary.count_inputs(int(function_->arguments(i).index()))];
        if (Status status = device_->write(addresses_[i], bytes.data(), bytes.size());
            status.failed())
          return status;
      }
      if (function_->arguments(i).kind() == bundle::SCALARS) {
        zorse::abi::StepScalars scalars{};
        for (size_t k = 0; k < known_.size(); ++k)
          scalars.known[k] = known_[k].evaluate(samples, counts);
        if (Status status = device_->write(addresses_[i], &scalars, kScalarBytes); status.failed())
          return status;
      }
    }
    FunctionArguments arguments;
    arguments.addresses = addresses_.data();
    arguments.rows = bundle_.batch;
    if (Status status = device_->runFunction(uint32_t(bundle_.summary.count_function()), arguments);
        status.failed())
      return status;
    for (int j = 0; j < bundle_.summary.counts_size(); ++j) {
      Result<double> number = reduce(j, rows);
      if (number.failed())
        return number.error();
      result.push_back(*number);
    }
    return result;
  }

  Status allocateArguments() {
    size_t bytes = 0;
    std::vector<size_t> offsets;
    for (int i = 0; i < function_->arguments_size(); ++i) {
      Result<int64_t> size = sizeOf(i);
      if (size.failed())
        return size.error();
      offsets.push_back(bytes);
      bytes += size_t(*size + 63) / 64 * 64;
    }
    Result<std::unique_ptr<DeviceMemory>> memory = device_->allocate(bundle::HOST, bytes, {});
    if (memory.failed())
      return memory.error();
    memory_ = std::move(*memory);
    for (size_t offset : offsets)
      addresses_.push_back(memory_->base() + offset);
    return Status::success();
  }

  /// Bytes of an argument for all rows. An error if the function must not have such an argument.
  Result<int64_t> sizeOf(int i) const {
    const bundle::FunctionArgument &argument = function_->arguments(i);
    const bool known = (argument.kind() == bundle::INPUT &&
                        argument.index() < uint32_t(bundle_.summary.count_inputs_size())) ||
                       argument.kind() == bundle::WORKSPACE || argument.kind() == bundle::LOSS ||
                       argument.kind() == bundle::SCALARS;
    if (!known)
      return userError(bundle_.directory +
                       "/functions.pb: the function that counts has an argument it cannot have: " +
                       bundle::ArgumentKind_Name(argument.kind()));
    int64_t size, min = 0;
    if (argument.kind() == bundle::INPUT)
      min = bundle_.batch *
            bundle_.summary.inputs(int(bundle_.summary.count_inputs(int(argument.index()))))
                .bytes_per_row();
    else if (argument.kind() == bundle::LOSS)
      min = bundle_.batch * int64_t(elementBytes(argument.type()));
    else if (argument.kind() == bundle::SCALARS)
      min = int64_t(kScalarBytes);
    if (argument.bytes().fixed() < 0 || argument.bytes().per_row() < 0 ||
        __builtin_mul_overflow(argument.bytes().per_row(), bundle_.batch, &size) ||
        __builtin_add_overflow(size, argument.bytes().fixed(), &size) || size < min ||
        size > (int64_t(1) << 40))
      return userError(bundle_.directory + "/functions.pb: argument " + std::to_string(i) +
                       " of the function that counts has an impossible size");
    return size;
  }

  int outputArgument(int output) const {
    for (int i = 0; i < function_->arguments_size(); ++i)
      if (function_->arguments(i).kind() == bundle::LOSS &&
          int(function_->arguments(i).index()) == output)
        return i;
    return -1;
  }

  Result<double> reduce(int j, int64_t rows) const {
    const int argument = outputs_[size_t(j)];
    const StoredType type = storedType(function_->arguments(argument).type());
    std::vector<std::byte> stored(rows * bytesOf(type));
    if (Status status = device_->read(stored.data(), addresses_[argument], stored.size());
        status.failed())
      return status;
    std::vector<double> numbers(rows);
    convertElements(stored.data(), type, numbers.data(), StoredType::F64, rows);
    double total = none(size_t(j));
    for (double number : numbers)
      total = join(size_t(j), total, number);
    return total;
  }

  const Bundle &bundle_;
  const bundle::CompiledFunction *function_ = nullptr; ///< null if there are no counts
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<DeviceAddress> addresses_;
  std::vector<int> outputs_;  ///< argument of each count
  bool readsNumbers_ = false; ///< the function reads numbers of the step
  std::vector<Expression> factors_, known_;
};

KnownNumbers::KnownNumbers(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
KnownNumbers::~KnownNumbers() = default;

Result<std::unique_ptr<KnownNumbers>> KnownNumbers::create(const Bundle &bundle) {
  auto implementation = std::make_unique<Implementation>(bundle);
  if (Status status = implementation->prepare(); status.failed())
    return status;
  return std::unique_ptr<KnownNumbers>(new KnownNumbers(std::move(implementation)));
}

Result<std::vector<double>> KnownNumbers::count(const Batch &batch, int64_t rows) {
  return implementation_->count(batch, rows);
}

void KnownNumbers::add(std::vector<double> &counts, const std::vector<double> &more,
                       double weight) const {
  for (size_t j = 0; j < counts.size(); ++j)
    counts[j] = implementation_->join(
        j, counts[j],
        implementation_->reduceOf(j) == bundle::Count::SUM ? weight * more[j] : more[j]);
}

std::vector<double> KnownNumbers::none() const {
  std::vector<double> counts;
  counts.reserve(implementation_->counts());
  for (size_t j = 0; j < implementation_->counts(); ++j)
    counts.push_back(implementation_->none(j));
  return counts;
}

static std::vector<double> evaluate(const std::vector<Expression> &expressions, double samples,
                                    const std::vector<double> &counts) {
  std::vector<double> values;
  values.reserve(expressions.size());
  for (const Expression &expression : expressions)
    values.push_back(expression.evaluate(samples, counts));
  return values;
}

std::vector<double> KnownNumbers::factors(double samples, const std::vector<double> &counts) const {
  return evaluate(implementation_->factors(), samples, counts);
}

std::vector<double> KnownNumbers::known(double samples, const std::vector<double> &counts) const {
  return evaluate(implementation_->known(), samples, counts);
}

std::string KnownNumbers::describeNotFinite(double samples,
                                            const std::vector<double> &counts) const {
  auto shown = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  for (const Expression &factor : implementation_->factors()) {
    const double value = factor.evaluate(samples, counts);
    if (std::isfinite(value))
      continue;
    std::string why = factor.usesSamples() ? "B = " + shown(samples) : "";
    for (uint32_t count : factor.counts())
      why += (why.empty() ? "n" : ", n") + std::to_string(count) + " = " + shown(counts[count]);
    return "the factor " + factor.print() + " of the loss is " + shown(value) +
           (why.empty() ? "" : " (" + why + ")");
  }
  return "";
}
