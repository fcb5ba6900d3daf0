// Passes from the recognised `@model` to a chain of units, and the functions of their classes.
#ifndef ZORSE_UNITS_PASSES_TD
#define ZORSE_UNITS_PASSES_TD

include "mlir/Pass/PassBase.td"

class Zorse_ModulePass<string name> : Pass<name, "::mlir::ModuleOp"> {
  let dependentDialects = ["::zorse::ZorseDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

def HashModel : Zorse_ModulePass<"zorse-hash-model"> {
  let summary = "Records what the model computes as zorse.content_hash, unless the module has one";
  let description = [{
    Snapshots and plans name the model by this hash. It is of the recognised graph before roundings are inserted. Locations do not count, nor does what `zorse-configure` sets.
  }];
}

def Configure : Zorse_ModulePass<"zorse-configure"> {
  let summary = "Sets what the user decides and the graph does not say: training, precision, weight decay, batch, cluster, plan";
  let description = [{
    Files are put into the module: no later pass reads one. What is set already and not given stays.
  }];
  let options = [Option<"settings", "settings", "std::string", "\"training { optimizer: ADAMW beta1: 0.9 beta2: 0.999 epsilon: 1e-08 weight_decay: 0.1 }\"",
                        "Fields of ModelSummary (bundle.proto) in protobuf's text format">,
                 Option<"decay", "decay", "std::string", "\"rank\"", "What weight decay applies to: rank, all, none or names:P,Q">,
                 Option<"batch", "batch", "int64_t", "1", "Samples of a step">,
                 Option<"cluster", "cluster", "std::string", "", "Devices and links (docs/cluster.md)">,
                 ListOption<"profiles", "profile", "std::string", "Measured times (docs/profile.md); later ones go before">,
                 Option<"plan", "plan", "std::string", "", "plan.json (docs/plan.md); none: zorse-plan searches one">];
}

def FindUnits : Zorse_ModulePass<"zorse-find-units"> {
  let summary = "Makes @model a chain of zorse.unit, with one zorse.class for units of equal structure";
  let description = [{
    Cuts the graph where few values cross. Each class has a `@forward`. What counts are made of becomes `@counts`, which `@model` calls.
  }];
  let options = [Option<"longSpan", "long-span", "int", "9",
                        "A value that waits for its reader over so many products and attentions is carried across cuts where no narrow cut exists">];
}

def AddLogits : Zorse_ModulePass<"zorse-add-logits"> {
  let summary = "Adds @logits to the class of the unit with the loss: what text is sampled by";
}

def AddStepFunctions : Zorse_ModulePass<"zorse-add-step-functions"> {
  let summary = "Adds the updates of the optimizer that zorse-configure has named: @update.decay, @update.plain, @update.statistics";
}

def PrintSummary : Zorse_ModulePass<"zorse-print-summary"> {
  let summary = "Prints the model summary: a line for each unit, group and value";
}

#endif // ZORSE_UNITS_PASSES_TD
