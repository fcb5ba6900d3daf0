// RUN: zorse-opt %s -split-input-file --zorse-differentiate | FileCheck %s
// Gradients of weights are contractions over all leading dimensions; gradients of activations are matmuls.

// CHECK-LABEL: zorse.class @weight {
// CHECK-LABEL: func.func @backward
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<5x4xf32> {zorse.argument = #zorse.argument<parameter, 0>}
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>}
// CHECK-SAME:    %[[DY:[a-z0-9]+]]: tensor<?x3x5xf32> {zorse.argument = #zorse.argument<boundary_out_gradient, 0>}
// CHECK-SAME:    -> (tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_in_gradient, 0>}, tensor<5x4xf32> {zorse.argument = #zorse.argument<parameter_gradient, 0>})
// CHECK:         %[[DW:.+]] = zorse.matmul_grad_weight %[[DY]], %[[X]]
// CHECK:         %[[DX:.+]] = zorse.matmul %[[DY]], %[[W]] :
// CHECK:         return %[[DX]], %[[DW]]
zorse.class @weight {
  func.func @forward(%w: tensor<5x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %x: tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3x5xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.matmul %x, %w {transpose_b} : tensor<?x3x4xf32>, tensor<5x4xf32> -> tensor<?x3x5xf32>
    return %y : tensor<?x3x5xf32>
  }
}

// -----

// The gradient of an embedding table: ids have none, and the table itself is not read.
// CHECK-LABEL: zorse.class @embedding {
// CHECK-LABEL: func.func @backward
// CHECK-SAME:    (%[[IDS:[a-z0-9]+]]: tensor<?x3xi64> {{{.*}}<input, 0>}, %[[DY:[a-z0-9]+]]: tensor<?x3x4xf32>
// CHECK-NEXT:    %[[D:.+]] = zorse.scatter_add %[[IDS]], %[[DY]] : {{.*}} -> tensor<11x4xf32>
// CHECK-NEXT:    return %[[D]]
zorse.class @embedding {
  func.func @forward(%w: tensor<11x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %ids: tensor<?x3xi64> {zorse.argument = #zorse.argument<input, 0>})
      -> (tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.gather %w, %ids : tensor<11x4xf32>, tensor<?x3xi64> -> tensor<?x3x4xf32>
    return %y : tensor<?x3x4xf32>
  }
}

// -----

// The padding row of a table has no gradient.
// CHECK-LABEL: zorse.class @padded {
// CHECK-LABEL: func.func @backward
// CHECK:         zorse.scatter_add %{{.*}}, %{{.*}} {padding = 2 : i64} : {{.*}} -> tensor<11x4xf32>
zorse.class @padded {
  func.func @forward(%w: tensor<11x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %ids: tensor<?x3xi64> {zorse.argument = #zorse.argument<input, 0>})
      -> (tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.gather %w, %ids {padding = 2 : i64} : tensor<11x4xf32>, tensor<?x3xi64> -> tensor<?x3x4xf32>
    return %y : tensor<?x3x4xf32>
  }
}

// -----

// A detached value has no gradient: the gradient of x is that of one factor, and no operation remains of the detach.
// CHECK-LABEL: zorse.class @stopped {
// CHECK-LABEL: func.func @forward
// CHECK-NOT:     zorse.detach
// CHECK-LABEL: func.func @backward
// CHECK:         %[[D:.+]] = arith.mulf
// CHECK-NEXT:    return %[[D]]
zorse.class @stopped {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %d = zorse.detach %x : tensor<?x4xf32>
    %y = arith.mulf %x, %d : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// A bias is broadcast over rows, so its gradient is a sum over rows.
// CHECK-LABEL: zorse.class @bias {
// CHECK-LABEL: func.func @backward
// CHECK:         zorse.reduce sum %{{.*}} dims [0, 1] : tensor<?x3x4xf32> -> tensor<4xf32>
zorse.class @bias {
  func.func @forward(%b: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %x: tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %r = zorse.broadcast %b dims [2] : tensor<4xf32> -> tensor<?x3x4xf32>
    %y = arith.addf %x, %r : tensor<?x3x4xf32>
    return %y : tensor<?x3x4xf32>
  }
}
