// RUN: zorse-opt %s | zorse-opt | FileCheck %s
// Every op is parsed and printed twice; both printed texts are equal.

// CHECK-LABEL: @views
func.func @views(%x: tensor<?x64x768xf32>, %b: tensor<768xf32>) {
  // CHECK: zorse.reshape %arg0 : tensor<?x64x768xf32> -> tensor<?x64x12x64xf32>
  %0 = zorse.reshape %x : tensor<?x64x768xf32> -> tensor<?x64x12x64xf32>
  // CHECK: zorse.transpose %{{.*}} [0, 2, 1, 3] : tensor<?x64x12x64xf32> -> tensor<?x12x64x64xf32>
  %1 = zorse.transpose %0 [0, 2, 1, 3] : tensor<?x64x12x64xf32> -> tensor<?x12x64x64xf32>
  // CHECK: zorse.slice %arg0 [0, 0, 64] [?, 64, 32] [1, 1, 2] : tensor<?x64x768xf32> -> tensor<?x64x32xf32>
  %2 = zorse.slice %x [0, 0, 64] [?, 64, 32] [1, 1, 2] : tensor<?x64x768xf32> -> tensor<?x64x32xf32>
  // CHECK: zorse.concat %{{.*}}, %arg0 {dim = 2 : i64} : (tensor<?x64x32xf32>, tensor<?x64x768xf32>) -> tensor<?x64x800xf32>
  %3 = zorse.concat %2, %x {dim = 2 : i64} : (tensor<?x64x32xf32>, tensor<?x64x768xf32>) -> tensor<?x64x800xf32>
  // CHECK: zorse.broadcast %arg1 dims [2] : tensor<768xf32> -> tensor<?x64x768xf32>
  %4 = zorse.broadcast %b dims [2] : tensor<768xf32> -> tensor<?x64x768xf32>
  return
}

// CHECK-LABEL: @products
func.func @products(%x: tensor<?x64x768xf32>, %w: tensor<3072x768xf32>, %ids: tensor<?x64xi64>, %a: tensor<?x12x64x32xf32>) {
  // CHECK: zorse.reduce max %arg0 dims [1, 2] : tensor<?x64x768xf32> -> tensor<?xf32>
  %0 = zorse.reduce max %x dims [1, 2] : tensor<?x64x768xf32> -> tensor<?xf32>
  // CHECK: zorse.matmul %arg0, %arg1 {transpose_b} : tensor<?x64x768xf32>, tensor<3072x768xf32> -> tensor<?x64x3072xf32>
  %1 = zorse.matmul %x, %w {transpose_b} : tensor<?x64x768xf32>, tensor<3072x768xf32> -> tensor<?x64x3072xf32>
  // CHECK: zorse.matmul %arg3, %arg3 {transpose_a} : tensor<?x12x64x32xf32>, tensor<?x12x64x32xf32> -> tensor<?x12x32x32xf32>
  %2 = zorse.matmul %a, %a {transpose_a} : tensor<?x12x64x32xf32>, tensor<?x12x64x32xf32> -> tensor<?x12x32x32xf32>
  // CHECK: zorse.biased_matmul %arg0, %arg1, %{{.*}} {transpose_b} : tensor<?x64x768xf32>, tensor<3072x768xf32>, tensor<3072xf32> -> tensor<?x64x3072xf32>
  %added = arith.constant dense<0.0> : tensor<3072xf32>
  %biased = zorse.biased_matmul %x, %w, %added {transpose_b} : tensor<?x64x768xf32>, tensor<3072x768xf32>, tensor<3072xf32> -> tensor<?x64x3072xf32>
  // CHECK: zorse.matmul_grad_weight %arg0, %{{.*}} : tensor<?x64x768xf32>, tensor<?x64x3072xf32> -> tensor<768x3072xf32>
  %3 = zorse.matmul_grad_weight %x, %1 : tensor<?x64x768xf32>, tensor<?x64x3072xf32> -> tensor<768x3072xf32>
  // CHECK: zorse.gather %arg1, %arg2 : tensor<3072x768xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  %4 = zorse.gather %w, %ids : tensor<3072x768xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  // CHECK: zorse.gather %arg1, %arg2 {padding = 7 : i64} : tensor<3072x768xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  %padded = zorse.gather %w, %ids {padding = 7 : i64} : tensor<3072x768xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  // CHECK: zorse.round %{{.*}} to bf16 : tensor<?x64x768xf32>
  %rounded = zorse.round %padded to bf16 : tensor<?x64x768xf32>
  // CHECK: zorse.round %{{.*}} to f16 {straight_through} : tensor<?x64x768xf32>
  %straight = zorse.round %padded to f16 {straight_through} : tensor<?x64x768xf32>
  // CHECK: zorse.round %{{.*}} to bf16 {per_operator} : tensor<?x64x768xf32>
  %operator = zorse.round %padded to bf16 {per_operator} : tensor<?x64x768xf32>
  // CHECK: zorse.detach %{{.*}} : tensor<?x64x768xf32>
  %detached = zorse.detach %padded : tensor<?x64x768xf32>
  // CHECK: zorse.scatter_add %arg2, %{{.*}} {padding = 7 : i64} : tensor<?x64xi64>, tensor<?x64x768xf32> -> tensor<3072x768xf32>
  %without = zorse.scatter_add %ids, %detached {padding = 7 : i64} : tensor<?x64xi64>, tensor<?x64x768xf32> -> tensor<3072x768xf32>
  // CHECK: zorse.scatter_add %arg2, %{{.*}} : tensor<?x64xi64>, tensor<?x64x768xf32> -> tensor<3072x768xf32>
  %5 = zorse.scatter_add %ids, %4 : tensor<?x64xi64>, tensor<?x64x768xf32> -> tensor<3072x768xf32>
  // CHECK: zorse.take_along_dim %arg0, %arg2 : tensor<?x64x768xf32>, tensor<?x64xi64> -> tensor<?x64xf32>
  %6 = zorse.take_along_dim %x, %ids : tensor<?x64x768xf32>, tensor<?x64xi64> -> tensor<?x64xf32>
  // CHECK: zorse.take_along_dim_grad %{{.*}}, %arg2 : tensor<?x64xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  %7 = zorse.take_along_dim_grad %6, %ids : tensor<?x64xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  return
}

