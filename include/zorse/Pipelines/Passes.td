// Passes from functions to verified programs.
#ifndef ZORSE_PIPELINES_PASSES_TD
#define ZORSE_PIPELINES_PASSES_TD

include "mlir/Pass/PassBase.td"

def LowerBodies : Pass<"zorse-lower-bodies", "::mlir::ModuleOp"> {
  let summary = "Lowers functions to bodies and kernels, which a zorse.target of each architecture holds";
  let description = [{
    Architectures are those of `arch`, and those that devices of the cluster ask for. Sets `zorse.summary`: the model's, with the numbers of bodies and
    what they ask of GPUs.
  }];
  let options = [ListOption<"architectures", "arch", "std::string",
                            "What to compile for: a CPU as LLVM knows it, native, or a CUDA architecture; default: native">,
                 Option<"simulateOnly", "simulate-only", "bool", "false", "The first architecture alone has a target">];
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::LLVM::LLVMDialect"];
}

def MakePlan : Pass<"zorse-plan", "::mlir::ModuleOp"> {
  let summary = "Checks zorse.plan against model and cluster, or searches a plan; zorse.plan is canonical then";
}

def DropUnusedBodies : Pass<"zorse-drop-unused-bodies", "::mlir::ModuleOp"> {
  let summary = "Removes targets that no device of the plan runs, and parts of forwards and backwards that no task of it calls";
  let description = [{
    Where all devices are GPUs and the host has something to do, its target is the last, with the code for that alone. The summary goes on saying what
    the parts would cost.
  }];
  let options = [Option<"keepSplit", "keep-split", "bool", "false", "Parts of split backwards stay, to be measured">];
}

def CompileKernels : Pass<"zorse-compile-kernels", "::mlir::ModuleOp"> {
  let summary = "Compiles the kernels of every zorse.target to its object";
  let options = [Option<"threads", "threads", "unsigned", "2", "That compile; the object does not depend on it">,
                 Option<"cache", "cache", "bool", "true", "Keep compiled kernels on disk">,
                 Option<"dumpDir", "dump-dir", "std::string", "",
                        "Folder for .mlir, .ll and .s or .ptx of every kernel; of targets behind the first, in one of their name">];
}

#endif // ZORSE_PIPELINES_PASSES_TD
