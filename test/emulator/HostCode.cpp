#include "HostCode.h"

#include "ContractProducts.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <set>

using namespace llvm;
using namespace zorse::emulator;

struct HostCode::Implementation {
  std::unique_ptr<orc::LLJIT> jit;
  std::map<std::string, HostKernel> kernels;
  std::map<std::string, Range> tables;
  std::vector<std::unique_ptr<std::vector<std::string>>> sites;
  int places[4] = {};
};

HostCode::HostCode() : impl(new Implementation) {}
HostCode::~HostCode() = default;

const HostKernel *HostCode::find(const std::string &symbol) const {
  auto found = impl->kernels.find(symbol);
  return found == impl->kernels.end() ? nullptr : &found->second;
}

int HostCode::places(PlantedBug::Kind kind) const { return impl->places[kind]; }

Range HostCode::table(const std::string &name) const {
  auto found = impl->tables.find(name);
  return found == impl->tables.end() ? Range() : found->second;
}

namespace {

/// Rewrites one module.
class Rewriter {
public:
  Rewriter(Module &module, std::vector<std::string> &sites, bool check, PlantedBug bug, int *places)
      : module(module), context(module.getContext()), sites(sites), check(check), bug(bug),
        placesOf(places) {}

  HostKernel kernel;
  std::string symbol;
  std::set<std::string> unknown;
  struct Table {
    std::string name;
    uint64_t bytes;
    bool constant; ///< otherwise memory that all blocks share
  };
  std::vector<Table> tables;

  void run() {
    word = Type::getInt32Ty(context);
    kernel.checked = check;
    placeShared();
    for (Function &function : make_early_inc_range(module.functions())) {
      if (function.isDeclaration())
        continue;
      if (function.getCallingConv() == CallingConv::PTX_Kernel) {
        kernel.parameters = unsigned(function.arg_size());
        if (const Attribute threads = function.getFnAttribute("nvvm.reqntid"); threads.isValid())
          (void)!threads.getValueAsString().getAsInteger(10, kernel.blockThreads);
        symbol = function.getName().str();
      }
      function.setCallingConv(CallingConv::C);
      function.setAttributes(AttributeList()); // they belong to another target, and their
                                               // guarantees about memory no longer hold
      rewrite(function);
    }
    for (GlobalVariable &global : module.globals()) {
      if (global.getAddressSpace() == 3)
        continue;
      global.setLinkage(GlobalValue::ExternalLinkage);
      tables.push_back({global.getName().str(),
                        module.getDataLayout().getTypeAllocSize(global.getValueType()),
                        global.isConstant()});
    }
    makeCall();
  }

private:
  Module &module;
  LLVMContext &context;
  std::vector<std::string> &sites;
  bool check;
  PlantedBug bug;
  int *placesOf;
  /// Whether the bug belongs here. Counts the place.
  bool plants(PlantedBug::Kind kind, Instruction &at) {
    if (placesOf[kind]++ != bug.number || bug.kind != kind)
      return false;
    // A guard that never closes at the sizes of a test has no effect there.
    IRBuilder<> b(&at);
    Type *flag = Type::getInt32Ty(context);
    Value *matters = ConstantInt::get(flag, 1);
    if (kind == PlantedBug::OpenGuard) {
      b.SetInsertPoint(at.getNextNode());
      matters = b.CreateZExt(b.CreateNot(&at), flag);
    }
    b.CreateCall(hook("emu_reached", Type::getVoidTy(context), {flag}), {matters});
    return true;
  }
  /// Whether a comparison decides anything. Comparisons that only assumptions use are notes of the
  /// optimizer.
  static bool decides(ICmpInst &compare) {
    return any_of(compare.users(), [](User *user) { return !isa<AssumeInst>(user); });
  }
  Type *word = nullptr;
  DenseMap<GlobalVariable *, uint64_t> places;

  FunctionCallee hook(StringRef name, Type *result, ArrayRef<Type *> parameters) {
    return module.getOrInsertFunction(name, FunctionType::get(result, parameters, false));
  }

  Value *site(Instruction &instruction) {
    std::string text;
    raw_string_ostream out(text);
    instruction.print(out);
    sites.push_back(symbol + ":" + StringRef(text).substr(0, 120).str());
    return ConstantInt::get(word, sites.size() - 1);
  }

