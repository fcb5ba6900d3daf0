// RUN: zorse-opt %s -split-input-file --zorse-differentiate | FileCheck %s

// Attention saves its operands, its output and one number per query. With fused q, k, v it saves the whole matmul result, not three slices of it. The backward draws
// the same random numbers for the same dropout instance.
// CHECK-LABEL: zorse.class @attention {
// CHECK-LABEL: func.func @forward
// CHECK-SAME:    tensor<?x3x12xf32> {zorse.argument = #zorse.argument<saved, 0>}, tensor<?x3x2x2xf32> {zorse.argument = #zorse.argument<saved, 1>}, tensor<?x2x3xf32> {zorse.argument = #zorse.argument<saved, 2>})
// CHECK:         %[[OUT:.+]], %[[LSE:.+]] = zorse.attention
// CHECK-LABEL: func.func @backward
// CHECK-NOT:     zorse.attention %
// CHECK:         zorse.attention_grad {{.*}} {causal, dropout = 1.000000e-01 : f64, rng_id = 2 : i64, scale = 5.000000e-01 : f64}
// CHECK:         zorse.concat
// CHECK:         zorse.matmul_grad_weight
zorse.class @attention {
  func.func @forward(%w: tensor<12x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %x: tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3x2x2xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %qkv = zorse.matmul %x, %w {transpose_b} : tensor<?x3x4xf32>, tensor<12x4xf32> -> tensor<?x3x12xf32>
    %q0 = zorse.slice %qkv [0, 0, 0] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
    %k0 = zorse.slice %qkv [0, 0, 4] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
    %v0 = zorse.slice %qkv [0, 0, 8] [?, 3, 4] [1, 1, 1] : tensor<?x3x12xf32> -> tensor<?x3x4xf32>
    %q = zorse.reshape %q0 : tensor<?x3x4xf32> -> tensor<?x3x2x2xf32>
    %k = zorse.reshape %k0 : tensor<?x3x4xf32> -> tensor<?x3x2x2xf32>
    %v = zorse.reshape %v0 : tensor<?x3x4xf32> -> tensor<?x3x2x2xf32>
    %y = zorse.attention %q, %k, %v {causal, scale = 0.5 : f64, dropout = 0.1 : f64, rng_id = 2 : i64}
        : (tensor<?x3x2x2xf32>, tensor<?x3x2x2xf32>, tensor<?x3x2x2xf32>) -> tensor<?x3x2x2xf32>
    return %y : tensor<?x3x2x2xf32>
  }
}

// -----

// The gradient of a rotation is the inverse rotation. The angles are read again; nothing is saved.
// CHECK-LABEL: zorse.class @rope {
// CHECK-LABEL: func.func @forward
// CHECK-NOT:     <saved
// CHECK-LABEL: func.func @backward
// CHECK:         zorse.rope %{{.*}} {inverse}
zorse.class @rope {
  func.func @forward(%c: tensor<3x2xf32> {zorse.argument = #zorse.argument<parameter, 0>}, %s: tensor<3x2xf32> {zorse.argument = #zorse.argument<parameter, 1>},
                     %x: tensor<?x3x2x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3x2x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.rope %x, %c, %s : (tensor<?x3x2x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<?x3x2x4xf32>
    return %y : tensor<?x3x2x4xf32>
  }
}
