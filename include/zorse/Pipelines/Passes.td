// Passes from functions to verified programs.
#ifndef ZORSE_PIPELINES_PASSES_TD
#define ZORSE_PIPELINES_PASSES_TD

include "mlir/Pass/PassBase.td"

def DivideByPlan : Pass<"zorse-divide-by-plan", "::mlir::ModuleOp"> {
  let summary = "Adds the classes of the devices of the groups of zorse.plan (tensor parallelism)";
  let description = [{Runs between the first two steps of differentiation. Does nothing without a plan that has groups.}];
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def LowerFunctions : Pass<"zorse-lower-functions", "::mlir::ModuleOp"> {
  let summary = "Lowers functions to compiled functions and kernels, in a zorse.target for each architecture";
  let description = [{
    Architectures are those of `arch`, and those that devices of the cluster specify. Sets `zorse.summary`: the model's summary, with the numbers of
    compiled functions and their costs on GPUs.
  }];
  let options = [ListOption<"architectures", "arch", "std::string",
                            "Architecture to compile for: a CPU name of LLVM, native, or a CUDA architecture; default: native">,
                 Option<"simulateOnly", "simulate-only", "bool", "false", "Only the first architecture gets a target">];
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::LLVM::LLVMDialect"];
}

def MakePlan : Pass<"zorse-plan", "::mlir::ModuleOp"> {
  let summary = "Checks zorse.plan against model and cluster, or searches a plan; makes zorse.plan canonical";
  let options = [Option<"gradientWire", "gradient-wire", "std::string", "",
                        "bf16, bf16:sites or f32: in which sums of gradients terms travel as bf16; empty: as the plan says, or in none">,
                 Option<"near", "near", "std::string", "",
                        "Plan of the model on other devices, which is adapted to the cluster">];
}

def DropUnusedFunctions : Pass<"zorse-drop-unused-functions", "::mlir::ModuleOp"> {
  let summary = "Removes targets that no device of the plan runs, and parts of forwards and backwards that no task of it calls";
  let description = [{
    If all devices are GPUs and the host executes functions, the host's target is the last one, with only the code of these functions. The summary keeps the
    costs of the removed parts.
  }];
  let options = [Option<"keepAll", "keep-all", "bool", "false", "Keep parts that only other plans call">];
}

def CompileKernels : Pass<"zorse-compile-kernels", "::mlir::ModuleOp"> {
  let summary = "Compiles the kernels of every zorse.target to its object";
  let options = [Option<"threads", "threads", "unsigned", "2", "Compiler threads; the object does not depend on their number">,
                 Option<"cache", "cache", "bool", "true", "Keep compiled kernels on disk">,
                 Option<"dumpDir", "dump-dir", "std::string", "",
                        "Folder for .mlir, .ll and .s or .ptx of every kernel; targets after the first have a subfolder with their name">];
}

def ExpandStep : Pass<"zorse-expand-step", "::mlir::ModuleOp"> {
  let summary = "Expands the plan to the step: an analysis with all instructions in order and the memory offsets of all buffers";
}

def WritePrograms : Pass<"zorse-write-programs", "::mlir::ModuleOp"> {
  let summary = "Writes the programs of all devices to zorse.programs and, if GPUs exchange data directly, the step staged through host memory to zorse.staged";
  let options = [Option<"threads", "threads", "unsigned", "2", "Writer threads; the programs do not depend on their number">];
}

def VerifyPrograms : Pass<"zorse-verify-programs", "::mlir::ModuleOp"> {
  let summary = "Verifies the serialized programs with code that is independent of the compiler";
  let options = [Option<"threads", "threads", "unsigned", "2", "Verifier threads">];
}

def ShowPrograms : Pass<"zorse-show-programs", "::mlir::ModuleOp"> {
  let summary = "Expands the plan, prints the program of each device, and leaves no module";
  let options = [Option<"until", "until", "::zorse::step::LoweringStage", "::zorse::step::LoweringStage::All", "Show the result of an earlier phase of the expansion", [{::llvm::cl::values(
      clEnumValN(::zorse::step::LoweringStage::Stages, "stages", "tasks of cells, inputs, transfers between cells"),
      clEnumValN(::zorse::step::LoweringStage::Offload, "offload", "and parameters fetched from hosts and gathered"),
      clEnumValN(::zorse::step::LoweringStage::Collectives, "collectives", "and reductions, norms, updates, copies to hosts, the report"),
      clEnumValN(::zorse::step::LoweringStage::Order, "order", "and one global list with times"),
      clEnumValN(::zorse::step::LoweringStage::Memory, "memory", "and an offset for every buffer"),
      clEnumValN(::zorse::step::LoweringStage::All, "all", "and waits: the programs"))}]>];
}

#endif // ZORSE_PIPELINES_PASSES_TD
