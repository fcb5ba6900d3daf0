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

#endif // ZORSE_PIPELINES_PASSES_TD
