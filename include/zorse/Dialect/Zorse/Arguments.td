// Contents of arguments and results of unit functions: `#zorse.argument`.
#ifndef ZORSE_DIALECT_ZORSE_ARGUMENTS_TD
#define ZORSE_DIALECT_ZORSE_ARGUMENTS_TD

include "zorse/Dialect/Zorse/ZorseBase.td"

// Numbers and words are those of bundle.ArgumentKind (runtime/schema/bundle.proto): functions name their arguments by these words.
// WORKSPACE, CONTRIBUTION and SUM are omitted, because no function has them.
def Zorse_ArgumentKind : I32EnumAttr<"ArgumentKind", "content of an argument or result of a function", [
    I32EnumAttrCase<"Parameter", 1, "parameter">, I32EnumAttrCase<"ParameterGradient", 2, "parameter_gradient">,
    I32EnumAttrCase<"Input", 3, "input">, I32EnumAttrCase<"BoundaryIn", 4, "boundary_in">, I32EnumAttrCase<"BoundaryOut", 5, "boundary_out">,
    I32EnumAttrCase<"BoundaryInGradient", 6, "boundary_in_gradient">, I32EnumAttrCase<"BoundaryOutGradient", 7, "boundary_out_gradient">,
    I32EnumAttrCase<"Saved", 8, "saved">, I32EnumAttrCase<"Scalars", 10, "scalars">, I32EnumAttrCase<"Loss", 11, "loss">,
    I32EnumAttrCase<"State", 12, "state">, I32EnumAttrCase<"OptimizerStep", 14, "optimizer_step">, I32EnumAttrCase<"SavedForWeightGrad", 15, "saved_for_weight_grad">]> {
  let cppNamespace = "::zorse";
  let genSpecializedAttr = 0;
}

def Zorse_ScalarField : I32EnumAttr<"ScalarField", "scalar of the step (runtime/abi/StepScalars.h)", [
    I32EnumAttrCase<"LossSeed", 0, "loss_seed">, I32EnumAttrCase<"Known", 1, "known">, I32EnumAttrCase<"PerRow", 2, "per_row">,
    I32EnumAttrCase<"LearningRate", 3, "learning_rate">, I32EnumAttrCase<"ClipFactor", 4, "clip_factor">, I32EnumAttrCase<"Skip", 5, "skip">]> {
  let cppNamespace = "::zorse";
  let genSpecializedAttr = 0;
}

def Zorse_ArgumentAttr : AttrDef<Zorse_Dialect, "Argument"> {
  let mnemonic = "argument";
  let summary = "content of an argument or result of a function, such as `#zorse.argument<saved, 3>` or `#zorse.argument<scalars, 0, skip>`";
  let description = [{
    `zorse.argument` of an argument or result. The index numbers the arguments of one kind: parameters, inputs and boundary values
    of the unit, values of a packed block, terms of the loss, arrays of a state. An argument of kind `scalars` has a field
    that selects a scalar of the step; the default is the loss seed of term `index`. Loss seeds and known numbers have
    an index; other fields have index 0.
  }];
  let parameters = (ins EnumParameter<Zorse_ArgumentKind>:$kind, "uint32_t":$index,
                        DefaultValuedParameter<"::zorse::ScalarField", "::zorse::ScalarField::LossSeed">:$field);
  let builders = [AttrBuilder<(ins "::zorse::ArgumentKind":$kind, "uint32_t":$index), [{
    return $_get($_ctxt, kind, index, ::zorse::ScalarField::LossSeed);
  }]>];
  let assemblyFormat = "`<` $kind `,` $index (`,` $field^)? `>`";
  let genVerifyDecl = 1;
}

#endif // ZORSE_DIALECT_ZORSE_ARGUMENTS_TD
