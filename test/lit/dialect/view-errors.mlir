// RUN: zorse-opt %s -split-input-file -verify-diagnostics
// One program per numbered constraint: the smallest that violates only this constraint. The function's name names the constraint.

func.func @type_rule_only_dimension_0_is_dynamic(%x: tensor<4x?xf32>) {
  // expected-error @below {{operand #0 must be ranked tensor with no dynamic dimension but dimension 0}}
  %y = zorse.reshape %x : tensor<4x?xf32> -> tensor<4x?xf32>
  return
}

// -----

func.func @reshape_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects equal element types, got 'f32' and 'f64'}}
  %y = zorse.reshape %x : tensor<4xf32> -> tensor<4xf64>
  return
}

// -----

func.func @reshape_c2(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C2) expects both or neither to carry samples}}
  %y = zorse.reshape %x : tensor<?x4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @reshape_c3(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C3) expects equal numbers of elements, got 4 and 5}}
  %y = zorse.reshape %x : tensor<?x4xf32> -> tensor<?x5xf32>
  return
}

// -----

func.func @transpose_c1(%x: tensor<2x4xf32>) {
  // expected-error @below {{(C1) expects a permutation of the 2 dimensions of x, got [0, 0]}}
  %y = zorse.transpose %x [0, 0] : tensor<2x4xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @transpose_c2(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C2) expects the sample axis to stay dimension 0, got [1, 0]}}
  %y = zorse.transpose %x [1, 0] : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @transpose_c3(%x: tensor<2x4xf32>) {
  // expected-error @below {{(C3) expects y 'tensor<4x2xf32>', got 'tensor<2x4xf32>'}}
  %y = zorse.transpose %x [1, 0] : tensor<2x4xf32> -> tensor<2x4xf32>
  return
}

// -----

func.func @slice_c1(%x: tensor<2x4xf32>) {
  // expected-error @below {{(C1) expects 2 offsets, sizes and strides, got 1, 1 and 1}}
  %y = zorse.slice %x [0] [2] [1] : tensor<2x4xf32> -> tensor<2xf32>
  return
}

// -----

func.func @slice_c2(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C2) expects the sample axis to be taken whole}}
  %y = zorse.slice %x [1, 0] [?, 4] [1, 1] : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @slice_c3(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C3) expects a slice inside dimension 1 of size 4, got offset 2, size 3, stride 1}}
  %y = zorse.slice %x [0, 2] [?, 3] [1, 1] : tensor<?x4xf32> -> tensor<?x3xf32>
  return
}

// -----

func.func @slice_c3_no_overflow(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C3) expects a slice inside dimension 1}}
  %y = zorse.slice %x [0, 1] [?, 3] [1, 9223372036854775807] : tensor<?x4xf32> -> tensor<?x3xf32>
  return
}

// -----

func.func @slice_c4(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C4) expects y 'tensor<?x2xf32>', got 'tensor<?x3xf32>'}}
  %y = zorse.slice %x [0, 2] [?, 2] [1, 1] : tensor<?x4xf32> -> tensor<?x3xf32>
  return
}

// -----

func.func @concat_c1(%x: tensor<?x4xf32>, %z: tensor<?x4xf64>) {
  // expected-error @below {{(C1) expects operands of one element type and rank}}
  %y = zorse.concat %x, %z {dim = 1 : i64} : (tensor<?x4xf32>, tensor<?x4xf64>) -> tensor<?x8xf32>
  return
}

// -----

func.func @concat_c2(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C2) expects dim to be a static dimension}}
  %y = zorse.concat %x, %x {dim = 0 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @concat_c3(%x: tensor<?x4x2xf32>, %z: tensor<?x4x3xf32>) {
  // expected-error @below {{(C3) expects operands to agree outside dimension 1}}
  %y = zorse.concat %x, %z {dim = 1 : i64} : (tensor<?x4x2xf32>, tensor<?x4x3xf32>) -> tensor<?x8x2xf32>
  return
}

// -----

func.func @concat_c4(%x: tensor<?x4xf32>) {
  // expected-error @below {{(C4) expects y 'tensor<?x8xf32>', got 'tensor<?x7xf32>'}}
  %y = zorse.concat %x, %x {dim = 1 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x7xf32>
  return
}

// -----

func.func @broadcast_c1(%x: tensor<4xf32>) {
  // expected-error @below {{(C1) expects equal element types}}
  %y = zorse.broadcast %x dims [1] : tensor<4xf32> -> tensor<?x4xf64>
  return
}

// -----

func.func @broadcast_c2(%x: tensor<4x2xf32>) {
  // expected-error @below {{(C2) expects 2 strictly increasing dimensions}}
  %y = zorse.broadcast %x dims [2, 1] : tensor<4x2xf32> -> tensor<?x2x4xf32>
  return
}

// -----

func.func @broadcast_c3_size_1_does_not_stretch(%x: tensor<1xf32>) {
  // expected-error @below {{(C3) expects dimension 0 of 'tensor<1xf32>' to have the size of dimension 1}}
  %y = zorse.broadcast %x dims [1] : tensor<1xf32> -> tensor<?x4xf32>
  return
}
