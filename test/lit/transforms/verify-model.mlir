// RUN: zorse-opt %s -split-input-file --zorse-verify-model -verify-diagnostics
// A correct model, then one program per constraint, the smallest that violates only that one.

func.func @model(%x: tensor<?x4xf32> {zorse.input = "x"}, %w: tensor<4xf32> {zorse.parameter = "w", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64},
        tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "denominator"}) {
  %b = zorse.broadcast %w dims [1] : tensor<4xf32> -> tensor<?x4xf32>
  %y = arith.mulf %x, %b : tensor<?x4xf32>
  %n = zorse.reduce sum %y dims [1] : tensor<?x4xf32> -> tensor<?xf32>
  %d = zorse.reduce sum %x dims [1] : tensor<?x4xf32> -> tensor<?xf32>
  return %n, %d : tensor<?xf32>, tensor<?xf32>
}

// -----

// expected-error @below {{(M1) expects a function @model of one block}}
module {
}

// -----

// expected-error @below {{(M2) expects argument 0 of @model to be a zorse.input or a zorse.parameter, got neither}}
func.func @model(%x: tensor<?xf32>) -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64, zorse.denominator_per_row = 1.0 : f64}) {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{(M2) expects input 'x' to carry samples (dimension 0 is ?), got 'tensor<4xf32>'}}
func.func @model(%x: tensor<4xf32> {zorse.input = "x"}, %y: tensor<?xf32> {zorse.input = "y"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64, zorse.denominator_per_row = 1.0 : f64}) {
  return %y : tensor<?xf32>
}

// -----

// expected-error @below {{(M2) expects parameter 'w' to say whether it is zorse.trainable (true or false)}}
func.func @model(%w: tensor<4xf32> {zorse.parameter = "w"}, %y: tensor<?xf32> {zorse.input = "y"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64, zorse.denominator_per_row = 1.0 : f64}) {
  return %y : tensor<?xf32>
}

// -----

// expected-error @below {{(M3) expects result 0 to be tensor<?xf32> or tensor<?xf64>}}
func.func @model(%x: tensor<?x4xf32> {zorse.input = "x"})
    -> (tensor<?x4xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64, zorse.denominator_per_row = 1.0 : f64}) {
  return %x : tensor<?x4xf32>
}

// -----

// expected-error @below {{(M4) expects term 0 to have one numerator and either a denominator or zorse.denominator_per_row, got 1 numerators and 0 denominators}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}) -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64}) {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{(M5) expects denominator 1 to depend on inputs alone, but it depends on parameter "w"}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}, %w: tensor<f32> {zorse.parameter = "w", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64}, tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "denominator"}) {
  %b = zorse.broadcast %w dims [] : tensor<f32> -> tensor<?xf32>
  %d = arith.mulf %x, %b : tensor<?xf32>
  return %x, %d : tensor<?xf32>, tensor<?xf32>
}

// -----

// Batch normalisation over the batch: a mean over samples.
func.func @model(%x: tensor<?xf32> {zorse.input = "x"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64, zorse.denominator_per_row = 1.0 : f64}) {
  // expected-error @below {{(M6) mixes samples: it computes 'tensor<f32>' from values that carry samples}}
  %m = zorse.reduce sum %x dims [0] : tensor<?xf32> -> tensor<f32>
  %b = zorse.broadcast %m dims [] : tensor<f32> -> tensor<?xf32>
  %y = arith.subf %x, %b : tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @model(%x: tensor<?xf32> {zorse.input = "x"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.coefficient = 1.0 : f64, zorse.denominator_per_row = 1.0 : f64}) {
  // expected-error @below {{(M7) expects only ops of zorse, arith and math in a model}}
  %y = tensor.cast %x : tensor<?xf32> to tensor<?xf32>
  return %y : tensor<?xf32>
}
