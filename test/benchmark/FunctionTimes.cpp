// function-times FUNCTIONS.mlir [--rows N] [--threads N] [--function NAME] [--dump DIR]
// [--no-cache]: times the launches of compiled unit functions.
//
//     zorse-import model.onnx --seq-length=256 | zorse-opt --zorse-train-pipeline > units.mlir
//     function-times units.mlir --rows 4
//
// Every launch runs alone on buffers of its size. GB/s are the bytes that codegen counts, divided
// by the time. The share of the matrix products shows how much of a step the other launches take.
#include "bundle.pb.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/runtime/CpuDevice.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

using namespace zorse;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
  int64_t rows = 1;
  int threads = 1;
  std::string file, only;
  codegen::CodegenOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (argument == "--rows")
      rows = std::atoll(value().c_str());
    else if (argument == "--threads")
      threads = std::atoi(value().c_str());
    else if (argument == "--function")
      only = value();
    else if (argument == "--dump")
      options.dumpDir = value();
    else if (argument == "--no-cache")
      options.useCache = false;
    else
      file = argument;
  }
  if (file.empty() || rows < 1 || threads < 1) {
    std::fprintf(stderr, "usage: function-times FUNCTIONS.mlir [--rows N] [--threads N] "
                         "[--function NAME] [--dump DIR] [--no-cache]\n");
    return 1;
  }
  mlir::DialectRegistry registry;
  registry.insert<ZorseDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                  mlir::func::FuncDialect>();
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(file, &context);
  if (!module)
    return 1;
  double start = now();
  auto compiled = codegen::compileFunctions(*module, options);
  if (failed(compiled))
    return 1;
  std::printf("%u kernels, %u compiled, %.2f s\n", compiled->kernels, compiled->compiled,
              now() - start);
  std::string path = (std::filesystem::temp_directory_path() /
                      ("function-times-" + std::to_string(getpid()) + ".so"))
                         .string();
  std::ofstream(path, std::ios::binary) << compiled->object;
  runtime::CpuDeviceOptions deviceOptions;
  deviceOptions.threads = threads;
  deviceOptions.spin = true;
  auto device = runtime::CpuDevice::create(deviceOptions);
  if (device.failed() || (*device)->loadObject(path).failed()) {
    std::fprintf(stderr, "the device or its kernels cannot be loaded\n");
    return 1;
  }
  std::filesystem::remove(path);

  for (const bundle::CompiledFunction &function : compiled->library.functions()) {
    if (!only.empty() && function.name() != only)
      continue;
    // Update functions are called with a number of elements, not of samples.
    int64_t functionRows = llvm::StringRef(function.name()).starts_with("update") ? 10000000 : rows;
    std::printf("\n%s\n", function.name().c_str());
    std::vector<runtime::DeviceAddress> addresses;
    std::vector<uint8_t> overwrite(function.arguments_size(), 1);
    for (const bundle::FunctionArgument &slot : function.arguments()) {
      size_t bytes = (slot.bytes().fixed() + slot.bytes().per_row() * functionRows + 127) / 64 * 64;
      char *data = static_cast<char *>(std::aligned_alloc(64, bytes));
      bool integers = slot.type() == bundle::I64 || slot.type() == bundle::I32 ||
                      slot.kind() == bundle::SCALARS;
      std::fill(data, data + bytes, 0);
      if (!integers)
        for (size_t i = 0; i < bytes / 4; ++i)
          reinterpret_cast<float *>(data)[i] = 0.01f * static_cast<float>(i % 97);
      addresses.push_back(runtime::DeviceAddress::ofHost(data));
    }
    double total = 0, products = 0;
    for (const bundle::Launch &launch : function.launches()) {
      bundle::CompiledFunction one = function;
      one.clear_launches();
      *one.add_launches() = launch;
      double best = 1e9;
      for (int repeat = 0; repeat < 4; ++repeat) {
        double begin = now();
        auto status =
            (*device)->runFunction(one, {{functionRows}, addresses.data(), overwrite.data()});
        if (status.failed()) {
          std::fprintf(stderr, "%s\n", status.message().c_str());
          return 1;
        }
        best = std::min(best, now() - begin);
      }
      total += best;
      if (launch.has_matmul()) {
        products += best;
        const bundle::Matmul &p = launch.matmul();
        auto size = [&](const bundle::AffineSize &extent) {
          return static_cast<double>(extent.fixed() + extent.per_row() * functionRows);
        };
        std::printf("  %8.3f ms  product %gx%gx%g b%g  %.1f GFLOP/s\n", best * 1e3, size(p.m()),
                    size(p.n()), size(p.k()), size(p.batch()),
                    2e-9 * size(p.m()) * size(p.n()) * size(p.k()) * size(p.batch()) / best);
      } else if (launch.has_library()) {
        std::printf("  %8.3f ms  %s\n", best * 1e3, launch.library().name().c_str());
      } else {
        double bytes = launch.kernel().cost().fixed() +
                       static_cast<double>(launch.kernel().cost().per_row()) * functionRows;
        std::printf("  %8.3f ms  %s  %lld points, %.1f GB/s\n", best * 1e3,
                    launch.kernel().symbol().c_str(),
                    static_cast<long long>(launch.kernel().iterations().fixed() +
                                           launch.kernel().iterations().per_row() * functionRows),
                    bytes / best / 1e9);
      }
    }
    std::printf("  %8.3f ms  in all, %.1f %% in products\n", total * 1e3, 100 * products / total);
    for (runtime::DeviceAddress slot : addresses)
      std::free(slot.onHost());
  }
  return 0;
}
