#include "EmulatedFunction.h"

#include "zorse/runtime/HalfTypes.h"
#include "zorse/runtime/abi/CudaAbi.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::emulator;

static int64_t at(const bundle::AffineSize &extent, int64_t rows) {
  return extent.fixed() + extent.per_row() * rows;
}

/// The grid of a launch: its parameters and the memory of its operands.
static GridLaunch gridOf(const bundle::KernelLaunch &kernel,
                         const bundle::CompiledFunction &function, const EmulatedCall &call) {
  GridLaunch grid;
  const int64_t points = at(kernel.iterations(), call.rows),
                perBlock = int64_t(kernel.threads()) * std::max<int64_t>(1, kernel.per_thread());
  grid.threads = kernel.threads();
  grid.sharedBytes = kernel.shared_bytes();
  grid.blocks = uint32_t((points + perBlock - 1) / perBlock);
  uint64_t accumulate = 0;
  for (uint32_t operand : kernel.accumulates())
    accumulate |= uint64_t(!call.overwrite[kernel.operands(int(operand)).argument()]) << operand;
  grid.parameters = {uint64_t(call.rows), accumulate, uint64_t(call.sampleBase), call.rngIdBase};
  for (const bundle::Pointer &pointer : kernel.operands()) {
    const bundle::FunctionArgument &argument = function.arguments(int(pointer.argument()));
    const auto begin = reinterpret_cast<uintptr_t>(call.arguments[pointer.argument()]);
    grid.parameters.push_back(begin + uint64_t(pointer.fixed() + pointer.per_row() * call.rows));
    grid.operands.push_back(
        {begin, begin + uint64_t(at(argument.bytes(), call.rows)),
         argument.mode() != bundle::READ || argument.kind() == bundle::WORKSPACE});
  }
  return grid;
}

static char *addressOf(const bundle::Pointer &pointer, const EmulatedCall &call) {
  return call.arguments[pointer.argument()] + pointer.fixed() + pointer.per_row() * call.rows;
}

/// C = the product's f32 sums plus its bias, rounded once.
static void addBias(const bundle::Matmul &product, const std::vector<float> &sums,
                    const EmulatedCall &call) {
  using runtime::HalfType;
  const int64_t m = at(product.m(), call.rows), n = at(product.n(), call.rows);
  const char *bias = addressOf(product.bias(), call);
  char *c = addressOf(product.c(), call);
  const bool isF32 = product.type() == bundle::F32, isBf16 = product.type() == bundle::BF16;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t to = i * product.ldc() + j;
      float sum = sums[size_t(i * n + j)];
      if (isF32) {
        reinterpret_cast<float *>(c)[to] = sum + reinterpret_cast<const float *>(bias)[j];
        continue;
      }
      const uint16_t added = reinterpret_cast<const uint16_t *>(bias)[j];
      sum += isBf16 ? runtime::widen<HalfType::BF16>(added) : runtime::widen<HalfType::F16>(added);
      reinterpret_cast<uint16_t *>(c)[to] = isBf16 ? runtime::narrow<HalfType::BF16>(sum)
                                                   : runtime::narrow<HalfType::F16>(sum);
    }
}

/// Runs a product with CPU routines, which have no bias. A bias is added afterwards.
static runtime::Status runProduct(runtime::CpuDevice &products,
                                  const bundle::CompiledFunction &function,
                                  const bundle::Launch &launch, const EmulatedCall &call) {
  bundle::CompiledFunction one = function;
  one.clear_launches();
  *one.add_launches() = launch;
  std::vector<runtime::DeviceAddress> addresses;
  addresses.reserve(call.arguments.size() + 1);
  for (char *argument : call.arguments)
    addresses.push_back(runtime::DeviceAddress::ofHost(argument));
  std::vector<float> sums;
  if (launch.matmul().has_bias()) {
    bundle::Matmul &product = *one.mutable_launches(0)->mutable_matmul();
    const int64_t m = at(product.m(), call.rows), n = at(product.n(), call.rows);
    sums.resize(size_t(m * n));
    bundle::FunctionArgument &argument = *one.add_arguments();
    argument.set_kind(bundle::WORKSPACE), argument.set_mode(bundle::WRITE);
    argument.mutable_bytes()->set_fixed(product.m().fixed() * n * 4),
        argument.mutable_bytes()->set_per_row(product.m().per_row() * n * 4);
    product.clear_c();
    product.mutable_c()->set_argument(uint32_t(one.arguments_size() - 1));
    if (product.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED)
      product.set_operand_type(product.type());
    product.set_type(bundle::F32), product.set_ldc(n);
    product.clear_bias();
    addresses.push_back(runtime::DeviceAddress::ofHost(sums.data()));
  }
  std::vector<uint8_t> overwrite = call.overwrite;
  overwrite.resize(addresses.size(), 1);
  runtime::Status status = products.runFunction(
      one, {{call.rows, call.sampleBase, call.rngIdBase}, addresses.data(), overwrite.data()});
  if (status.succeeded() && !sums.empty())
    addBias(launch.matmul(), sums, call);
  return status;
}

std::vector<std::string> emulator::runFunction(const RunKernel &runKernel,
                                               runtime::CpuDevice &products,
                                               const bundle::CompiledFunction &function,
                                               const EmulatedCall &call,
                                               const std::function<void()> &afterProduct) {
  for (const bundle::Launch &launch : function.launches()) {
    if (!launch.has_kernel()) {
      if (runtime::Status status = runProduct(products, function, launch, call); status.failed())
        return {status.message()};
      if (afterProduct)
        afterProduct();
      continue;
    }
    const bundle::KernelLaunch &kernel = launch.kernel();
    std::vector<std::string> findings = runKernel(kernel, gridOf(kernel, function, call));
    if (!findings.empty()) {
      findings.front() = kernel.symbol() + ": " + findings.front();
      return findings;
    }
  }
  return {};
}

std::vector<std::string> emulator::runFunction(const HostCode &code, runtime::CpuDevice &products,
                                               const bundle::CompiledFunction &function,
                                               const EmulatedCall &call,
                                               const KernelObserver &observe) {
  auto runKernel = [&](const bundle::KernelLaunch &kernel,
                       const GridLaunch &grid) -> std::vector<std::string> {
    const HostKernel *host = code.find(kernel.symbol());
    if (!host)
      return {"is not there"};
    Traffic traffic;
    std::vector<std::string> findings = runGrid(*host, grid, observe ? &traffic : nullptr);
    if (observe)
      observe(kernel, traffic);
    return findings;
  };
  return runFunction(runKernel, products, function, call, {});
}
