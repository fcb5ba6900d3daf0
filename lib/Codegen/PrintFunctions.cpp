// Prints compiled functions and kernels as text: `zorse-opt --zorse-compile-functions`.
#include "KernelSet.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

static std::string text(const bundle::AffineSize &extent) {
  std::string fixed = std::to_string(extent.fixed()),
              perRow = std::to_string(extent.per_row()) + " per row";
  return extent.per_row() == 0 ? fixed : extent.fixed() == 0 ? perRow : fixed + " + " + perRow;
}

static std::string text(const bundle::CompiledFunction &compiled, const bundle::Pointer &pointer) {
  if (pointer.argument() >= static_cast<uint32_t>(compiled.arguments_size()))
    return "-";
  std::string result = compiled.arguments(pointer.argument()).name();
  if (pointer.fixed() != 0 || pointer.per_row() != 0) {
    bundle::AffineSize offset;
    offset.set_fixed(pointer.fixed());
    offset.set_per_row(pointer.per_row());
    result += "[" + text(offset) + "]";
  }
  return result;
}

static void printLaunch(const bundle::CompiledFunction &compiled, const bundle::Launch &launch,
                        llvm::StringMap<unsigned> &numbers, raw_ostream &os) {
  auto operands = [&](const auto &list, const auto &accumulates) {
    for (auto [i, pointer] : llvm::enumerate(list))
      os << (i ? ", " : "") << (llvm::is_contained(accumulates, i) ? "+=" : "")
         << text(compiled, pointer);
  };
  if (launch.has_kernel()) {
    const bundle::KernelLaunch &kernel = launch.kernel();
    StringRef symbol = kernel.symbol();
    unsigned number = numbers.try_emplace(symbol, numbers.size()).first->second;
    os << "  kernel " << number << " " << symbol.rsplit('_').first << "(";
    operands(kernel.operands(), kernel.accumulates());
    os << ") iterations " << text(kernel.iterations()) << "\n";
  } else if (launch.has_matmul()) {
    const bundle::Matmul &matmul = launch.matmul();
    os << "  matmul " << (matmul.accumulates() ? "+=" : "") << text(compiled, matmul.c()) << " = "
       << text(compiled, matmul.a()) << (matmul.transpose_a() ? "^T" : "") << " * "
       << text(compiled, matmul.b()) << (matmul.transpose_b() ? "^T" : "") << " m "
       << text(matmul.m()) << " n " << text(matmul.n()) << " k " << text(matmul.k()) << " batch "
       << text(matmul.batch()) << " ld " << matmul.lda() << " " << matmul.ldb() << " "
       << matmul.ldc() << (matmul.has_bias() ? " + " + text(compiled, matmul.bias()) : "") << "\n";
  } else if (launch.has_exchange()) {
    os << "  exchange " << compiled.arguments(static_cast<int>(launch.exchange().argument())).name()
       << "\n";
  } else {
    os << "  library " << launch.library().name() << "(";
    operands(launch.library().operands(), launch.library().accumulates());
    os << ")\n";
  }
}

LogicalResult zorse::codegen::printFunctions(ModuleOp functions, raw_ostream &os, bool withKernels,
                                             const std::string &arch) {
  CodegenOptions options;
  options.arch = arch;
  std::shared_ptr<KernelSet> kernels = makeKernels(options);
  llvm::StringMap<unsigned> numbers;
  for (func::FuncOp function : functionsInOrder(functions)) {
    if (function.isDeclaration() ||
        (function.getNumArguments() == 0 && function.getNumResults() == 0))
      continue;
    bundle::CompiledFunction compiled;
    FunctionSizes sizes;
    if (failed(lowerFunction(function, *kernels, compiled, sizes)))
      return failure();
    os << "function @" << compiled.name() << ": saved " << text(sizes.saved) << ", workspace "
       << text(sizes.workspace) << " bytes, " << sizes.flopsPerRow << " flops per row\n";
    for (const bundle::FunctionArgument &argument : compiled.arguments())
      os << "  argument " << argument.name() << ": "
         << StringRef(bundle::AccessMode_Name(argument.mode())).lower() << ", "
         << text(argument.bytes()) << " bytes\n";
    for (const bundle::Launch &launch : compiled.launches())
      printLaunch(compiled, launch, numbers, os);
  }
  if (withKernels)
    for (const auto &[symbol, kernel] : kernels->kernels()) {
      auto number = numbers.find(symbol);
      os << "// kernel " << (number == numbers.end() ? 0 : number->second) << " "
         << StringRef(symbol).rsplit('_').first << "\n"
         << KernelSet::textOf(kernel);
    }
  return success();
}