  void placeShared() {
    for (GlobalVariable &global : module.globals())
      if (global.getAddressSpace() == 3 && !global.isDeclaration()) {
        const uint64_t alignment = std::max<uint64_t>(16, global.getAlign().valueOrOne().value());
        kernel.sharedBytes = (kernel.sharedBytes + alignment - 1) / alignment * alignment;
        places[&global] = kernel.sharedBytes;
        kernel.sharedBytes += module.getDataLayout().getTypeAllocSize(global.getValueType());
      }
    for (GlobalVariable &global : module.globals())
      if (global.getAddressSpace() == 3 && global.isDeclaration()) { // the size is set by the
                                                                     // launch
        kernel.sharedBytes = (kernel.sharedBytes + 127) / 128 * 128;
        places[&global] = kernel.sharedBytes;
      }
  }

  void rewrite(Function &function) {
    // The address of shared memory is requested at the beginning of the function.
    IRBuilder<> begin(&function.getEntryBlock(), function.getEntryBlock().getFirstInsertionPt());
    for (auto [global, offset] : places) {
      Value *place = nullptr;
      convertConstantUses(*global, function);
      for (Use &use : make_early_inc_range(global->uses())) {
        auto *user = dyn_cast<Instruction>(use.getUser());
        if (!user || user->getFunction() != &function)
          continue;
        if (!place) {
          Value *address = begin.CreateCall(
              hook("emu_shared", PointerType::get(context, 0), {Type::getInt64Ty(context)}),
              {begin.getInt64(offset)});
          place = begin.CreateAddrSpaceCast(address, global->getType());
        }
        use.set(place);
      }
    }
    DominatorTree dominators(function);
    LoopInfo loops(dominators);
    std::set<BasicBlock *> exits; // blocks that exit loops; their guards end the loop
    for (BasicBlock &block : function)
      if (Loop *loop = loops.getLoopFor(&block); loop && loop->isLoopExiting(&block))
        exits.insert(&block);
    std::vector<Instruction *> all;
    for (BasicBlock &block : function)
      for (Instruction &instruction : block)
        all.push_back(&instruction);
    for (Instruction *instruction : all) {
      if (isa<LoadInst, StoreInst>(instruction) && plants(PlantedBug::MovedAccess, *instruction)) {
        IRBuilder<> b(instruction);
        const unsigned operand = isa<LoadInst>(instruction) ? LoadInst::getPointerOperandIndex()
                                                            : StoreInst::getPointerOperandIndex();
        Type *type = isa<LoadInst>(instruction) ? instruction->getType()
                                                : instruction->getOperand(0)->getType();
        const uint64_t bytes = module.getDataLayout().getTypeStoreSize(type);
        instruction->setOperand(
            operand, b.CreatePtrAdd(instruction->getOperand(operand), b.getInt64(bytes)));
      }
      if (auto *compare = dyn_cast<ICmpInst>(instruction);
          compare && compare->getType()->isIntegerTy(1) && !exits.count(compare->getParent()) &&
          decides(*compare) && plants(PlantedBug::OpenGuard, *instruction))
        compare->replaceUsesWithIf(
            ConstantInt::getTrue(context), // except the use that `plants` has inserted
            [compare](Use &use) { return use.getUser() != compare->getNextNode(); });
      if (isa<FPTruncInst, FPExtInst>(instruction) && rewriteConversion(*instruction))
        continue;
      if (auto *operation = dyn_cast<BinaryOperator>(instruction);
          operation && operation->getType()->getScalarType()->isBFloatTy()) {
        widenOperation(*operation);
        continue;
      }
      if (!check && !isa<CallInst>(instruction))
        continue;
      if (auto *load = dyn_cast<LoadInst>(instruction))
        tell("emu_load", *instruction, load->getPointerOperand(), load->getType(),
             load->getAlign());
      else if (auto *store = dyn_cast<StoreInst>(instruction))
        tell("emu_store", *instruction, store->getPointerOperand(),
             store->getValueOperand()->getType(), store->getAlign());
      else if (auto *call = dyn_cast<CallInst>(instruction))
        rewriteCall(*call);
      else if (isa<FenceInst>(instruction))
        rewriteFence(*instruction);
      else if (auto *atomic = dyn_cast<AtomicRMWInst>(instruction))
        rewriteCount(*atomic);
    }
  }

