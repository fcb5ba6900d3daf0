#include "Arguments.h"

#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <algorithm>
#include <cstring>

using namespace zorse;
using namespace zorse::profile;
using namespace zorse::runtime;

namespace {

uint64_t bytesAt(const bundle::FunctionArgument &argument, int64_t rows) {
  return static_cast<uint64_t>(
      std::max<int64_t>(argument.bytes().fixed() + argument.bytes().per_row() * rows, 0));
}

uint64_t aligned(uint64_t bytes) { return (bytes + 127) / 64 * 64; }

/// Fills `out` with random numbers of type `type` with the given mean and width.
void fill(std::vector<std::byte> &out, bundle::ElementType type, double mean, double width,
          std::mt19937_64 &random) {
  std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(width));
  // Reads a table of normally distributed numbers at varying offsets, because drawing each number
  // takes longer than the measurement.
  std::vector<float> table(8192);
  for (float &x : table)
    x = normal(random);
  size_t element = elementBytes(type);
  if (element == 0)
    return;
  for (size_t i = 0, at = 0; i + element <= out.size(); i += element, ++at) {
    float x = table[(at + (at >> 13) * 97) % table.size()];
    if (type == bundle::F32)
      memcpy(&out[i], &x, 4);
    else if (type == bundle::F64) {
      double wide = x;
      memcpy(&out[i], &wide, 8);
    } else {
      uint16_t half = type == bundle::BF16 ? floatToBf16(x) : floatToF16(x);
      memcpy(&out[i], &half, 2);
    }
  }
}

void fillIntegers(std::vector<std::byte> &out, bundle::ElementType type, int64_t lower,
                  int64_t upper, std::mt19937_64 &random) {
  size_t element = elementBytes(type);
  for (size_t i = 0; element > 0 && i + element <= out.size(); i += element) {
    int64_t value =
        lower +
        static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(upper - lower, 1)));
    memcpy(&out[i], &value, element); // little-endian
  }
}

} // namespace

std::vector<std::byte> zorse::profile::contents(const Bundle &bundle, int32_t unit,
                                                const bundle::FunctionArgument &argument,
                                                uint64_t bytes, std::mt19937_64 &random) {
  std::vector<std::byte> out(bytes);
  bool real = argument.type() == bundle::F32 || argument.type() == bundle::F64 ||
              argument.type() == bundle::BF16 || argument.type() == bundle::F16;
  switch (argument.kind()) {
  case bundle::SCALARS: {
    abi::StepScalars scalars = {};
    scalars.step = 1;
    scalars.learningRate = 1e-4;
    scalars.decided.clipFactor = 1;
    std::fill(std::begin(scalars.lossGradient), std::end(scalars.lossGradient), 1e-3);
    memcpy(out.data(), &scalars, std::min(out.size(), sizeof scalars));
    return out;
  }
  case bundle::INPUT: {
    const bundle::GraphInput *input =
        unit < 0 ? nullptr
                 : &bundle.summary.inputs(static_cast<int>(
                       bundle.summary.units(unit).inputs(static_cast<int>(argument.index()))));
    if (real)
      fill(out, argument.type(), 0, 1, random);
    else if (input && input->upper_bound() > input->lower_bound())
      fillIntegers(out, argument.type(), input->lower_bound(), input->upper_bound(), random);
    else
      fillIntegers(out, argument.type(), 0, argument.type() == bundle::I1 ? 2 : 1, random);
    return out;
  }
  case bundle::PARAMETER: {
    const bundle::ParameterInfo *parameter =
        unit < 0 ? nullptr
                 : &bundle.summary.parameters(static_cast<int>(
                       bundle.summary.units(unit).parameters(static_cast<int>(argument.index()))));
    if (real)
      fill(out, argument.type(), parameter && parameter->shape_size() < 2 ? 0.5 : 0, 0.02, random);
    return out; // integer constants are indices or masks, for which zero is always valid
  }
  case bundle::BOUNDARY_IN:
    if (real)
      fill(out, argument.type(), 0, 1, random);
    return out;
  case bundle::BOUNDARY_OUT_GRADIENT:
    if (real)
      fill(out, argument.type(), 0, 1e-3, random);
    return out;
  case bundle::STATE:
    if (real)
      fill(out, argument.type(), argument.index() >= 2 ? 1e-4 : 0, argument.index() >= 2 ? 0 : 0.02,
           random); // optimizer states are not negative
    return out;
  case bundle::OPTIMIZER_STEP: {
    const abi::OptimizerStep step = {
        .updates = 10, .lossScale = 1, .goodSteps = 10, .overflows = 0};
    memcpy(out.data(), &step, std::min(out.size(), sizeof step));
    return out;
  }
  default: // arguments that functions write first: outputs, gradients, saved and deferred blocks,
           // sums
    return out;
  }
}

uint64_t Arguments::bytesOf(const Bundle &bundle, const std::vector<uint32_t> &functions,
                            int64_t rows, uint64_t *workspace) {
  std::map<std::pair<int, uint32_t>, uint64_t> sizes;
  for (uint32_t index : functions)
    for (const bundle::FunctionArgument &argument :
         bundle.functions.functions(static_cast<int>(index)).arguments()) {
      uint64_t bytes = aligned(bytesAt(argument, rows));
      if (argument.kind() == bundle::WORKSPACE)
        *workspace = std::max(*workspace, bytes);
      else
        sizes[{argument.kind(), argument.index()}] =
            std::max(sizes[{argument.kind(), argument.index()}], bytes);
    }
  uint64_t total = 0;
  for (auto &[key, bytes] : sizes)
    total += bytes;
  return total;
}

Result<Arguments> Arguments::make(Device &device, const Bundle &bundle, int32_t unit,
                                  const std::vector<uint32_t> &functions, int64_t rows,
                                  DeviceAddress workspace, uint32_t seed) {
  Arguments arguments;
  std::mt19937_64 random(seed);
  std::map<std::pair<int, uint32_t>, std::pair<const bundle::FunctionArgument *, uint64_t>> wanted;
  for (uint32_t index : functions)
    for (const bundle::FunctionArgument &argument :
         bundle.functions.functions(static_cast<int>(index)).arguments()) {
      auto &entry = wanted[{argument.kind(), argument.index()}];
      entry = {&argument, std::max(entry.second, aligned(bytesAt(argument, rows)))};
    }
  for (auto &[key, entry] : wanted) {
    if (entry.first->kind() == bundle::WORKSPACE) {
      arguments.places[key] = workspace;
      continue;
    }
    Result<std::unique_ptr<DeviceMemory>> memory =
        device.allocate(bundle::DEVICE, entry.second, {});
    if (memory.failed())
      return memory.error();
    std::vector<std::byte> data = contents(bundle, unit, *entry.first, entry.second, random);
    if (Status status = device.write((*memory)->base(), data.data(), data.size()); status.failed())
      return status;
    arguments.places[key] = (*memory)->base();
    arguments.memory.push_back(std::move(*memory));
  }
  return Result<Arguments>(std::move(arguments));
}

std::vector<DeviceAddress> Arguments::of(const bundle::CompiledFunction &function) const {
  std::vector<DeviceAddress> addresses;
  for (const bundle::FunctionArgument &argument : function.arguments())
    addresses.push_back(places.at({argument.kind(), argument.index()}));
  return addresses;
}
