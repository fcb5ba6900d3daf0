// RUN: zorse-opt %s -split-input-file -verify-diagnostics
// One program per numbered constraint: the smallest that violates only this constraint. The function's name names the constraint.

func.func @reduce_kind(%x: tensor<?x4xf32>) {
  // expected-error @below {{expects a kind of reduction (sum, max, min or prod), got 'mean'}}
  %y = zorse.reduce mean %x dims [1] : tensor<?x4xf32> -> tensor<?xf32>
  return
}

// -----

func.func @reduce_c1(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C1) expects strictly increasing dimensions}}
  %y = zorse.reduce sum %x dims [2] : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @reduce_c2(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C2) expects y 'tensor<?xf32>', got 'tensor<?x1xf32>'}}
  %y = zorse.reduce sum %x dims [1] : tensor<?x4xf32> -> tensor<?x1xf32>
  return
}

// -----

func.func @reduce_c3(%x: tensor<?x4xi1>) {
  // expected-error @below {{(C3) expects integers or floats}}
  %y = zorse.reduce max %x dims [1] : tensor<?x4xi1> -> tensor<?xi1>
  return
}

// -----

func.func @matmul_c1(%x: tensor<?xf32>, %w: tensor<4x2xf32>) {
  // expected-error @below {{(C1) expects a of rank >= 2}}
  %y = zorse.matmul %x, %w : tensor<?xf32>, tensor<4x2xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @matmul_c2(%x: tensor<?x3x4x4xf32>, %w: tensor<?x2x4x4xf32>) {
  // expected-error @below {{(C2) expects equal batch dimensions}}
  %y = zorse.matmul %x, %w : tensor<?x3x4x4xf32>, tensor<?x2x4x4xf32> -> tensor<?x3x4x4xf32>
  return
}

// -----

func.func @matmul_c3(%x: tensor<?x4xf32>, %w: tensor<5x2xf32>) {
  // expected-error @below {{(C3) expects inner dimensions to agree, got 4 and 5}}
  %y = zorse.matmul %x, %w : tensor<?x4xf32>, tensor<5x2xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @matmul_c4(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C4) expects K and N not to be the sample axis}}
  %y = zorse.matmul %x, %x {transpose_a} : tensor<?x4xf32>, tensor<?x4xf32> -> tensor<4x4xf32>
  return
}

// -----

func.func @matmul_c5(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // expected-error @below {{(C5) expects y 'tensor<?x2xf32>'}}
  %y = zorse.matmul %x, %w : tensor<?x4xf32>, tensor<4x2xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @biased_matmul_c1(%x: tensor<?x4xf32>, %w: tensor<5x2xf32>, %b: tensor<2xf32>) {
  // expected-error @below {{(C1) expects a [..., K] and a weight [K, N] of one element type, got 'tensor<?x4xf32>' and 'tensor<5x2xf32>'}}
  %y = zorse.biased_matmul %x, %w, %b : tensor<?x4xf32>, tensor<5x2xf32>, tensor<2xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @biased_matmul_c2(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>, %b: tensor<2xf32>) {
  // expected-error @below {{(C2) expects y 'tensor<?x2xf32>'}}
  %y = zorse.biased_matmul %x, %w, %b : tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @biased_matmul_c3(%x: tensor<?x4xbf16>, %w: tensor<4x2xbf16>, %b: tensor<2xf32>) {
  // expected-error @below {{(C3) expects bias 'tensor<2xbf16>', got 'tensor<2xf32>'}}
  %y = zorse.biased_matmul %x, %w, %b : tensor<?x4xbf16>, tensor<4x2xbf16>, tensor<2xf32> -> tensor<?x2xbf16>
  return
}

// -----

func.func @matmul_grad_weight_c1(%x: tensor<?x4xf32>, %z: tensor<?x3x4xf32>) {
  // expected-error @below {{(C1) expects operands of equal rank >= 2}}
  %y = zorse.matmul_grad_weight %x, %z : tensor<?x4xf32>, tensor<?x3x4xf32> -> tensor<4x4xf32>
  return
}

// -----

func.func @matmul_grad_weight_c2(%x: tensor<?x2x4xf32>, %z: tensor<?x3x4xf32>) {
  // expected-error @below {{(C2) expects all dimensions but the last to agree}}
  %y = zorse.matmul_grad_weight %x, %z : tensor<?x2x4xf32>, tensor<?x3x4xf32> -> tensor<4x4xf32>
  return
}

// -----

func.func @matmul_grad_weight_c3(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C3) expects y 'tensor<4x4xf32>'}}
  %y = zorse.matmul_grad_weight %x, %x : tensor<?x4xf32>, tensor<?x4xf32> -> tensor<4x5xf32>
  return
}

