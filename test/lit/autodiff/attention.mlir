// RUN: zorse-opt %s -split-input-file --zorse-differentiate | FileCheck %s

// Attention keeps its operands, its output and one number per query; with fused q, k, v the whole product is kept, not three slices of it. The same dropout
// instance draws the same numbers in the backward.
// CHECK-LABEL: func.func @attention.forward
// CHECK-SAME:    tensor<?x3x12xf32> {zorse.index = 0 : i64, zorse.slot = "saved"}, tensor<?x3x2x2xf32> {zorse.index = 1 : i64, zorse.slot = "saved"}, tensor<?x2x3xf32> {zorse.index = 2 : i64, zorse.slot = "saved"})
// CHECK:         %[[OUT:.+]], %[[LSE:.+]] = zorse.attention
// CHECK-LABEL: func.func @attention.backward
// CHECK-NOT:     zorse.attention %
// CHECK:         zorse.attention_grad {{.*}} {causal, dropout = 1.000000e-01 : f64, instance = 2 : i64, scale = 5.000000e-01 : f64}
// CHECK:         zorse.concat
// CHECK:         zorse.contract
func.func @attention.forward(%w: tensor<12x4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                             %x: tensor<?x3x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x3x2x2xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %qkv = zorse.matmul %x, %w {transpose_b} : tensor<?x3x4xf32>, tensor<12x4xf32> -> tensor<?x3x12xf32>
  %q0 = zorse.slice %qkv [0, 0, 0] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
  %k0 = zorse.slice %qkv [0, 0, 4] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
  %v0 = zorse.slice %qkv [0, 0, 8] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
  %q = zorse.reshape %q0 : tensor<?x3x4xf32> -> tensor<?x3x2x2xf32>
  %k = zorse.reshape %k0 : tensor<?x3x4xf32> -> tensor<?x3x2x2xf32>
  %v = zorse.reshape %v0 : tensor<?x3x4xf32> -> tensor<?x3x2x2xf32>
  %y = zorse.attention %q, %k, %v {causal, scale = 0.5 : f64, dropout = 0.1 : f64, instance = 2 : i64}
      : (tensor<?x3x2x2xf32>, tensor<?x3x2x2xf32>, tensor<?x3x2x2xf32>) -> tensor<?x3x2x2xf32>
  return %y : tensor<?x3x2x2xf32>
}

// -----

// A rotation's gradient is the rotation back; the angles are read again, nothing is kept.
// CHECK-LABEL: func.func @rope.forward
// CHECK-NOT:     "saved"
// CHECK-LABEL: func.func @rope.backward
// CHECK:         zorse.rope %{{.*}} {inverse}
func.func @rope.forward(%c: tensor<3x2xf32> {zorse.slot = "parameter", zorse.index = 0 : i64}, %s: tensor<3x2xf32> {zorse.slot = "parameter", zorse.index = 1 : i64},
                        %x: tensor<?x3x2x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x3x2x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %y = zorse.rope %x, %c, %s : (tensor<?x3x2x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<?x3x2x4xf32>
  return %y : tensor<?x3x2x4xf32>
}
