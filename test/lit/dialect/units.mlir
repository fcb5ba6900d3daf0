// RUN: zorse-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @model
// CHECK: %[[H:.*]] = zorse.unit @mlp "block 0 mlp" parameters(%{{.*}}) values(%{{.*}}) -> ["h.0"] : (tensor<8x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
// CHECK: zorse.unit @mlp "block 1 mlp" parameters(%{{.*}}) values(%[[H]]) rng_id_base 3 -> [""] : (tensor<8x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
func.func @model(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %h = zorse.unit @mlp "block 0 mlp" parameters(%a) values(%x) -> ["h.0"] : (tensor<8x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = zorse.unit @mlp "block 1 mlp" parameters(%b) values(%h) rng_id_base 3 -> [""] : (tensor<8x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
zorse.class @mlp {
  func.func @forward(%w: tensor<8x8xf32> {zorse.argument = #zorse.argument<parameter, 0>}, %x: tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>})
      -> (tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>}) {
    %y = zorse.matmul %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}
// CHECK: zorse.target @sm_80 attributes {functions = dense<1> : tensor<2xi8>} {
// CHECK:   builtin.module @kernel_12
zorse.target @sm_80 attributes {functions = dense<1> : tensor<2xi8>} {
  builtin.module @kernel_12 {}
}

// -----

func.func @model(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{(U1) expects a zorse.class @mlp, found none}}
  %y = zorse.unit @mlp "mlp" values(%x) -> ["y"] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @model(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{(U2) expects #zorse.argument<boundary_in, 0> of @c to be 'tensor<?x4xf32>', got 'tensor<?x8xf32>'}}
  %y = zorse.unit @c "c" values(%x) -> ["y"] : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
zorse.class @c {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>}) -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>}) {
    return %x : tensor<?x4xf32>
  }
}

// -----

func.func @model(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  // expected-error @below {{(U2) has 1 inputs, expects the 0 of @c}}
  %y = zorse.unit @c "c" inputs(%x) -> ["y"] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
zorse.class @c {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>}) -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>}) {
    return %x : tensor<?x4xf32>
  }
}

// -----

func.func @model(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  // expected-error @below {{(U3) expects a name for each of its 1 results, got 0}}
  %y = zorse.unit @c "c" values(%x) -> [] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
zorse.class @c {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>}) -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>}) {
    return %x : tensor<?x4xf32>
  }
}

// -----

zorse.target @sm_80 attributes {functions = dense<1> : tensor<2xi8>} {
  // expected-error @below {{stands in a zorse.target, expects modules that are called by their symbols}}
  func.func private @other()
}
