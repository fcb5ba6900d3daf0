#include "PtxReader.h"

#include "PtxBody.h"

#include <cmath>
#include <cstring>

using namespace zorse;
using namespace zorse::conformance;
namespace emulator = zorse::emulator;
namespace ptx = zorse::emulator::ptx;

namespace {

template <typename T> bool isNaN(const char *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value != value;
}

/// Whether a 16-bit number is a NaN in f16 or bf16.
bool isNaNOf16(const char *at, int exponentBits) {
  uint16_t value;
  std::memcpy(&value, at, 2);
  const int fraction = 15 - exponentBits;
  return (value >> fraction & ((1 << exponentBits) - 1)) == (1 << exponentBits) - 1 &&
         (value & ((1 << fraction) - 1));
}

struct ElementKind {
  size_t bytes;
  bool (*isNaN)(const char *at);
};

ElementKind kindOf(bundle::ElementType type) {
  switch (type) {
  case bundle::F32:
    return {4, isNaN<float>};
  case bundle::F64:
    return {8, isNaN<double>};
  case bundle::BF16:
    return {2, [](const char *at) { return isNaNOf16(at, 8); }};
  case bundle::F16:
    return {2, [](const char *at) { return isNaNOf16(at, 5); }};
  default:
    return {1, [](const char *) { return false; }};
  }
}

/// Finds the first element that differs. All NaNs are equal, because PTX does not specify the bits
/// of f32 NaNs.
std::string compareArgument(const bundle::FunctionArgument &argument, const char *got,
                            const char *expected, size_t bytes) {
  const ElementKind kind = kindOf(argument.type());
  for (size_t at = 0; at + kind.bytes <= bytes; at += kind.bytes)
    if (std::memcmp(got + at, expected + at, kind.bytes) != 0 &&
        !(kind.isNaN(got + at) && kind.isNaN(expected + at))) {
      uint64_t bits[2] = {};
      std::memcpy(&bits[0], expected + at, kind.bytes);
      std::memcpy(&bits[1], got + at, kind.bytes);
      char text[160];
      std::snprintf(text, sizeof text,
                    "element %zu of argument kind %d: the emulator of bitcode has the bits %llx, "
                    "the PTX %llx",
                    at / kind.bytes, int(argument.kind()), static_cast<unsigned long long>(bits[0]),
                    static_cast<unsigned long long>(bits[1]));
      return text;
    }
  return "";
}

size_t sizeOf(const bundle::FunctionArgument &argument, int64_t rows) {
  return size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows);
}

/// Copies of arguments at multiples of 128 bytes.
class Arguments {
public:
  Arguments(const bundle::CompiledFunction &function, int64_t rows) {
    for (const bundle::FunctionArgument &argument : function.arguments()) {
      sizes.push_back(sizeOf(argument, rows));
      memory.emplace_back(sizes.back() / sizeof(Line) + 1);
      addresses.push_back(memory.back().data()->bytes);
    }
  }
  std::vector<char *> addresses;
  std::vector<size_t> sizes;

  std::vector<std::vector<char>> contents(const std::vector<char *> &of) const {
    std::vector<std::vector<char>> all;
    all.reserve(of.size());
    for (size_t s = 0; s < of.size(); ++s)
      all.emplace_back(of[s], of[s] + sizes[s]);
    return all;
  }

private:
  struct alignas(128) Line {
    char bytes[128];
  };
  std::vector<std::vector<Line>> memory;
};

std::string compareArguments(const bundle::CompiledFunction &function,
                             const std::vector<char *> &got,
                             const std::vector<const char *> &expected, int64_t rows) {
  for (int s = 0; s < function.arguments_size(); ++s)
    if (const bundle::FunctionArgument &argument = function.arguments(s);
        argument.mode() != bundle::READ)
      if (std::string problem = compareArgument(argument, got[size_t(s)], expected[size_t(s)],
                                                sizeOf(argument, rows));
          !problem.empty())
        return problem;
  return "";
}

class PtxReader final : public Machine {
public:
  explicit PtxReader(const PtxOptions &options)
      : Machine(options.arch), options(options),
        products(std::move(*runtime::CpuDevice::create({}))),
        bitcode(makeEmulator("emu:" + options.arch)) {}

  ~PtxReader() override { count(); }

  Machine *companion() override { return bitcode.get(); }

  std::string load(const codegen::CompiledFunctions &compiled) override {
    library = compiled.library;
    if (options.recording)
      *options.recording = {compiled.object, {}};
    count();
    std::string error;
    program = compiled.object.empty() ? nullptr : ptx::Program::load(compiled.object, error);
    return error;
  }

  std::string run(int index, const Call &call) override {
    const bundle::CompiledFunction &function = library.functions(index);
    Arguments arguments(function, call.rows);
    for (size_t s = 0; s < arguments.sizes.size(); ++s)
      std::memcpy(arguments.addresses[s], call.arguments[s], arguments.sizes[s]);
    const std::vector<std::vector<char>> before = arguments.contents(call.arguments);
    Call other = call;
    other.arguments = arguments.addresses;
    if (std::string problem = bitcode->run(index, other); !problem.empty())
      return "the emulator of bitcode: " + problem;
    if (!program)
      return "";
    const emulator::EmulatedCall emulated{call.rows, call.sampleBase, call.rngIdBase,
                                          call.arguments, call.overwrite};
    const std::vector<std::string> findings =
        ptx::runPtxBody(*program, *products, function, emulated, options.seed + 1000 * runs++);
    if (options.recording)
      options.recording->runs.push_back({function, call.rows, call.sampleBase, call.rngIdBase,
                                         call.overwrite, before,
                                         arguments.contents(arguments.addresses)});
    return findings.empty()
               ? compareArguments(function, call.arguments,
                                  {other.arguments.begin(), other.arguments.end()}, call.rows)
               : findings.front();
  }

private:
  void count() const {
    if (program && options.coverage)
      program->addCoverage(*options.coverage);
  }

  PtxOptions options;
  uint64_t runs = 0; ///< number of runs, so that each run has a different order
  std::unique_ptr<runtime::CpuDevice> products;
  std::unique_ptr<Machine> bitcode;
  bundle::FunctionLibrary library;
  std::unique_ptr<ptx::Program> program;
};

} // namespace

std::unique_ptr<Machine> conformance::makePtxReader(const PtxOptions &options) {
  return std::make_unique<PtxReader>(options);
}

std::string conformance::runAgain(const std::string &text, const RecordedRun &run, uint64_t seed) {
  static const std::unique_ptr<runtime::CpuDevice> products =
      std::move(*runtime::CpuDevice::create({}));
  std::string error;
  const auto program = ptx::Program::load(text, error);
  if (!program)
    return error;
  Arguments arguments(run.function, run.rows);
  std::vector<const char *> expected;
  for (size_t s = 0; s < arguments.sizes.size(); ++s) {
    std::memcpy(arguments.addresses[s], run.before[s].data(), arguments.sizes[s]);
    expected.push_back(run.after[s].data());
  }
  const emulator::EmulatedCall call{run.rows, run.sampleBase, run.rngIdBase, arguments.addresses,
                                    run.overwrite};
  const std::vector<std::string> findings =
      ptx::runPtxBody(*program, *products, run.function, call, seed);
  return findings.empty() ? compareArguments(run.function, arguments.addresses, expected, run.rows)
                          : findings.front();
}
