// RUN: zorse-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expects zorse.argument to be #zorse.argument<kind, index>, got "saved"}}
func.func @argument(%x: tensor<4xf32> {zorse.argument = "saved"}) {
  return
}

// -----

// expected-error @below {{expects zorse.argument to be #zorse.argument<kind, index>, got 3 : i64}}
func.func @result(%x: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>}) -> (tensor<4xf32> {zorse.argument = 3 : i64}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+2 {{expected ::zorse::ArgumentKind to be one of: parameter, parameter_gradient, input}}
// expected-error @below {{failed to parse Zorse_ArgumentAttr parameter 'kind'}}
func.func @kind(%x: tensor<4xf32> {zorse.argument = #zorse.argument<weights, 0>}) {
  return
}

// -----

// expected-error @below {{expects a field only for scalars, got 'skip' for saved}}
func.func @field(%x: tensor<4xf32> {zorse.argument = #zorse.argument<saved, 0, skip>}) {
  return
}

// -----

// expected-error @below {{expects index 0 of 'skip', of which there is one, got 1}}
func.func @index(%x: tensor<i64> {zorse.argument = #zorse.argument<scalars, 1, skip>}) {
  return
}

// -----

// expected-error @below {{(C1) expects a function @forward or @joint}}
zorse.class @empty {
}

// -----

zorse.class @task {
  // expected-error @below {{(C1) stands in a zorse.class, expects functions called by a task: forward, backward, backward_inputs, ...}}
  func.func @again(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>}) {
    return
  }
}

// -----

zorse.class @kinds {
  // expected-error @below {{(C2) has #zorse.argument<saved_for_weight_grad, 0> as argument 0, which functions of this task do not have}}
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<saved_for_weight_grad, 0>}) {
    return
  }
}

// -----

zorse.class @numbers {
  // expected-error @below {{(C3) expects parameter arguments numbered from 0 without gaps, got 1 in place of 0}}
  func.func @forward(%w: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 1>}) {
    return
  }
}

// -----

zorse.class @types {
  func.func @forward(%w: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>}) {
    return
  }
  // expected-error @below {{(C4) expects argument 0, #zorse.argument<parameter, 0>, to be 'tensor<4xf32>' as elsewhere in the class, got 'tensor<4xf64>'}}
  func.func @backward(%w: tensor<4xf64> {zorse.argument = #zorse.argument<parameter, 0>}) {
    return
  }
}

// -----

zorse.class @unknown {
  func.func @forward(%w: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>}) {
    return
  }
  // expected-error @below {{(C4) has #zorse.argument<saved, 0> as argument 0, which no function of the class defines}}
  func.func @backward(%w: tensor<4xf32> {zorse.argument = #zorse.argument<saved, 0>}) {
    return
  }
}

// -----

// expected-error @below {{(C5) expects @backward_inputs and @backward_weights together, in addition to @backward}}
zorse.class @parts {
  func.func @forward(%w: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>}) {
    return
  }
  func.func @backward_inputs(%w: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>}) {
    return
  }
}
