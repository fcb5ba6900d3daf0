#include "LowerToPtx.h"

#include "CudaEmitters.h"
#include "TranslateKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/InferAddressSpaces.h"
#include "llvm/Transforms/Vectorize/LoadStoreVectorizer.h"

#include <cmath>
#include <mutex>

using namespace mlir;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

void cuda::initializePtx() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

namespace {

/// Computes e^x in f64 with an error of at most 2 units in the last place: x = n ln 2 + r, a Taylor
/// series for e^r, and n added to the exponent bits.
Value expF64(OpBuilder &b, Location loc, Value x) {
  auto number = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value));
  };
  auto fma = [&](Value p, Value q, Value r) -> Value {
    return math::FmaOp::create(b, loc, p, q, r);
  };
  // Outside of this range the result is 0 or infinite. NaN is kept.
  Value low = number(-708.0), high = number(709.7);
  Value held = arith::MaximumFOp::create(b, loc, arith::MinimumFOp::create(b, loc, x, high), low);
  Value n = math::FloorOp::create(b, loc, fma(held, number(1.4426950408889634), number(0.5)));
  Value r = fma(n, number(-6.93147180369123816490e-01), held);
  r = fma(n, number(-1.90821492927058770002e-10), r);
  double factorial = 1;
  for (int i = 2; i <= 14; ++i)
    factorial *= i;
  Value sum = number(1 / factorial);
  for (int i = 13; i >= 0; --i) {
    factorial /= i + 1;
    sum = fma(sum, r, number(1 / factorial));
  }
  Value exponent = arith::AddIOp::create(b, loc, arith::FPToSIOp::create(b, loc, b.getI64Type(), n),
                                         arith::ConstantIntOp::create(b, loc, 1023, 64));
  Value power = arith::BitcastOp::create(
      b, loc, b.getF64Type(),
      arith::ShLIOp::create(b, loc, exponent, arith::ConstantIntOp::create(b, loc, 52, 64)));
  Value result = arith::MulFOp::create(b, loc, sum, power);
  Value tiny = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, low);
  Value large = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, high);
  result = arith::SelectOp::create(b, loc, tiny, number(0), result);
  return arith::SelectOp::create(b, loc, large, number(INFINITY), result);
}

/// Expands the f64 functions that updates need: GPUs have no libm.
void expandF64(ModuleOp module) {
  module.walk([](Operation *op) {
    if (!isa<math::ExpOp, math::PowFOp>(op) || !op->getResult(0).getType().isF64())
      return;
    OpBuilder b(op);
    Value x = op->getOperand(0);
    if (isa<math::PowFOp>(op)) {
      FloatAttr base;
      if (auto constant = x.getDefiningOp<arith::ConstantOp>())
        base = dyn_cast<FloatAttr>(constant.getValue());
      if (!base || base.getValueAsDouble() < 0)
        return;
      const double value = base.getValueAsDouble();
      Value logarithm = arith::ConstantOp::create(
          b, op->getLoc(), b.getF64FloatAttr(value == 0 ? -INFINITY : std::log(value)));
      x = arith::MulFOp::create(b, op->getLoc(), op->getOperand(1), logarithm);
    }
    op->getResult(0).replaceAllUsesWith(expF64(b, op->getLoc(), x));
    op->erase();
  });
}

/// Replaces exponentials and quotients that may be approximate (TensorBuilder::expNearly) by one or
/// two instructions, in kernels that round their results to 16 bits. Exact polynomials and
/// quotients took longer than the memory accesses. PTX ISA: ex2.approx.ftz has a maximum relative
/// error of 2^-22, rcp.approx.ftz of one unit in the last place. Both flush numbers below 2^-126 to
/// 0.
void useSpecialFunctions(ModuleOp module) {
  if (!module->hasAttr(kHalfAttr))
    return;
  module.walk([](Operation *op) {
    auto fast = dyn_cast<arith::ArithFastMathInterface>(op);
    if (!fast || !isa<math::ExpOp, arith::DivFOp>(op) || !op->getResult(0).getType().isF32() ||
        !fast.getFastMathFlagsAttr() ||
        !bitEnumContainsAny(fast.getFastMathFlagsAttr().getValue(), arith::FastMathFlags::afn))
      return;
    OpBuilder b(op);
    Location loc = op->getLoc();
    auto number = [&](float value) -> Value {
      return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
    };
    auto call = [&](StringRef name, Value x) {
      return LLVM::CallIntrinsicOp::create(b, loc, b.getF32Type(), b.getStringAttr(name), x)
          .getResult(0);
    };
    Value x = op->getOperand(0), y;
    if (isa<math::ExpOp>(op))
      y = call("llvm.nvvm.ex2.approx.ftz", arith::MulFOp::create(b, loc, x, number(1.44269504f)));
    else
      y = arith::MulFOp::create(b, loc, x, call("llvm.nvvm.rcp.approx.ftz.f", op->getOperand(1)));
    op->getResult(0).replaceAllUsesWith(y);
    op->erase();
  });
}

void prepareMath(ModuleOp module) {
  expandF64(module);
  useSpecialFunctions(module);
}

