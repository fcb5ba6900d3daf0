// RUN: zorse-opt %s -split-input-file --zorse-differentiate | FileCheck %s
// Gradients of weights are contractions over everything in front, those of activations products.

// CHECK-LABEL: func.func @weight.backward
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<5x4xf32> {zorse.index = 0 : i64, zorse.slot = "parameter"}
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<?x3x4xf32> {zorse.index = 0 : i64, zorse.slot = "boundary_in"}
// CHECK-SAME:    %[[DY:[a-z0-9]+]]: tensor<?x3x5xf32> {zorse.index = 0 : i64, zorse.slot = "boundary_out_gradient"}
// CHECK-SAME:    -> (tensor<?x3x4xf32> {zorse.index = 0 : i64, zorse.slot = "boundary_in_gradient"}, tensor<5x4xf32> {zorse.index = 0 : i64, zorse.slot = "parameter_gradient"})
// CHECK:         %[[DW:.+]] = zorse.contract %[[DY]], %[[X]]
// CHECK:         %[[DX:.+]] = zorse.matmul %[[DY]], %[[W]] :
// CHECK:         return %[[DX]], %[[DW]]
func.func @weight.forward(%w: tensor<5x4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                          %x: tensor<?x3x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x3x5xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %y = zorse.matmul %x, %w {transpose_b} : tensor<?x3x4xf32>, tensor<5x4xf32> -> tensor<?x3x5xf32>
  return %y : tensor<?x3x5xf32>
}

// -----

// A table's gradient; ids have none, and the table itself is not read.
// CHECK-LABEL: func.func @embedding.backward
// CHECK-SAME:    (%[[IDS:[a-z0-9]+]]: tensor<?x3xi64> {{{.*}}"input"}, %[[DY:[a-z0-9]+]]: tensor<?x3x4xf32>
// CHECK-NEXT:    %[[D:.+]] = zorse.scatter_add %[[IDS]], %[[DY]] : {{.*}} -> tensor<11x4xf32>
// CHECK-NEXT:    return %[[D]]
func.func @embedding.forward(%w: tensor<11x4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                             %ids: tensor<?x3xi64> {zorse.slot = "input", zorse.index = 0 : i64})
    -> (tensor<?x3x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %y = zorse.gather %w, %ids : tensor<11x4xf32>, tensor<?x3xi64> -> tensor<?x3x4xf32>
  return %y : tensor<?x3x4xf32>
}

// -----

// The padding row of a table has no gradient.
// CHECK-LABEL: func.func @padded.backward
// CHECK:         zorse.scatter_add %{{.*}}, %{{.*}} {padding = 2 : i64} : {{.*}} -> tensor<11x4xf32>
func.func @padded.forward(%w: tensor<11x4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                          %ids: tensor<?x3xi64> {zorse.slot = "input", zorse.index = 0 : i64})
    -> (tensor<?x3x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %y = zorse.gather %w, %ids {padding = 2 : i64} : tensor<11x4xf32>, tensor<?x3xi64> -> tensor<?x3x4xf32>
  return %y : tensor<?x3x4xf32>
}

// -----

// Nothing flows back through a detached value: the gradient of x is that of one factor, and no operation remains of the stop.
// CHECK-LABEL: func.func @stopped.forward
// CHECK-NOT:     zorse.detach
// CHECK-LABEL: func.func @stopped.backward
// CHECK:         %[[D:.+]] = arith.mulf
// CHECK-NEXT:    return %[[D]]
func.func @stopped.forward(%x: tensor<?x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %d = zorse.detach %x : tensor<?x4xf32>
  %y = arith.mulf %x, %d : tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// A bias is repeated over rows, so its gradient sums over rows.
// CHECK-LABEL: func.func @bias.backward
// CHECK:         zorse.reduce sum %{{.*}} dims [0, 1] : tensor<?x3x4xf32> -> tensor<4xf32>
func.func @bias.forward(%b: tensor<4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                        %x: tensor<?x3x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x3x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %r = zorse.broadcast %b dims [2] : tensor<4xf32> -> tensor<?x3x4xf32>
  %y = arith.addf %x, %r : tensor<?x3x4xf32>
  return %y : tensor<?x3x4xf32>
}
