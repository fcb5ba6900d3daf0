#include "LowerKernel.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <mutex>

using namespace mlir;
using namespace zorse::codegen;

void zorse::codegen::initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

static void writeFile(const std::string &path, llvm::function_ref<void(raw_ostream &)> write) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (!error)
    write(out);
}

/// Transcendental functions in f32 become polynomials that LLVM can vectorise; in f64 they stay calls of libm.
static LogicalResult expandMath(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  // Not the whole expansion pass: it takes maximumf apart, which LLVM vectorises only as a whole.
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  arith::populateExpandBFloat16Patterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}

static LogicalResult lowerToLlvmDialect(ModuleOp module) {
  PassManager passes(module.getContext());
  passes.enableVerifier(false);
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createConvertMathToLibmPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createConvertFuncToLLVMPass()); // declarations of libm
  passes.addPass(createReconcileUnrealizedCastsPass());
  return passes.run(module);
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, unsigned level) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.LoopInterleaving = tuning.LoopUnrolling = tuning.SLPVectorization = level >= 2;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  static const llvm::OptimizationLevel levels[] = {llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1, llvm::OptimizationLevel::O2,
                                                   llvm::OptimizationLevel::O3};
  auto optimization = levels[std::min(level, 3u)];
  if (level == 0)
    builder.buildO0DefaultPipeline(optimization).run(module, modules);
  else
    builder.buildPerModuleDefaultPipeline(optimization).run(module, modules);
}

static llvm::Error emitFile(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type, llvm::raw_pwrite_stream &out) {
  llvm::legacy::PassManager emit;
  if (machine.addPassesToEmitFile(emit, out, nullptr, type))
    return llvm::createStringError("the target cannot emit this kind of file");
  emit.run(module);
  return llvm::Error::success();
}

llvm::Expected<std::string> zorse::codegen::lowerKernel(const std::string &symbol, const std::string &text, const KernelTarget &target,
                                                        const std::string &dump) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect, cf::ControlFlowDialect, func::FuncDialect,
                  vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::string messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; });
  auto fail = [&](const Twine &what) { return llvm::createStringError("kernel " + symbol + ": " + what.str() + ": " + messages); };

  if (!dump.empty())
    writeFile(dump + ".mlir", [&](raw_ostream &out) { out << text; });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return fail("does not parse");
  auto kernel = module->lookupSymbol<LLVM::LLVMFuncOp>("kernel");
  kernel.setSymName(symbol);
  if (auto needs = module->lookupSymbol<LLVM::GlobalOp>("needs"))
    needs.setSymName(symbol + "_needs");
  if (failed(expandMath(*module)) || failed(lowerToLlvmDialect(*module)))
    return fail("does not lower");

  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(*module, llvmContext, symbol);
  if (!llvmModule)
    return fail("does not translate to LLVM IR");

  llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target *llvmTarget = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return fail(error);
  llvm::TargetOptions targetOptions;
  targetOptions.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      llvmTarget->createTargetMachine(triple, target.cpu, target.features, targetOptions, llvm::Reloc::PIC_, std::nullopt,
                                      target.optimizationLevel >= 2 ? llvm::CodeGenOptLevel::Default : llvm::CodeGenOptLevel::Less));
  if (!machine)
    return fail("no target machine for " + target.cpu);
  llvmModule->setTargetTriple(triple);
  llvmModule->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *llvmModule) {
    function.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty())
      function.addFnAttr("target-features", target.features);
    // Several CPU models prefer 256-bit vectors by default; for streaming kernels 512 bits cost nothing and save instructions.
    function.addFnAttr("prefer-vector-width", "512");
    if (!function.isDeclaration())
      function.addFnAttr("no-trapping-math", "true");
  }
  optimize(*llvmModule, *machine, target.optimizationLevel);

  if (!dump.empty()) {
    writeFile(dump + ".ll", [&](raw_ostream &out) { llvmModule->print(out, nullptr); });
    auto clone = llvm::CloneModule(*llvmModule);
    std::error_code code;
    llvm::raw_fd_ostream out(dump + ".s", code);
    if (!code)
      if (llvm::Error failure = emitFile(*clone, *machine, llvm::CodeGenFileType::AssemblyFile, out))
        return std::move(failure);
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  if (llvm::Error failure = emitFile(*llvmModule, *machine, llvm::CodeGenFileType::ObjectFile, out))
    return std::move(failure);
  return std::string(bytes.begin(), bytes.end());
}