  /// Converts uses of a global in constant expressions to instructions.
  static void convertConstantUses(GlobalVariable &global, Function &function) {
    SmallVector<Constant *> constants(1, &global);
    convertUsersOfConstantsToInstructions(constants, &function);
  }

  void tell(StringRef name, Instruction &instruction, Value *pointer, Type *type, Align alignment) {
    IRBuilder<> b(&instruction);
    Type *generic = PointerType::get(context, 0);
    Value *address = pointer->getType() == generic ? pointer
                                                   : b.CreateAddrSpaceCast(pointer, generic);
    Value *allowed =
        b.CreateCall(hook(name, generic, {generic, word, word, word}),
                     {address, b.getInt32(uint32_t(module.getDataLayout().getTypeStoreSize(type))),
                      b.getInt32(uint32_t(alignment.value())), site(instruction)});
    const unsigned operand = isa<LoadInst>(instruction) ? LoadInst::getPointerOperandIndex()
                                                        : StoreInst::getPointerOperandIndex();
    instruction.setOperand(operand, pointer->getType() == generic
                                        ? allowed
                                        : b.CreateAddrSpaceCast(allowed, pointer->getType()));
  }

  /// Replaces a conversion between f32 and half precision, because some CPUs have no instruction
  /// for it. \returns whether it is one
  bool rewriteConversion(Instruction &conversion) {
    Value *from = conversion.getOperand(0);
    const bool narrows = isa<FPTruncInst>(conversion);
    Type *half = (narrows ? conversion.getType() : from->getType())->getScalarType();
    Type *wide = (narrows ? from->getType() : conversion.getType())->getScalarType();
    if ((!half->isHalfTy() && !half->isBFloatTy()) || !wide->isFloatTy())
      return false;
    IRBuilder<> b(&conversion);
    Type *real = Type::getFloatTy(context), *bits = Type::getInt16Ty(context);
    auto convert = [&](Value *x) -> Value * {
      if (!narrows)
        return b.CreateCall(
            hook("emu_widen", real, {word, word}),
            {b.CreateZExt(b.CreateBitCast(x, bits), word), b.getInt32(half->isHalfTy())});
      Value *narrow = b.CreateCall(hook("emu_pack", word, {real, real, word}),
                                   {ConstantFP::get(real, 0), x, b.getInt32(half->isHalfTy())});
      return b.CreateBitCast(b.CreateTrunc(narrow, bits), half);
    };
    Value *result = nullptr;
    if (auto *vector = dyn_cast<FixedVectorType>(from->getType())) {
      result = PoisonValue::get(conversion.getType());
      for (unsigned i = 0; i < vector->getNumElements(); ++i)
        result = b.CreateInsertElement(result, convert(b.CreateExtractElement(from, i)), i);
    } else {
      result = convert(from);
    }
    conversion.replaceAllUsesWith(result);
    conversion.eraseFromParent();
    return true;
  }

  /// Computes bf16 operations in f32 and rounds the result. f32 has more than twice the bits, so
  /// this equals a single rounding.
  void widenOperation(BinaryOperator &operation) {
    IRBuilder<> b(&operation);
    Type *type = operation.getType(), *wide = type->getWithNewType(Type::getFloatTy(context));
    auto widen = [&](Value *x) {
      return cast<Instruction>(b.CreateCast(Instruction::FPExt, x, wide));
    };
    Instruction *x = widen(operation.getOperand(0)), *y = widen(operation.getOperand(1));
    auto *narrow =
        cast<Instruction>(b.CreateFPTrunc(b.CreateBinOp(operation.getOpcode(), x, y), type));
    operation.replaceAllUsesWith(narrow);
    operation.eraseFromParent();
    for (Instruction *conversion : {x, y, narrow})
      rewriteConversion(*conversion);
  }

  void rewriteFence(Instruction &fence) {
    if (!plants(PlantedBug::NoCollective, fence))
      IRBuilder<>(&fence).CreateCall(hook("emu_fence", Type::getVoidTy(context), {}));
  }