/// Returns the text without LLVM's header.
llvm::StringRef withoutHeader(llvm::StringRef text) {
  constexpr llvm::StringLiteral last = ".address_size 64\n";
  size_t at = text.find(last);
  return at == llvm::StringRef::npos ? text : text.drop_front(at + last.size());
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> makeMachine(const cuda::PtxTarget &target) {
  const std::string chip = cuda::chipOf(target.chip).str();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *llvmTarget = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return llvm::createStringError(error);
  // LLVM writes the oldest PTX version that supports a chip. Warp shuffles need version 6.0.
  const char *features = chip == "sm_60" ? "+ptx60" : "";
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      llvmTarget->createTargetMachine(triple, chip, features, options, std::nullopt, std::nullopt,
                                      llvm::CodeGenOptLevel::Aggressive));
  if (!machine)
    return llvm::createStringError("LLVM has no code for '" + target.chip + "'");
  return std::move(machine);
}

llvm::Expected<std::string> emitPtx(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  if (llvm::Error failure = emitFile(module, machine, llvm::CodeGenFileType::AssemblyFile, out))
    return std::move(failure);
  return std::string(bytes.begin(), bytes.end());
}

/// Stops LLVM from keeping a separate running address for each access of a loop. Kernels that use
/// all registers of a thread cannot afford them: with running addresses, the causal forward of
/// attention with heads of 128 spilled 24 bytes on sm_80.
class NoRunningAddresses : public llvm::OptPassGate {
  bool isEnabled() const override { return true; }
  bool shouldRunPass(StringRef pass, StringRef) const override {
    return pass != "Loop Strength Reduction";
  }
};

/// Vectorizes neighboring loads and stores at the end of the optimization. Otherwise the code
/// generator would do it later, where it is not visible.
void joinAccesses(llvm::PassBuilder &builder) {
  builder.registerOptimizerLastEPCallback(
      [](llvm::ModulePassManager &passes, llvm::OptimizationLevel, llvm::ThinOrFullLTOPhase) {
        llvm::FunctionPassManager functions;
        functions.addPass(llvm::InferAddressSpacesPass());
        functions.addPass(llvm::LoadStoreVectorizerPass());
        passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(functions)));
      });
}

bool takesRegisters(const llvm::Module &module) {
  return llvm::any_of(module, [](const llvm::Function &function) {
    return function.hasFnAttribute("nvvm.minctasm");
  });
}

} // namespace

std::string cuda::ptxHeader(const PtxTarget &target) {
  if (target.isBitcode())
    return "";
  auto machine = makeMachine(target);
  if (!machine) {
    llvm::consumeError(machine.takeError());
    return "";
  }
  llvm::LLVMContext context;
  llvm::Module empty("header", context);
  empty.setTargetTriple((*machine)->getTargetTriple());
  empty.setDataLayout((*machine)->createDataLayout());
  llvm::Expected<std::string> text = emitPtx(empty, **machine);
  if (!text) {
    llvm::consumeError(text.takeError());
    return "";
  }
  return text->substr(0, text->size() - withoutHeader(*text).size());
}

llvm::Expected<std::string> cuda::lowerToPtx(const std::string &symbol, const std::string &text,
                                             const PtxTarget &target, const std::string &dump) {
  llvm::LLVMContext context;
  llvm::Expected<std::unique_ptr<llvm::Module>> translated =
      translateKernel(context, symbol, text, dump, prepareMath);
  if (!translated)
    return translated.takeError();
  llvm::Module &module = **translated;
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = makeMachine(target);
  if (!machine)
    return machine.takeError();
  module.setTargetTriple((*machine)->getTargetTriple());
  module.setDataLayout((*machine)->createDataLayout());
  // Kernels of one file share one name space.
  for (llvm::GlobalVariable &global : module.globals())
    if (global.hasLocalLinkage() || global.getAddressSpace() == kSharedMemory)
      global.setName(symbol + "_" + global.getName());
  for (llvm::Function &function : module) {
    if (function.isDeclaration() && !function.isIntrinsic())
      return llvm::createStringError("kernel " + symbol + ": calls '" + function.getName().str() +
                                     "', which GPUs have no code for");
    function.addFnAttr("target-cpu", (*machine)->getTargetCPU());
  }
  optimize(module, **machine, target.optimizationLevel, joinAccesses);
  if (!dump.empty())
    writeDump(dump + ".ll", [&](llvm::raw_ostream &out) { module.print(out, nullptr); });
  if (target.isBitcode()) {
    std::string bytes;
    llvm::raw_string_ostream out(bytes);
    llvm::WriteBitcodeToFile(module, out);
    out.flush();
    return bytes;
  }
  NoRunningAddresses gate;
  if (takesRegisters(module))
    context.setOptPassGate(gate);
  llvm::Expected<std::string> ptx = emitPtx(module, **machine);
  if (!ptx)
    return ptx.takeError();
  if (!dump.empty())
    writeDump(dump + ".ptx", [&](llvm::raw_ostream &out) { out << *ptx; });
  return withoutHeader(*ptx).str();
}
