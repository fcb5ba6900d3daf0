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

def ExpandStep : Pass<"zorse-expand-step", "::mlir::ModuleOp"> {
  let summary = "Expands the plan to the step: an analysis of everything that has to happen, in order, with places in memory";
}

def WritePrograms : Pass<"zorse-write-programs", "::mlir::ModuleOp"> {
  let summary = "Writes the programs of all devices: zorse.programs; and zorse.staged, the step by way of the host, where GPUs exchange directly";
  let options = [Option<"threads", "threads", "unsigned", "2", "That write; the programs do not depend on it">];
}

def VerifyPrograms : Pass<"zorse-verify-programs", "::mlir::ModuleOp"> {
  let summary = "Verifies the programs as they are serialised, by code that trusts nothing above";
  let options = [Option<"threads", "threads", "unsigned", "2", "That verify">];
}

def ShowPrograms : Pass<"zorse-show-programs", "::mlir::ModuleOp"> {
  let summary = "Expands the plan, prints the program of each device, and leaves no module";
  let options = [Option<"until", "until", "::zorse::step::ExpandUntil", "::zorse::step::ExpandUntil::All", "Show what is known earlier", [{::llvm::cl::values(
      clEnumValN(::zorse::step::ExpandUntil::Stages, "stages", "tasks of cells, inputs, transfers between cells"),
      clEnumValN(::zorse::step::ExpandUntil::Offload, "offload", "and parameters as they come: from hosts, and gathered"),
      clEnumValN(::zorse::step::ExpandUntil::Collectives, "collectives", "and reductions, norms, updates, what goes back to hosts, the report"),
      clEnumValN(::zorse::step::ExpandUntil::Order, "order", "and one global list with times"),
      clEnumValN(::zorse::step::ExpandUntil::Memory, "memory", "and a place for every buffer"),
      clEnumValN(::zorse::step::ExpandUntil::All, "all", "and waits: the programs"))}]>];
}

#endif // ZORSE_PIPELINES_PASSES_TD