  void rewriteCount(AtomicRMWInst &atomic) {
    if (plants(PlantedBug::NoCollective, atomic)) {
      atomic.replaceAllUsesWith(ConstantInt::get(word, 0));
      atomic.eraseFromParent();
      return;
    }
    IRBuilder<> b(&atomic);
    Type *generic = PointerType::get(context, 0);
    b.CreateCall(hook("emu_count", Type::getVoidTy(context), {generic, word}),
                 {b.CreateAddrSpaceCast(atomic.getPointerOperand(), generic), site(atomic)});
  }

  void rewriteCall(CallInst &call) {
    Function *callee = call.getCalledFunction();
    StringRef name = callee ? callee->getName() : "an indirect call";
    if (name.starts_with("emu_"))
      return;
    IRBuilder<> b(&call);
    auto replace = [&](Value *with) {
      if (with)
        call.replaceAllUsesWith(with);
      call.eraseFromParent();
    };
    if (name == "llvm.nvvm.read.ptx.sreg.tid.x")
      return replace(b.CreateCall(hook("emu_thread", word, {})));
    if (name == "llvm.nvvm.read.ptx.sreg.ctaid.x")
      return replace(b.CreateCall(hook("emu_block", word, {})));
    if (name == "llvm.nvvm.barrier.cta.sync.aligned.all") {
      kernel.collective = true;
      if (plants(PlantedBug::NoCollective, call))
        return replace(nullptr);
      b.CreateCall(hook("emu_barrier", Type::getVoidTy(context), {word}), {site(call)});
      return replace(nullptr);
    }
    if (name == "llvm.nvvm.shfl.sync.bfly.i32") {
      kernel.collective = true;
      if (plants(PlantedBug::NoCollective, call))
        return replace(call.getArgOperand(1));
      return replace(b.CreateCall(hook("emu_exchange", word, {word, word, word}),
                                  {call.getArgOperand(1), call.getArgOperand(2), site(call)}));
    }
    if (name == "llvm.nvvm.vote.ballot.sync") {
      kernel.collective = true;
      if (plants(PlantedBug::NoCollective, call))
        return replace(b.getInt32(0));
      Value *bit = b.CreateZExt(call.getArgOperand(1), word);
      return replace(b.CreateCall(hook("emu_ballot", word, {word, word}), {bit, site(call)}));
    }
    if (rewriteForTensorCores(call, name))
      return;
    if (!callee || !callee->isIntrinsic() || name.starts_with("llvm.nvvm"))
      unknown.insert(name.str());
  }

  /// Registers that an emulator operation reads and writes: one stack slot per function and
  /// register count.
  DenseMap<std::pair<Function *, unsigned>, Value *> registersOf;
  Value *registers(Function &function, unsigned count) {
    Value *&place = registersOf[{&function, count}];
    if (!place)
      place = IRBuilder<>(&function.getEntryBlock(), function.getEntryBlock().getFirstInsertionPt())
                  .CreateAlloca(ArrayType::get(word, count));
    return place;
  }

  /// Replaces `call` with a call of `name` that writes four registers, which become the structure
  /// that `call` returned.
  void replaceByFour(CallInst &call, StringRef name, ArrayRef<Value *> before,
                     ArrayRef<Value *> after) {
    IRBuilder<> b(&call);
    Value *four = registers(*call.getFunction(), 4);
    SmallVector<Value *> arguments(before);
    arguments.push_back(four);
    arguments.append(after.begin(), after.end());
    SmallVector<Type *> types;
    for (Value *argument : arguments)
      types.push_back(argument->getType());
    b.CreateCall(hook(name, Type::getVoidTy(context), types), arguments);
    auto *structure = cast<StructType>(call.getType());
    Value *result = PoisonValue::get(structure);
    for (unsigned i = 0; i < 4; ++i) {
      Value *number = b.CreateLoad(structure->getElementType(i),
                                   b.CreateConstGEP2_32(ArrayType::get(word, 4), four, 0, i));
      result = b.CreateInsertValue(result, number, i);
    }
    call.replaceAllUsesWith(result);
    call.eraseFromParent();
  }

