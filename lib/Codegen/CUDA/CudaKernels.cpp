// Kernels for GPUs of one architecture, in one PTX file.
#include "CudaEmitters.h"
#include "FuseBiases.h"
#include "KernelSet.h"
#include "LowerToPtx.h"

#include "llvm/ADT/StringRef.h"

using namespace zorse;
using namespace zorse::codegen;

bool zorse::codegen::isCudaArch(const std::string &arch) {
  return cuda::chipOf(arch).starts_with("sm_");
}

llvm::StringRef cuda::chipOf(llvm::StringRef arch) {
  if (arch == "emu")
    return "sm_80";
  arch.consume_front("emu:");
  return arch;
}

std::optional<int> cuda::capabilityOf(llvm::StringRef chip) {
  int number = 0;
  chip = chipOf(chip);
  return chip.consume_front("sm_") && !chip.consumeInteger(10, number) ? std::optional(number)
                                                                       : std::nullopt;
}

namespace {

class CudaKernels final : public KernelSet {
public:
  CudaKernels(const CodegenOptions &options, cuda::PtxTarget target)
      : KernelSet(options, "cuda " + target.chip), target(std::move(target)) {
    cuda::initializePtx();
  }

  llvm::StringRef name() const override { return "CUDA"; }
  mlir::LogicalResult prepare(mlir::func::FuncOp function) override {
    fuseBiases(function);
    return cuda::prepareAttention(function, target.chip);
  }
  bool wantsFewLaunches() const override { return true; }
  Kernel row(const KernelContext &context, int cluster) override {
    return cuda::buildRowKernel(context, cluster, conversions());
  }
  Kernel column(const KernelContext &context, int cluster) override {
    return cuda::buildColumnKernel(context, cluster, conversions());
  }
  Kernel scatter(const KernelContext &context, int cluster) override {
    return cuda::buildScatterKernel(context, cluster, conversions());
  }
  int64_t attentionScratch(mlir::Operation *op) override { return cuda::attentionScratch(op); }
  mlir::FailureOr<std::vector<Kernel>> attention(const KernelContext &context,
                                                 int cluster) override {
    return cuda::buildAttention(context, cluster, target.chip);
  }
  std::optional<Kernel> routine(mlir::MLIRContext *context,
                                const bundle::CompiledFunction &compiled,
                                const bundle::LibraryCall &call) override {
    return cuda::buildRoutine(context, compiled, call, conversions());
  }
  std::string arch() const override { return target.chip; }
  const char *object() const override { return target.isBitcode() ? "kernels.bc" : "kernels.ptx"; }

private:
  cuda::PtxTarget target;

  cuda::HalfConversions conversions() const {
    return {/*f16=*/true, /*bf16=*/*cuda::capabilityOf(target.chip) >= 80};
  }

  llvm::Expected<std::string> compile(const std::string &symbol,
                                      const std::string &text) const override {
    return cuda::lowerToPtx(symbol, text, target, dumpOf(symbol));
  }

  llvm::Expected<std::string> join(const Objects &objects) const override {
    std::string all;
    if (!target.isBitcode()) {
      all = cuda::ptxHeader(target);
      for (const auto &[symbol, text] : objects)
        all += text;
      return all;
    }
    // Modules in sequence, each preceded by its length. A length of 0 ends the list.
    for (const auto &[symbol, bytes] : objects) {
      uint64_t length = bytes.size();
      all.append(reinterpret_cast<const char *>(&length), sizeof length);
      all += bytes;
    }
    return all + std::string(sizeof(uint64_t), '\0');
  }
};

} // namespace

std::shared_ptr<KernelSet> zorse::codegen::makeCudaKernels(const CodegenOptions &options) {
  return std::make_shared<CudaKernels>(options,
                                       cuda::PtxTarget{options.arch, options.optimizationLevel});
}