// -----

func.func @gather_c1(%x: tensor<?x4xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C1) expects a table of rank >= 1 without samples}}
  %y = zorse.gather %x, %i : tensor<?x4xf32>, tensor<?xi64> -> tensor<?x4xf32>
  return
}

// -----

func.func @gather_c2(%x: tensor<9x4xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C2) expects y 'tensor<?x4xf32>'}}
  %y = zorse.gather %x, %i : tensor<9x4xf32>, tensor<?xi64> -> tensor<?x9xf32>
  return
}

// -----

func.func @gather_c3(%x: tensor<9x4xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C3) expects padding to be a row of 'tensor<9x4xf32>', got 9}}
  %y = zorse.gather %x, %i {padding = 9 : i64} : tensor<9x4xf32>, tensor<?xi64> -> tensor<?x4xf32>
  return
}

// -----

func.func @scatter_add_c3(%u: tensor<?x4xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C3) expects padding to be a row of 'tensor<9x4xf32>', got -1}}
  %y = zorse.scatter_add %i, %u {padding = -1 : i64} : tensor<?xi64>, tensor<?x4xf32> -> tensor<9x4xf32>
  return
}

// -----

func.func @scatter_add_c1(%u: tensor<?x3xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C1) expects updates 'tensor<?x4xf32>'}}
  %y = zorse.scatter_add %i, %u : tensor<?xi64>, tensor<?x3xf32> -> tensor<9x4xf32>
  return
}

// -----

func.func @scatter_add_c2(%u: tensor<?x4xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C2) expects y of rank >= 1 without samples and of element type 'f32'}}
  %y = zorse.scatter_add %i, %u : tensor<?xi64>, tensor<?x4xf32> -> tensor<9x4xf64>
  return
}

// -----

func.func @take_along_dim_c1(%x: tensor<?x4xf32>, %i: tensor<?x4xi64>) {
  // expected-error @below {{(C1) expects indices of the shape of x without its (static) last dimension}}
  %y = zorse.take_along_dim %x, %i : tensor<?x4xf32>, tensor<?x4xi64> -> tensor<?x4xf32>
  return
}

// -----

func.func @take_along_dim_c2(%x: tensor<?x4xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C2) expects y 'tensor<?xf32>'}}
  %y = zorse.take_along_dim %x, %i : tensor<?x4xf32>, tensor<?xi64> -> tensor<?x4xf32>
  return
}

// -----

func.func @take_along_dim_grad_c1(%x: tensor<?xf32>, %i: tensor<?x2xi64>) {
  // expected-error @below {{(C1) expects indices of the shape of dy}}
  %y = zorse.take_along_dim_grad %x, %i : tensor<?xf32>, tensor<?x2xi64> -> tensor<?x4xf32>
  return
}

// -----

func.func @take_along_dim_grad_c2(%x: tensor<?xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C2) expects dx to be 'tensor<?xf32>' with one static dimension appended}}
  %y = zorse.take_along_dim_grad %x, %i : tensor<?xf32>, tensor<?xi64> -> tensor<?x2x4xf32>
  return
}