  /// Replaces tensor-core products and asynchronous copies (sm_80). \returns whether it is one of
  /// these
  bool rewriteForTensorCores(CallInst &call, StringRef name) {
    IRBuilder<> b(&call);
    Type *nothing = Type::getVoidTy(context), *real = Type::getFloatTy(context),
         *generic = PointerType::get(context, 0);
    auto replace = [&](Value *with) {
      if (with)
        call.replaceAllUsesWith(with);
      call.eraseFromParent();
      return true;
    };
    auto address = [&](unsigned operand) {
      return b.CreateAddrSpaceCast(call.getArgOperand(operand), generic);
    };
    for (StringRef type : {"bf16", "f32.f32"})
      if (name == ("llvm.nvvm.mma.m16n8k16.row.col." + type).str()) {
        kernel.collective = true;
        Value *operands = registers(*call.getFunction(), 10);
        for (unsigned i = 0; i < 10; ++i)
          b.CreateStore(b.CreateBitCast(call.getArgOperand(i), word),
                        b.CreateConstGEP2_32(ArrayType::get(word, 10), operands, 0, i));
        replaceByFour(call, "emu_multiply", {operands}, {b.getInt32(type != "bf16"), site(call)});
        return true;
      }
    for (bool transposed : {false, true})
      if (name == (transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3"
                              : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3")) {
        kernel.collective = true;
        Value *row = address(0);
        replaceByFour(call, "emu_matrices", {row}, {b.getInt32(transposed), site(call)});
        return true;
      }
    if (name.starts_with("llvm.nvvm.cp.async.ca.shared.global.") ||
        name.starts_with("llvm.nvvm.cp.async.cg.shared.global.16")) {
      kernel.collective = true; // copies belong to a thread that continues
      const uint32_t bytes = name.contains(".global.16") ? 16 : name.contains(".global.8") ? 8 : 4;
      Value *from = address(1),
            *size = name.ends_with(".s") ? call.getArgOperand(2) : b.getInt32(bytes);
      if (plants(PlantedBug::MovedAccess, call))
        from = b.CreatePtrAdd(from, b.getInt64(bytes));
      b.CreateCall(hook("emu_copy", nothing, {generic, generic, word, word, word}),
                   {address(0), from, b.getInt32(bytes), size, site(call)});
      return replace(nullptr);
    }
    if (name == "llvm.nvvm.cp.async.commit.group") {
      b.CreateCall(hook("emu_commit", nothing, {}));
      return replace(nullptr);
    }
    if (name == "llvm.nvvm.cp.async.wait.group") {
      if (!plants(PlantedBug::NoCollective, call))
        b.CreateCall(hook("emu_wait", nothing, {word}), {call.getArgOperand(0)});
      return replace(nullptr);
    }
    if (name == "llvm.nvvm.bar.warp.sync") {
      kernel.collective = true;
      if (!plants(PlantedBug::NoCollective, call))
        b.CreateCall(hook("emu_warp_barrier", nothing, {word}), {site(call)});
      return replace(nullptr);
    }
    for (bool isHalf : {false, true})
      if (name == (isHalf ? "llvm.nvvm.ff2f16x2.rn" : "llvm.nvvm.ff2bf16x2.rn")) {
        Value *both =
            b.CreateCall(hook("emu_pack", word, {real, real, word}),
                         {call.getArgOperand(0), call.getArgOperand(1), b.getInt32(isHalf)});
        return replace(b.CreateBitCast(both, call.getType()));
      }
    if (name == "llvm.nvvm.ex2.approx.ftz.f32")
      return replace(b.CreateCall(hook("emu_exp2", real, {real}), {call.getArgOperand(0)}));
    if (name == "llvm.nvvm.rcp.approx.ftz.f")
      return replace(b.CreateCall(hook("emu_reciprocal", real, {real}), {call.getArgOperand(0)}));
    return false;
  }

  /// Adds `<symbol>_call`, which takes the kernel's parameters from memory.
  void makeCall() {
    Function *function = module.getFunction(symbol);
    if (!function)
      return;
    Type *pointer = PointerType::get(context, 0);
    auto *wrapper = Function::Create(FunctionType::get(Type::getVoidTy(context), {pointer}, false),
                                     GlobalValue::ExternalLinkage, symbol + "_call", module);
    IRBuilder<> b(BasicBlock::Create(context, "", wrapper));
    SmallVector<Value *> arguments;
    for (Argument &argument : function->args()) {
      Value *at = b.CreateConstGEP1_64(b.getInt64Ty(), wrapper->getArg(0), argument.getArgNo());
      Value *bits = b.CreateLoad(b.getInt64Ty(), at);
      arguments.push_back(
          argument.getType()->isPointerTy() ? b.CreateIntToPtr(bits, argument.getType()) : bits);
    }
    b.CreateCall(function, arguments);
    b.CreateRetVoid();
  }
};

} // namespace

std::unique_ptr<HostCode> HostCode::compile(const std::string &bitcode, std::string &error,
                                            bool check, PlantedBug bug, bool contracts) {
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  std::unique_ptr<HostCode> code(new HostCode);
  auto fail = [&](Error failure) {
    error = toString(std::move(failure));
    return nullptr;
  };
  auto machine = orc::JITTargetMachineBuilder::detectHost();
  if (!machine)
    return fail(machine.takeError());
  machine->addFeatures({"-avx512bf16", "-avxneconvert"}); // these flush subnormal numbers to 0,
                                                          // unlike GPUs; emuRound replaces them
  auto jit = orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(*machine)).create();
  if (!jit)
    return fail(jit.takeError());
  code->impl->jit = std::move(*jit);
  orc::LLJIT &lljit = *code->impl->jit;
  orc::SymbolMap known;
  for (const Hook &hook : hooks())
    known[lljit.mangleAndIntern(hook.name)] = {orc::ExecutorAddr::fromPtr(hook.address),
                                               JITSymbolFlags::Exported};
  if (Error failure = lljit.getMainJITDylib().define(orc::absoluteSymbols(known)))
    return fail(std::move(failure));

