// RUN: zorse-opt %s -split-input-file --zorse-differentiate | FileCheck %s
// Operations that move elements in the forward move gradients in the backward.

// Slices that tile a value give one concat, not a sum of padded slices.
// CHECK-LABEL: zorse.class @fused {
// CHECK-LABEL: func.func @backward
// CHECK:         %[[D:.+]] = zorse.concat %{{.*}}, %{{.*}}, %{{.*}} {dim = 2 : i64} : (tensor<?x3x4xf32>, tensor<?x3x4xf32>, tensor<?x3x4xf32>) -> tensor<?x3x12xf32>
// CHECK-NEXT:    return %[[D]]
zorse.class @fused {
  func.func @forward(%x: tensor<?x3x12xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %q = zorse.slice %x [0, 0, 0] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
    %k = zorse.slice %x [0, 0, 4] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
    %v = zorse.slice %x [0, 0, 8] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
    %p = arith.mulf %q, %k : tensor<?x3x4xf32>
    %y = arith.addf %p, %v : tensor<?x3x4xf32>
    return %y : tensor<?x3x4xf32>
  }
}

// -----

// CHECK-LABEL: zorse.class @transpose {
// CHECK-LABEL: func.func @backward
// CHECK:         zorse.transpose %{{.*}} [0, 2, 3, 1] : tensor<?x4x2x3xf32> -> tensor<?x2x3x4xf32>
zorse.class @transpose {
  func.func @forward(%x: tensor<?x2x3x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4x2x3xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.transpose %x [0, 3, 1, 2] : tensor<?x2x3x4xf32> -> tensor<?x4x2x3xf32>
    return %y : tensor<?x4x2x3xf32>
  }
}

// -----

// CHECK-LABEL: zorse.class @concat {
// CHECK-LABEL: func.func @backward
// CHECK-DAG:     zorse.slice %{{.*}} [0, 0] [?, 3] [1, 1] : tensor<?x8xf32> -> tensor<?x3xf32>
// CHECK-DAG:     zorse.slice %{{.*}} [0, 3] [?, 5] [1, 1] : tensor<?x8xf32> -> tensor<?x5xf32>
zorse.class @concat {
  func.func @forward(%x: tensor<?x3xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient},
                     %z: tensor<?x5xf32> {zorse.argument = #zorse.argument<boundary_in, 1>, zorse.gradient})
      -> (tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.concat %x, %z {dim = 1 : i64} : (tensor<?x3xf32>, tensor<?x5xf32>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}
