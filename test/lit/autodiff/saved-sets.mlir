// RUN: zorse-opt %s --zorse-differentiate=save=min-cut | FileCheck %s --check-prefixes=CHECK,MIN
// RUN: zorse-opt %s --zorse-differentiate=save=keep | FileCheck %s --check-prefixes=CHECK,KEEP
// RUN: zorse-opt %s --zorse-differentiate=save=full | FileCheck %s --check-prefixes=CHECK,FULL
// An MLP half. The minimum cut saves the statistics and the matmul with its bias, 4 + 4 + 128 bytes per position, and recomputes the norm and the gelu; no matmul is
// computed twice. Keep also saves the results of the norm and the gelu. Full recomputes everything except the last matmul.

// CHECK-LABEL: zorse.class @mlp {
// CHECK-LABEL: func.func @forward
// MIN-SAME:      tensor<?x4xf32> {zorse.argument = #zorse.argument<saved, 0>}, tensor<?x4xf32> {zorse.argument = #zorse.argument<saved, 1>}, tensor<?x4x32xf32> {zorse.argument = #zorse.argument<saved, 2>})
// MIN:           %[[H:.+]] = arith.addf %{{.*}} : tensor<?x4x32xf32>
// MIN:           return %{{.*}}, %{{.*}}#0, %{{.*}}#1, %[[H]]
// KEEP-SAME:     tensor<?x4x8xf32> {zorse.argument = #zorse.argument<saved, 0>}
// KEEP-SAME:     tensor<?x4x32xf32> {zorse.argument = #zorse.argument<saved, 4>})
// FULL-NOT:      <saved

// CHECK-LABEL: func.func @backward
// MIN-NOT:       zorse.matmul %{{.*}} {transpose_b}
// MIN:           zorse.gelu %
// MIN:           zorse.gelu_grad
// MIN:           %{{[a-z]+}} = zorse.layer_norm %
// KEEP-NOT:      zorse.gelu %
// KEEP-NOT:      zorse.layer_norm %
// FULL:          zorse.layer_norm
// FULL:          zorse.matmul
// FULL:          zorse.gelu %
// CHECK:         zorse.layer_norm_grad_params
// CHECK:         zorse.layer_norm_grad_input
zorse.class @mlp {
  func.func @forward(%g: tensor<8xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %b: tensor<8xf32> {zorse.argument = #zorse.argument<parameter, 1>, zorse.gradient},
                     %w1: tensor<32x8xf32> {zorse.argument = #zorse.argument<parameter, 2>, zorse.gradient},
                     %b1: tensor<32xf32> {zorse.argument = #zorse.argument<parameter, 3>, zorse.gradient},
                     %w2: tensor<8x32xf32> {zorse.argument = #zorse.argument<parameter, 4>, zorse.gradient},
                     %x: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %n = zorse.layer_norm %x weight %g bias %b {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
    %h0 = zorse.matmul %n, %w1 {transpose_b} : tensor<?x4x8xf32>, tensor<32x8xf32> -> tensor<?x4x32xf32>
    %bb = zorse.broadcast %b1 dims [2] : tensor<32xf32> -> tensor<?x4x32xf32>
    %h = arith.addf %h0, %bb : tensor<?x4x32xf32>
    %a = zorse.gelu %h : tensor<?x4x32xf32>
    %o = zorse.matmul %a, %w2 {transpose_b} : tensor<?x4x32xf32>, tensor<8x32xf32> -> tensor<?x4x8xf32>
    %y = arith.addf %x, %o : tensor<?x4x8xf32>
    return %y : tensor<?x4x8xf32>
  }
}
