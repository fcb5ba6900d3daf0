#include "LowerKernel.h"

#include "TranslateKernel.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <mutex>

using namespace zorse::codegen;

void zorse::codegen::initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

llvm::Expected<std::string> zorse::codegen::lowerKernel(const std::string &symbol,
                                                        const std::string &text,
                                                        const KernelTarget &target,
                                                        const std::string &dump) {
  llvm::LLVMContext context;
  llvm::Expected<std::unique_ptr<llvm::Module>> llvmModule =
      translateKernel(context, symbol, text, dump);
  if (!llvmModule)
    return llvmModule.takeError();
  llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target *llvmTarget = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return llvm::createStringError("kernel " + symbol + ": " + error);
  llvm::TargetOptions targetOptions;
  targetOptions.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(llvmTarget->createTargetMachine(
      triple, target.cpu, target.features, targetOptions, llvm::Reloc::PIC_, std::nullopt,
      target.optimizationLevel >= 2 ? llvm::CodeGenOptLevel::Default
                                    : llvm::CodeGenOptLevel::Less));
  if (!machine)
    return llvm::createStringError("kernel " + symbol + ": no target machine for " + target.cpu);
  (*llvmModule)->setTargetTriple(triple);
  (*llvmModule)->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : **llvmModule) {
    function.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty())
      function.addFnAttr("target-features", target.features);
    // Several CPU models prefer 256-bit vectors by default. For streaming kernels, 512 bits cost
    // nothing and need fewer instructions.
    function.addFnAttr("prefer-vector-width", "512");
    if (!function.isDeclaration())
      function.addFnAttr("no-trapping-math", "true");
  }
  optimize(**llvmModule, *machine, target.optimizationLevel);

  if (!dump.empty()) {
    writeDump(dump + ".ll", [&](llvm::raw_ostream &out) { (*llvmModule)->print(out, nullptr); });
    auto clone = llvm::CloneModule(**llvmModule);
    std::error_code code;
    llvm::raw_fd_ostream out(dump + ".s", code);
    if (!code)
      if (llvm::Error failure =
              emitFile(*clone, *machine, llvm::CodeGenFileType::AssemblyFile, out))
        return std::move(failure);
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  if (llvm::Error failure =
          emitFile(**llvmModule, *machine, llvm::CodeGenFileType::ObjectFile, out))
    return std::move(failure);
  return std::string(bytes.begin(), bytes.end());
}