namespace {
struct CompileFunctionsPass : PassWrapper<CompileFunctionsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CompileFunctionsPass)

  CompileFunctionsPass() = default;
  CompileFunctionsPass(const CompileFunctionsPass &other) : PassWrapper(other) {}

  StringRef getArgument() const final { return "zorse-compile-functions"; }
  StringRef getDescription() const final {
    return "Lower unit functions to compiled functions and print them; optionally their kernels as "
           "MLIR, LLVM IR and assembly";
  }

  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                    LLVM::LLVMDialect>();
  }

  LogicalResult verifyOrder() {
    if (getOperation().lookupSymbol<func::FuncOp>(attributes::kModel) &&
        getOperation().getOps<ClassOp>().empty())
      return getOperation().emitError(getArgument())
             << ": expected functions of units, found '@model': run "
                "--zorse-train-pipeline=from=recognized first";
    for (auto unitClass : getOperation().getOps<ClassOp>())
      if (func::FuncOp joint = unitClass.function(Task::Joint))
        return getOperation().emitError(getArgument())
               << ": expected functions of units, found joint function '"
               << compiledFunctionName(joint) << "': run --zorse-slice-joint first";
    return success();
  }

  void runOnOperation() final {
    const std::vector<std::string> &known = findDeviceKind("cuda")->architectures;
    if (StringRef(arch).starts_with("sm_") && !llvm::is_contained(known, arch)) {
      getOperation().emitError(getArgument())
          << ": expected arch= to be one of " << llvm::join(known, ", ")
          << ", an LLVM CPU name or native, found '" << arch << "'";
      return signalPassFailure();
    }
    if (ptx && (!isCudaArch(arch) || arch == "emu")) {
      getOperation().emitError(getArgument())
          << ": ptx: expected a CUDA architecture such as arch=sm_80, found '" << arch
          << "', which does not produce PTX";
      return signalPassFailure();
    }
    if (failed(verifyOrder()))
      return signalPassFailure();
    if (arch != "native") // there may be several architectures
      llvm::outs() << "// functions for " << arch << "\n";
    if (failed(printFunctions(getOperation(), llvm::outs(), kernels, arch)))
      return signalPassFailure();
    if (dumpDir.empty() && !ptx)
      return;
    CodegenOptions options;
    options.arch = arch;
    options.dumpDir = dumpDir;
    options.useCache = dumpDir.empty();
    FailureOr<CompiledFunctions> compiled = compileFunctions(getOperation(), options);
    if (failed(compiled))
      return signalPassFailure();
    if (ptx)
      llvm::outs() << compiled->object;
  }

  Option<bool> kernels{*this, "kernels", llvm::cl::desc("Print the kernels as MLIR"),
                       llvm::cl::init(false)};
  Option<std::string> arch{
      *this, "arch",
      llvm::cl::desc("An LLVM CPU name, native, or a CUDA architecture such as sm_80"),
      llvm::cl::init("native")};
  Option<bool> ptx{
      *this, "ptx",
      llvm::cl::desc("Compile for a CUDA architecture, and print the PTX after the functions"),
      llvm::cl::init(false)};
  Option<std::string> dumpDir{
      *this, "dump-dir",
      llvm::cl::desc(
          "Compile, and write every kernel as .mlir, .ll and .s or .ptx to this directory"),
      llvm::cl::init("")};
};
} // namespace

void zorse::codegen::registerPasses() { PassRegistration<CompileFunctionsPass>(); }
