#include "TranslateKernel.h"

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

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace zorse::codegen;

void zorse::codegen::writeDump(const std::string &path,
                               llvm::function_ref<void(raw_ostream &)> write) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (!error)
    write(out);
}

/// Expands transcendental functions in f32 to polynomials, which LLVM can vectorize. In f64 they
/// remain calls of libm.
static LogicalResult expandMath(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  // The complete expansion pass is not used: it decomposes maximumf, which LLVM vectorizes only as
  // one operation.
  arith::populateCeilFloorDivExpandOpsPatterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}

/// Removes permissions to approximate that were not used, so that operations are exact. Shortcuts
/// of targets would differ between targets.
static void dropApproximations(ModuleOp module) {
  module.walk([](arith::ArithFastMathInterface op) {
    if (arith::FastMathFlagsAttr flags = op.getFastMathFlagsAttr())
      op->setAttr(op.getFastMathAttrName(),
                  arith::FastMathFlagsAttr::get(op->getContext(),
                                                flags.getValue() & ~arith::FastMathFlags::afn));
  });
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

void zorse::codegen::optimize(llvm::Module &module, llvm::TargetMachine &machine, unsigned level,
                              llvm::function_ref<void(llvm::PassBuilder &)> extend) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.LoopInterleaving = tuning.LoopUnrolling =
      tuning.SLPVectorization = level >= 2;
  llvm::PassBuilder builder(&machine, tuning);
  if (extend)
    extend(builder);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  static const llvm::OptimizationLevel levels[] = {
      llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1, llvm::OptimizationLevel::O2,
      llvm::OptimizationLevel::O3};
  auto optimization = levels[std::min(level, 3u)];
  if (level == 0)
    builder.buildO0DefaultPipeline(optimization).run(module, modules);
  else
    builder.buildPerModuleDefaultPipeline(optimization).run(module, modules);
}

llvm::Error zorse::codegen::emitFile(llvm::Module &module, llvm::TargetMachine &machine,
                                     llvm::CodeGenFileType type, llvm::raw_pwrite_stream &out) {
  llvm::legacy::PassManager emit;
  if (machine.addPassesToEmitFile(emit, out, nullptr, type))
    return llvm::createStringError("the target cannot emit this file type");
  emit.run(module);
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::Module>>
zorse::codegen::translateKernel(llvm::LLVMContext &llvmContext, const std::string &symbol,
                                const std::string &text, const std::string &dump,
                                llvm::function_ref<void(ModuleOp)> prepare) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect,
                  cf::ControlFlowDialect, func::FuncDialect, vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::string messages;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; });
  auto fail = [&](const Twine &what) {
    return llvm::createStringError("kernel " + symbol + ": " + what.str() + ": " + messages);
  };

  if (!dump.empty())
    writeDump(dump + ".mlir", [&](raw_ostream &out) { out << text; });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return fail("does not parse");
  auto kernel = module->lookupSymbol<LLVM::LLVMFuncOp>("kernel");
  kernel.setSymName(symbol);
  if (auto needs = module->lookupSymbol<LLVM::GlobalOp>("needs"))
    needs.setSymName(symbol + "_needs");
  if (prepare)
    prepare(*module);
  dropApproximations(*module);
  if (failed(expandMath(*module)) || failed(lowerToLlvmDialect(*module)))
    return fail("does not lower");
  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(*module, llvmContext, symbol);
  if (!llvmModule)
    return fail("does not translate to LLVM IR");
  return std::move(llvmModule);
}
