// RUN: zorse-opt %s -split-input-file --zorse-verify-model -verify-diagnostics
// A correct model, then one program per constraint: the smallest that violates only this constraint.

func.func @model(%x: tensor<?x4xf32> {zorse.input = "x"}, %w: tensor<4xf32> {zorse.parameter = "w", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "sqrt(B)/max(n0, 1)"},
        tensor<?xf32> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"}) {
  %b = zorse.broadcast %w dims [1] : tensor<4xf32> -> tensor<?x4xf32>
  %k = zorse.known "1/n0" : tensor<f64>
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
func.func @model(%x: tensor<?xf32>) -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{(M2) expects input 'x' to carry samples (dimension 0 is ?), got 'tensor<4xf32>'}}
func.func @model(%x: tensor<4xf32> {zorse.input = "x"}, %y: tensor<?xf32> {zorse.input = "y"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  return %y : tensor<?xf32>
}

// -----

// expected-error @below {{(M2) expects parameter 'w' to say whether it is zorse.trainable (true or false)}}
func.func @model(%w: tensor<4xf32> {zorse.parameter = "w"}, %y: tensor<?xf32> {zorse.input = "y"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  return %y : tensor<?xf32>
}

// -----

// expected-error @below {{(M3) expects result 0 to be tensor<?xf32> or tensor<?xf64>}}
func.func @model(%x: tensor<?x4xf32> {zorse.input = "x"})
    -> (tensor<?x4xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  return %x : tensor<?x4xf32>
}

// -----

// expected-error @below {{(M3) expects numerator 0 to have a zorse.factor}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}) -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator"}) {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{(M3) expects count 1 to have a zorse.reduce of sum, max or min}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n0"}, tensor<?xf32> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "mean"}) {
  return %x, %x : tensor<?xf32>, tensor<?xf32>
}

// -----

// expected-error @below {{(M4) expects terms numbered from 0 in the order of the results, got 1 where 0 is due}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}) -> (tensor<?xf32> {zorse.term = 1 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{(M4) expects an expression of B and counts, got "1/(B": column 5: expected ')', found the end}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}) -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/(B"}) {
  return %x : tensor<?xf32>
}

// -----

// expected-error @below {{(M4) expects count n0 of "1/n0" to be among the results, got 0 counts}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}) -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n0"}) {
  return %x : tensor<?xf32>
}

// -----

func.func @model(%x: tensor<?xf64> {zorse.input = "x"}) -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  // expected-error @below {{(M4) expects count n3 of "n3" to be among the results, got 0 counts}}
  %k = zorse.known "n3" : tensor<f64>
  %b = zorse.broadcast %k dims [] : tensor<f64> -> tensor<?xf64>
  %y = arith.mulf %x, %b : tensor<?xf64>
  return %y : tensor<?xf64>
}

// -----

// expected-error @below {{(M5) expects count 1 to depend on inputs alone, but it depends on parameter "w"}}
func.func @model(%x: tensor<?xf32> {zorse.input = "x"}, %w: tensor<f32> {zorse.parameter = "w", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n0"}, tensor<?xf32> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"}) {
  %b = zorse.broadcast %w dims [] : tensor<f32> -> tensor<?xf32>
  %d = arith.mulf %x, %b : tensor<?xf32>
  return %x, %d : tensor<?xf32>, tensor<?xf32>
}

// -----

func.func @model(%x: tensor<?xf64> {zorse.input = "x"})
    -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n0"}, tensor<?xf64> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"}) {
  // expected-error @below {{(M5) expects count n0 to read counts of lower numbers alone, but it depends on this number, which reads n0, itself}}
  %k = zorse.known "sqrt(B*n0)" : tensor<f64>
  %b = zorse.broadcast %k dims [] : tensor<f64> -> tensor<?xf64>
  %d = arith.mulf %x, %b : tensor<?xf64>
  return %x, %d : tensor<?xf64>, tensor<?xf64>
}

// -----

// A count may read values computed from earlier counts, and the sample index.
func.func @model(%x: tensor<?xf64> {zorse.input = "x"})
    -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n1"}, tensor<?xf64> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"},
        tensor<?xf64> {zorse.role = "count", zorse.count = 1 : i64, zorse.reduce = "max"}) {
  %k = zorse.known "n0/B" : tensor<f64>
  %b = zorse.broadcast %k dims [] : tensor<f64> -> tensor<?xf64>
  %d = arith.mulf %x, %b : tensor<?xf64>
  %i = zorse.sample_number : tensor<?xi64>
  %f = arith.sitofp %i : tensor<?xi64> to tensor<?xf64>
  %e = arith.mulf %d, %f : tensor<?xf64>
  return %x, %x, %e : tensor<?xf64>, tensor<?xf64>, tensor<?xf64>
}

// -----

// Two counts that read each other.
func.func @model(%x: tensor<?xf64> {zorse.input = "x"})
    -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n1"}, tensor<?xf64> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"},
        tensor<?xf64> {zorse.role = "count", zorse.count = 1 : i64, zorse.reduce = "sum"}) {
  %k = zorse.known "n0/B" : tensor<f64>
  %b = zorse.broadcast %k dims [] : tensor<f64> -> tensor<?xf64>
  %d = arith.mulf %x, %b : tensor<?xf64>
  // expected-error @below {{(M5) expects count n0 to read counts of lower numbers alone, but it depends on this number, which reads n1}}
  %l = zorse.known "n1" : tensor<f64>
  %c = zorse.broadcast %l dims [] : tensor<f64> -> tensor<?xf64>
  %e = arith.mulf %x, %c : tensor<?xf64>
  return %x, %e, %d : tensor<?xf64>, tensor<?xf64>, tensor<?xf64>
}

// -----

func.func @model(%x: tensor<?xf64> {zorse.input = "x"})
    -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  // expected-error @below {{'zorse.sample_number' op (C1) expects the result to be tensor<?xi64>, got 'tensor<?x2xi64>'}}
  %i = zorse.sample_number : tensor<?x2xi64>
  return %x : tensor<?xf64>
}

// -----

// Batch normalization over the batch: a mean over samples.
func.func @model(%x: tensor<?xf32> {zorse.input = "x"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  // expected-error @below {{(M6) mixes samples: it computes 'tensor<f32>' from values that carry samples}}
  %m = zorse.reduce sum %x dims [0] : tensor<?xf32> -> tensor<f32>
  %b = zorse.broadcast %m dims [] : tensor<f32> -> tensor<?xf32>
  %y = arith.subf %x, %b : tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

func.func @model(%x: tensor<?xf32> {zorse.input = "x"})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/B"}) {
  // expected-error @below {{(M7) expects only ops of zorse, arith and math in a model}}
  %y = tensor.cast %x : tensor<?xf32> to tensor<?xf32>
  return %y : tensor<?xf32>
}
