// RUN: zorse-opt %s --zorse-differentiate=recompute | FileCheck %s
// What a plan that recomputes calls for the last unit of a cell: of the forward what makes the saved values. An MLP half keeps its first product, so the second is
// not made again, nor are the parameters of the second and the sum read.

// CHECK-LABEL: func.func @mlp.forward(
// CHECK:         zorse.matmul
// CHECK:         zorse.matmul
// CHECK-LABEL: func.func @mlp.recompute(
// CHECK-NOT:     zorse.gradient}
// CHECK-NOT:     tensor<8x32xf32>
// CHECK-SAME:    -> (
// CHECK-NOT:     "boundary_out"
// CHECK-SAME:    tensor<?x4x32xf32> {zorse.index = {{[0-9]}} : i64, zorse.slot = "saved"}
// CHECK:         %[[H:.+]] = zorse.matmul %{{.+}}, %{{.+}} {transpose_b} : tensor<?x4x8xf32>, tensor<32x8xf32>
// CHECK-NOT:     zorse.matmul
// CHECK:         return
func.func @mlp.forward(%g: tensor<8xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                       %b: tensor<8xf32> {zorse.slot = "parameter", zorse.index = 1 : i64, zorse.gradient},
                       %w1: tensor<32x8xf32> {zorse.slot = "parameter", zorse.index = 2 : i64, zorse.gradient},
                       %w2: tensor<8x32xf32> {zorse.slot = "parameter", zorse.index = 3 : i64, zorse.gradient},
                       %x: tensor<?x4x8xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x4x8xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %n = zorse.layer_norm %x gain %g bias %b {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
  %h = zorse.matmul %n, %w1 {transpose_b} : tensor<?x4x8xf32>, tensor<32x8xf32> -> tensor<?x4x32xf32>
  %a = zorse.gelu %h : tensor<?x4x32xf32>
  %o = zorse.matmul %a, %w2 {transpose_b} : tensor<?x4x32xf32>, tensor<8x32xf32> -> tensor<?x4x8xf32>
  %y = arith.addf %x, %o : tensor<?x4x8xf32>
  return %y : tensor<?x4x8xf32>
}

// A unit whose gradients read nothing of the forward but its inputs saves nothing, and has no such part.
// CHECK-LABEL: func.func @sum.forward(
// CHECK-NOT:   @sum.recompute
func.func @sum.forward(%x: tensor<?x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %y = arith.addf %x, %x : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