  struct Made {
    std::string symbol;
    HostKernel kernel;
    std::vector<Rewriter::Table> tables;
  };
  std::vector<Made> made;
  for (size_t at = 0; at + 8 <= bitcode.size();) {
    uint64_t length;
    std::memcpy(&length, bitcode.data() + at, 8);
    at += 8;
    if (length == 0)
      break;
    auto context = std::make_unique<LLVMContext>();
    auto module = parseBitcodeFile(MemoryBufferRef(StringRef(bitcode).substr(at, length), "kernel"),
                                   *context);
    if (!module)
      return fail(module.takeError());
    at += length;
    if (contracts)
      contractProducts(**module);
    auto sites = std::make_unique<std::vector<std::string>>();
    Rewriter rewriter(**module, *sites, check, bug, code->impl->places);
    rewriter.run();
    if (!rewriter.unknown.empty()) {
      error = "kernel " + rewriter.symbol + ": the emulator does not know " +
              *rewriter.unknown.begin();
      return nullptr;
    }
    (*module)->setTargetTriple(lljit.getTargetTriple());
    (*module)->setDataLayout(lljit.getDataLayout());
    std::string problem;
    raw_string_ostream out(problem);
    if (verifyModule(**module, &out)) {
      error = "kernel " + rewriter.symbol + ": " + problem;
      return nullptr;
    }
    rewriter.kernel.sites = sites.get();
    code->impl->sites.push_back(std::move(sites));
    made.push_back({rewriter.symbol, rewriter.kernel, rewriter.tables});
    if (Error failure =
            lljit.addIRModule(orc::ThreadSafeModule(std::move(*module), std::move(context))))
      return fail(std::move(failure));
  }
  for (Made &one : made) {
    auto address = lljit.lookup(one.symbol + "_call");
    if (!address)
      return fail(address.takeError());
    one.kernel.call = address->toPtr<void (*)(const uint64_t *)>();
    for (auto &[name, bytes, constant] : one.tables)
      if (auto table = lljit.lookup(name))
        (constant ? one.kernel.constants : one.kernel.common)
            .push_back(code->impl->tables[name] = {uintptr_t(table->getValue()),
                                                   uintptr_t(table->getValue() + bytes),
                                                   !constant});
      else
        consumeError(table.takeError());
    code->impl->kernels[one.symbol] = std::move(one.kernel);
  }
  return code;
}
