// Counts the memory traffic of GPU kernels on the emulator: for every kernel of every function, the
// fraction of the moved bytes that some thread requests, and the number of times that each touched
// sector is moved.
//
//   kernel-traffic UNITS.mlir [ROWS] [LEAST EFFICIENCY] [MOST TIMES] [MOST FORWARD] [MOST BACKWARD]
//                  [MOST CONFLICTS]
//
// UNITS.mlir is the output of zorse-compile --compile-to=backward --emit units. Fails on findings,
// and if the efficiency of all kernels together is below LEAST EFFICIENCY. A block consists of the
// functions of the classes "attention" and "mlp". Fails if its sectors are moved more than MOST
// TIMES, or if its forward or backward launches more kernels than MOST FORWARD or MOST BACKWARD,
// not counting those of attention. MOST CONFLICTS limits the shared memory wavefronts of a single
// kernel, relative to those without bank conflicts.
#include "EmulatedFunction.h"

#include "zorse/Codegen/Codegen.h"
#include "zorse/Dialect/Zorse/ZorseDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <cstdio>
#include <cstdlib>
#include <random>

using namespace zorse;

int main(int argc, char **argv) {
  if (argc < 2)
    return std::fprintf(stderr, "usage: kernel-traffic UNITS.mlir [ROWS] [LEAST EFFICIENCY] [MOST "
                                "TIMES] [MOST FORWARD] [MOST BACKWARD] [MOST CONFLICTS]\n"),
           2;
  const int64_t rows = argc > 2 ? std::atoi(argv[2]) : 1;
  const double min = argc > 3 ? std::atof(argv[3]) : 0, max = argc > 4 ? std::atof(argv[4]) : 1e9,
               maxConflicts = argc > 7 ? std::atof(argv[7]) : 1e9;
  mlir::DialectRegistry registry;
  registry.insert<ZorseDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                  mlir::func::FuncDialect>();
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(argv[1], &context);
  if (!module)
    return 2;
  // Kernels then name the operations they come from.
  module->walk(
      [&](mlir::Operation *op) { op->setLoc(mlir::NameLoc::get(op->getName().getIdentifier())); });
  codegen::CodegenOptions options;
  options.arch = "emu";
  auto compiled = codegen::compileFunctions(*module, options);
  if (mlir::failed(compiled))
    return 2;
  std::string error;
  auto code = emulator::HostCode::compile(compiled->object, error);
  auto products = runtime::CpuDevice::create({});
  if (!code || products.failed())
    return std::fprintf(stderr, "%s\n", code ? products.message().c_str() : error.c_str()), 2;
  const int maxLaunches[2] = {argc > 5 ? std::atoi(argv[5]) : 1 << 20,
                              argc > 6 ? std::atoi(argv[6]) : 1 << 20};
  emulator::Traffic all, block;
  int launches[2] = {0, 0}, attentions[2] = {0, 0}; // in a block's forward and backward; those of
                                                    // attention are counted separately
  auto add = [](emulator::Traffic &to, const emulator::Traffic &from) {
    to.usedBytes += from.usedBytes;
    to.sectors += from.sectors;
    to.distinctSectors += from.distinctSectors;
  };
  bool good = true;
  double conflicts = 1; // maximum over kernels
  for (const bundle::CompiledFunction &function : compiled->library.functions()) {
    std::vector<std::vector<uint64_t>> buffers;
    emulator::EmulatedCall call{
        rows, 0, 0, {}, std::vector<uint8_t>(size_t(function.arguments_size()), 1)};
    std::mt19937 random(1); // NOLINT(bugprone-random-generator-seed): the same numbers in every run
    for (const bundle::FunctionArgument &argument : function.arguments()) {
      const size_t bytes = size_t(argument.bytes().fixed() + argument.bytes().per_row() * rows);
      std::vector<uint64_t> &buffer = buffers.emplace_back(bytes / 8 + 32);
      auto *begin = reinterpret_cast<char *>(buffer.data());
      begin += (256 - reinterpret_cast<uintptr_t>(begin) % 256) % 256;
      buffer.resize(buffer.size() + 32);
      begin = reinterpret_cast<char *>(buffer.data());
      begin += (256 - reinterpret_cast<uintptr_t>(begin) % 256) % 256;
      call.arguments.push_back(begin);
      if (argument.type() == bundle::F32)
        for (size_t i = 0; i < bytes / 4; ++i)
          reinterpret_cast<float *>(begin)[i] = float(random() % 1000) / 1000 - 0.5f;
      else if (argument.kind() == bundle::INPUT)
        for (size_t i = 0; i < bytes / 8; ++i)
          reinterpret_cast<int64_t *>(begin)[i] = int64_t(random() % 50);
    }
    int kernels = 0;
    const auto isOf = [&](const char *what) {
      return function.name().find(what) != std::string::npos;
    };
    const bool ofBlock = (isOf("attention.") || isOf("mlp.")) &&
                         (isOf(".forward") || isOf(".backward")) && !isOf(".backward_");
    for (const bundle::Launch &launch : function.launches())
      if (ofBlock && launch.has_kernel())
        ++(launch.origin().find("zorse.attention") == std::string::npos
               ? launches
               : attentions)[isOf(".backward")];
    auto observe = [&](const bundle::KernelLaunch &kernel, const emulator::Traffic &traffic) {
      ++kernels;
      std::printf("%-26s %-60.60s %9.1f KiB  efficiency %.3f  moved %.2f times  conflicts %.3f\n",
                  function.name().c_str(), kernel.symbol().c_str(),
                  double(traffic.sectors) * 32 / 1024, traffic.efficiency(),
                  double(traffic.sectors) / double(traffic.distinctSectors),
                  traffic.conflictFactor());
      conflicts = std::max(conflicts, traffic.conflictFactor());
      add(all, traffic);
      if (ofBlock)
        add(block, traffic);
    };
    for (const std::string &finding :
         emulator::runFunction(*code, **products, function, call, observe)) {
      std::printf("finding in %s: %s\n", function.name().c_str(), finding.c_str());
      good = false;
    }
    std::printf("%s: %d kernels\n", function.name().c_str(), kernels);
  }
  const auto times = [](const emulator::Traffic &traffic) {
    return double(traffic.sectors) / double(std::max<uint64_t>(traffic.distinctSectors, 1));
  };
  std::printf("all kernels: %.3f of the bytes moved are asked for, sectors are moved %.2f times "
              "each; a block: %.2f times, %d launches forward and %d "
              "backward, not counting products and attention's %d and %d; at most %.3f bank "
              "conflicts in a kernel\n",
              all.efficiency(), times(all), times(block), launches[0], launches[1], attentions[0],
              attentions[1], conflicts);
  return good && conflicts <= maxConflicts && all.efficiency() >= min && times(block) <= max &&
                 launches[0] <= maxLaunches[0] && launches[1] <= maxLaunches[1]
             ? 0
             : 1;
}
