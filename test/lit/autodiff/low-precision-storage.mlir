// RUN: zorse-opt %s --zorse-join-backward --zorse-low-precision-storage | FileCheck %s
// RUN: zorse-opt %s --zorse-join-backward --zorse-low-precision-storage --zorse-choose-saved --zorse-slice-joint | FileCheck %s --check-prefix=SLICED
// Rounded values are two bytes wide: at cuts, as saved tensors, and as operands and results of matmuls. Gradients of parameters stay f32.

// CHECK-LABEL: zorse.class @mlp {
// CHECK-LABEL: func.func @joint(
// CHECK-SAME:    %[[W:[^:]+]]: tensor<64x4xf32>
// CHECK-SAME:    %[[X:[^:]+]]: tensor<?x4xbf16>
// CHECK-SAME:    %[[DY:[^:]+]]: tensor<?x64xbf16>
// CHECK-SAME:    -> (tensor<?x64xbf16> {{.*}}, tensor<?x4xbf16> {{.*}}, tensor<64x4xf32> {{.*}})
// CHECK:         %[[COPY:.+]] = arith.truncf %[[W]]
// CHECK:         %[[H:.+]] = zorse.matmul %[[X]], %[[COPY]] {transpose_b} : tensor<?x4xbf16>, tensor<64x4xbf16> -> tensor<?x64xbf16>
// CHECK:         %[[WIDE:.+]] = arith.extf %[[H]]
// CHECK:         %[[Y:.+]] = zorse.gelu %[[WIDE]] : tensor<?x64xf32>
// CHECK:         %[[OUT:.+]] = arith.truncf %[[Y]]
// CHECK:         zorse.gelu_grad
// CHECK:         %[[DH:.+]] = arith.truncf
// CHECK:         zorse.matmul_grad_weight %[[DH]], %[[X]] : tensor<?x64xbf16>, tensor<?x4xbf16> -> tensor<64x4xf32>
// CHECK:         %[[DX:.+]] = zorse.matmul %[[DH]], %[[COPY]] : tensor<?x64xbf16>, tensor<64x4xbf16> -> tensor<?x4xf32>
// CHECK:         %[[GRADIENT:.+]] = arith.truncf %[[DX]]
// CHECK:         return %[[OUT]], %[[GRADIENT]],

// SLICED-LABEL: func.func @forward(
// SLICED-SAME:    tensor<?x64xbf16> {zorse.argument = #zorse.argument<saved, 0>}
zorse.class @mlp {
  func.func @forward(%w: tensor<64x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient, zorse.low_precision = bf16})
      -> (tensor<?x64xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient, zorse.low_precision = bf16}) {
    %c = zorse.round %w to bf16 {straight_through} : tensor<64x4xf32>
    %h = zorse.matmul %x, %c {transpose_b} : tensor<?x4xf32>, tensor<64x4xf32> -> tensor<?x64xf32>
    %hr = zorse.round %h to bf16 : tensor<?x64xf32>
    %y = zorse.gelu %hr : tensor<?x64xf32>
    %yr = zorse.round %y to bf16 : tensor<?x64xf32>
    return %yr : tensor<?x64xf32>
  }
}
