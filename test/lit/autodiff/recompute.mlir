// RUN: zorse-opt %s --zorse-differentiate=recompute | FileCheck %s
// The function that a plan with recomputation calls for the last unit of a cell: the part of the forward that computes the saved values. An MLP half saves its first
// matmul, so the second is not computed again, and the parameters of the second matmul and of the sum are not read.

// CHECK-LABEL: zorse.class @mlp {
// CHECK-LABEL: func.func @forward(
// CHECK:         zorse.matmul
// CHECK:         zorse.matmul
// CHECK-LABEL: func.func @recompute(
// CHECK-NOT:     zorse.gradient}
// CHECK-NOT:     tensor<8x32xf32>
// CHECK-SAME:    -> (
// CHECK-NOT:     "boundary_out"
// CHECK-SAME:    tensor<?x4x32xf32> {zorse.argument = #zorse.argument<saved, {{[0-9]}}>}
// CHECK:         %[[H:.+]] = zorse.matmul %{{.+}}, %{{.+}} {transpose_b} : tensor<?x4x8xf32>, tensor<32x8xf32>
// CHECK-NOT:     zorse.matmul
// CHECK:         return
zorse.class @mlp {
  func.func @forward(%g: tensor<8xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %b: tensor<8xf32> {zorse.argument = #zorse.argument<parameter, 1>, zorse.gradient},
                     %w1: tensor<32x8xf32> {zorse.argument = #zorse.argument<parameter, 2>, zorse.gradient},
                     %w2: tensor<8x32xf32> {zorse.argument = #zorse.argument<parameter, 3>, zorse.gradient},
                     %x: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %n = zorse.layer_norm %x weight %g bias %b {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
    %h = zorse.matmul %n, %w1 {transpose_b} : tensor<?x4x8xf32>, tensor<32x8xf32> -> tensor<?x4x32xf32>
    %a = zorse.gelu %h : tensor<?x4x32xf32>
    %o = zorse.matmul %a, %w2 {transpose_b} : tensor<?x4x32xf32>, tensor<8x32xf32> -> tensor<?x4x8xf32>
    %y = arith.addf %x, %o : tensor<?x4x8xf32>
    return %y : tensor<?x4x8xf32>
  }
}

// A unit whose gradients read only its inputs saves nothing and has no such function.
// CHECK-LABEL: zorse.class @sum {
// CHECK-LABEL: func.func @forward(
// CHECK-NOT:   @sum.recompute
zorse.class @sum {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = arith.addf %x, %x : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}