// CHECK-LABEL: @norms
func.func @norms(%x: tensor<?x64x768xf32>, %g: tensor<768xf32>) {
  // CHECK: zorse.softmax %arg0 : tensor<?x64x768xf32>
  %0 = zorse.softmax %x : tensor<?x64x768xf32>
  // CHECK: zorse.softmax_grad %{{.*}}, %arg0 : tensor<?x64x768xf32>
  %1 = zorse.softmax_grad %0, %x : tensor<?x64x768xf32>
  // CHECK: zorse.log_softmax %arg0 : tensor<?x64x768xf32>
  %2 = zorse.log_softmax %x : tensor<?x64x768xf32>
  // CHECK: zorse.log_softmax_grad %{{.*}}, %arg0 : tensor<?x64x768xf32>
  %3 = zorse.log_softmax_grad %2, %x : tensor<?x64x768xf32>
  // CHECK: %[[Y:.*]], %[[S:.*]]:2 = zorse.layer_norm %arg0 weight %arg1 bias %arg1 {epsilon = 1.000000e-05 : f64}
  %y, %s:2 = zorse.layer_norm %x weight %g bias %g {epsilon = 1.0e-5 : f64} : (tensor<?x64x768xf32>, tensor<768xf32>, tensor<768xf32>) -> (tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
  // CHECK: zorse.layer_norm %arg0 bias %arg1 {epsilon
  %4 = zorse.layer_norm %x bias %g {epsilon = 1.0e-5 : f64} : (tensor<?x64x768xf32>, tensor<768xf32>) -> tensor<?x64x768xf32>
  // CHECK: zorse.layer_norm_grad_input %arg0, %{{.*}}, %[[S]]#0, %[[S]]#1 weight %arg1
  %5 = zorse.layer_norm_grad_input %x, %4, %s#0, %s#1 weight %g : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<768xf32>) -> tensor<?x64x768xf32>
  // CHECK: zorse.layer_norm_grad_params %arg0, %arg0, %[[S]]#0, %[[S]]#1
  %6:2 = zorse.layer_norm_grad_params %x, %x, %s#0, %s#1 : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> (tensor<768xf32>, tensor<768xf32>)
  // CHECK: zorse.rms_norm %arg0 weight %arg1 {epsilon
  %7:2 = zorse.rms_norm %x weight %g {epsilon = 1.0e-5 : f64} : (tensor<?x64x768xf32>, tensor<768xf32>) -> (tensor<?x64x768xf32>, tensor<?x64xf32>)
  // CHECK: zorse.rms_norm_grad_input
  %8 = zorse.rms_norm_grad_input %x, %x, %7#1 : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>) -> tensor<?x64x768xf32>
  // CHECK: zorse.rms_norm_grad_params
  %9 = zorse.rms_norm_grad_params %x, %x, %7#1 : (tensor<?x64x768xf32>, tensor<?x64x768xf32>, tensor<?x64xf32>) -> tensor<768xf32>
  // CHECK: zorse.gelu %arg0 {approximate} : tensor<?x64x768xf32>
  %10 = zorse.gelu %x {approximate} : tensor<?x64x768xf32>
  // CHECK: zorse.gelu_grad %arg0, %arg0 : tensor<?x64x768xf32>
  %11 = zorse.gelu_grad %x, %x : tensor<?x64x768xf32>
  // CHECK: zorse.silu %arg0 : tensor<?x64x768xf32>
  %12 = zorse.silu %x : tensor<?x64x768xf32>
  // CHECK: zorse.silu_grad %arg0, %arg0 : tensor<?x64x768xf32>
  %13 = zorse.silu_grad %x, %x : tensor<?x64x768xf32>
  return
}

// CHECK-LABEL: @model_ops
func.func @model_ops(%q: tensor<?x64x12x64xf32>, %k: tensor<?x64x4x64xf32>, %m: tensor<1x1x64x64xi1>, %cos: tensor<64x32xf32>, %x: tensor<?x64x768xf32>, %ids: tensor<?x64xi64>) {
  // CHECK: zorse.attention %arg0, %arg1, %arg1 {causal, scale = 1.250000e-01 : f64, window = 3 : i64}
  %o, %l = zorse.attention %q, %k, %k {causal, window = 3 : i64, scale = 0.125 : f64} : (tensor<?x64x12x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x4x64xf32>) -> (tensor<?x64x12x64xf32>, tensor<?x12x64xf32>)
  // CHECK: zorse.attention %arg0, %arg1, %arg1 mask %arg2 {dropout = 1.000000e-01 : f64, rng_id = 7 : i64, scale = 1.250000e-01 : f64, softcap = 5.000000e+01 : f64}
  %0 = zorse.attention %q, %k, %k mask %m {scale = 0.125 : f64, softcap = 50.0 : f64, dropout = 0.1 : f64, rng_id = 7 : i64} : (tensor<?x64x12x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x4x64xf32>, tensor<1x1x64x64xi1>) -> tensor<?x64x12x64xf32>
  // CHECK: zorse.attention_grad %{{.*}}, %arg0, %arg1, %arg1, %{{.*}}, %{{.*}} {causal, scale = 1.250000e-01 : f64}
  %1:3 = zorse.attention_grad %o, %q, %k, %k, %o, %l {causal, scale = 0.125 : f64} : (tensor<?x64x12x64xf32>, tensor<?x64x12x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x12x64xf32>, tensor<?x12x64xf32>) -> (tensor<?x64x12x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x4x64xf32>)
  // CHECK: zorse.causal_mask {window = 8 : i64} : tensor<64x64xf32>
  %2 = zorse.causal_mask {window = 8 : i64} : tensor<64x64xf32>
  // CHECK: zorse.rope %arg0, %arg3, %arg3 {interleaved, inverse}
  %3 = zorse.rope %q, %cos, %cos {interleaved, inverse} : (tensor<?x64x12x64xf32>, tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<?x64x12x64xf32>
  // CHECK: zorse.cross_entropy %arg4, %arg5 {ignore_index = -100 : i64}
  %4:2 = zorse.cross_entropy %x, %ids {ignore_index = -100 : i64} : (tensor<?x64x768xf32>, tensor<?x64xi64>) -> (tensor<?x64xf32>, tensor<?x64x2xf32>)
  // CHECK: zorse.cross_entropy_grad
  %5 = zorse.cross_entropy_grad %4#0, %x, %ids, %4#1 : (tensor<?x64xf32>, tensor<?x64x768xf32>, tensor<?x64xi64>, tensor<?x64x2xf32>) -> tensor<?x64x768xf32>
  // CHECK: zorse.known "1/(2*B)" : tensor<f64>
  %known = zorse.known "1/(2*B)" : tensor<f64>
  // CHECK: zorse.sample_number : tensor<?xi64>
  %numbers = zorse.sample_number : tensor<?xi64>
  // CHECK: zorse.dropout %arg4 {probability = 1.000000e-01 : f64, rng_id = 3 : i64} : tensor<?x64x768xf32>
  %6 = zorse.dropout %x {probability = 0.1 : f64, rng_id = 3 : i64} : tensor<?x64x768xf32>
  return
}

// CHECK-LABEL: @statistics
func.func @statistics(%observed: tensor<?x64xf32>, %running: tensor<64xf32>) {
  // CHECK: zorse.running_stat %arg0, %arg1 {correction = 1.250000e+00 : f64, momentum = 1.000000e-01 : f64} : tensor<?x64xf32>, tensor<64xf32>
  %0 = zorse.running_stat %observed, %running {momentum = 0.1 : f64, correction = 1.25 : f64} : tensor<?x64xf32>, tensor<64xf32>
  return
}
