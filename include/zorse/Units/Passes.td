// Passes that turn the recognized `@model` into a chain of units, and create the functions of their
// classes.
#ifndef ZORSE_UNITS_PASSES_TD
#define ZORSE_UNITS_PASSES_TD

include "mlir/Pass/PassBase.td"

class Zorse_ModulePass<string name> : Pass<name, "::mlir::ModuleOp"> {
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

def HashModel : Zorse_ModulePass<"zorse-hash-model"> {
  let summary = "Stores a hash of the model's computation as zorse.content_hash, unless the module has one";
  let description = [{
    Checkpoints and plans identify the model by this hash. It covers the recognized graph before roundings are inserted. Locations and the settings of `zorse-configure` are not included.
  }];
}

def Configure : Zorse_ModulePass<"zorse-configure"> {
  let summary = "Sets the user's choices that the graph does not contain: training, precision, weight decay, batch, cluster, plan";
  let description = [{
    Files are copied into the module; no later pass reads a file. Settings that are not given keep their values.
  }];
  let options = [Option<"settings", "settings", "std::string", "\"training { optimizer: ADAMW beta1: 0.9 beta2: 0.999 epsilon: 1e-08 weight_decay: 0.1 }\"",
                        "Fields of ModelSummary (bundle.proto) in protobuf's text format">,
                 Option<"decay", "decay", "std::string", "\"rank\"", "Parameters with weight decay: rank, all, none or names:P,Q">,
                 Option<"batch", "batch", "int64_t", "1", "Samples per step">,
                 Option<"cluster", "cluster", "std::string", "", "Devices and links (docs/reference/cluster-yaml.md)">,
                 ListOption<"profiles", "profile", "std::string", "Measured times (docs/reference/profile-json.md); later files take precedence">,
                 Option<"plan", "plan", "std::string", "", "plan.json (docs/reference/plan-json.md); none: zorse-plan searches one">];
}

def FindUnits : Zorse_ModulePass<"zorse-find-units"> {
  let summary = "Turns @model into a chain of zorse.unit, with one zorse.class for units of equal structure";
  let description = [{
    Cuts the graph at positions that few values cross. Each class has a `@forward`. The computation of counts becomes `@counts`, which `@model` calls.
  }];
  let options = [Option<"longSpan", "long-span", "int", "9",
                        "If no narrow cut exists, carry a value across cuts if its next reader is at least N products and attentions away">];
}

def AddLogits : Zorse_ModulePass<"zorse-add-logits"> {
  let summary = "Adds @logits, used for text generation, to the class of the unit with the loss";
}

def AddStepFunctions : Zorse_ModulePass<"zorse-add-step-functions"> {
  let summary = "Adds the updates of the optimizer that zorse-configure has set: @update.decay, @update.plain, @update.statistics";
}

def PrintSummary : Zorse_ModulePass<"zorse-print-summary"> {
  let summary = "Prints the model summary: a line for each unit, group and value";
}

#endif // ZORSE_UNITS_PASSES_TD
