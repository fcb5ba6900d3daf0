// RUN: zorse-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expects zorse.slot to be #zorse.slot<kind, index>, got "saved"}}
func.func @argument(%x: tensor<4xf32> {zorse.slot = "saved"}) {
  return
}

// -----

// expected-error @below {{expects zorse.slot to be #zorse.slot<kind, index>, got 3 : i64}}
func.func @result(%x: tensor<4xf32> {zorse.slot = #zorse.slot<parameter, 0>}) -> (tensor<4xf32> {zorse.slot = 3 : i64}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{expected ::zorse::SlotKind to be one of: parameter, parameter_gradient, input}}
func.func @kind(%x: tensor<4xf32> {zorse.slot = #zorse.slot<weights, 0>}) {
  return
}

// -----

// expected-error @below {{expects a field beside scalars alone, got 'skip' beside saved}}
func.func @field(%x: tensor<4xf32> {zorse.slot = #zorse.slot<saved, 0, skip>}) {
  return
}

// -----

// expected-error @below {{expects index 0 of 'skip', of which there is one, got 1}}
func.func @index(%x: tensor<i64> {zorse.slot = #zorse.slot<scalars, 1, skip>}) {
  return
}
