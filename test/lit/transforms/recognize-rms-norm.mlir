// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-recognize-rms-norm --zorse-canonicalize-graph | FileCheck %s

// Dynamo, opset 20: Pow, ReduceMean with kept dimension, Add, Sqrt, Reciprocal, Mul, Mul by the weight.
// CHECK-LABEL: @dynamo
// CHECK-NEXT: %[[Y:.*]] = zorse.rms_norm %arg0 weight %arg1 {epsilon = 9.9{{.*}}E-6 : f64}
// CHECK-NEXT: return %[[Y]]
func.func @dynamo(%x: tensor<?x16x64xf32>, %g: tensor<64xf32>) -> tensor<?x16x64xf32> {
  %two = arith.constant dense<2.0> : tensor<f32>
  %twos = zorse.broadcast %two dims [] : tensor<f32> -> tensor<?x16x64xf32>
  %sq = math.powf %x, %twos : tensor<?x16x64xf32>
  %s = zorse.reduce sum %sq dims [2] : tensor<?x16x64xf32> -> tensor<?x16xf32>
  %d = arith.constant dense<64.0> : tensor<f32>
  %db = zorse.broadcast %d dims [] : tensor<f32> -> tensor<?x16xf32>
  %mean = arith.divf %s, %db : tensor<?x16xf32>
  %keep = zorse.reshape %mean : tensor<?x16xf32> -> tensor<?x16x1xf32>
  %e = arith.constant dense<1.0e-5> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?x16x1xf32>
  %me = arith.addf %keep, %eb : tensor<?x16x1xf32>
  %root = math.sqrt %me : tensor<?x16x1xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x16x1xf32>
  %r = arith.divf %oneb, %root : tensor<?x16x1xf32>
  %r2 = zorse.reshape %r : tensor<?x16x1xf32> -> tensor<?x16xf32>
  %rb = zorse.broadcast %r2 dims [0, 1] : tensor<?x16xf32> -> tensor<?x16x64xf32>
  %xn = arith.mulf %x, %rb : tensor<?x16x64xf32>
  %gb = zorse.broadcast %g dims [2] : tensor<64xf32> -> tensor<?x16x64xf32>
  %y = arith.mulf %gb, %xn : tensor<?x16x64xf32>
  return %y : tensor<?x16x64xf32>
}

// -----

// Division by the root, weight on the right, the mean as a product with 1/d.
// CHECK-LABEL: @division
// CHECK-NEXT: %[[Y:.*]] = zorse.rms_norm %arg0 weight %arg1
// CHECK-NEXT: return %[[Y]]
func.func @division(%x: tensor<?x16x64xf32>, %g: tensor<64xf32>) -> tensor<?x16x64xf32> {
  %sq = arith.mulf %x, %x : tensor<?x16x64xf32>
  %s = zorse.reduce sum %sq dims [2] : tensor<?x16x64xf32> -> tensor<?x16xf32>
  %d = arith.constant dense<0.015625> : tensor<f32>
  %db = zorse.broadcast %d dims [] : tensor<f32> -> tensor<?x16xf32>
  %mean = arith.mulf %s, %db : tensor<?x16xf32>
  %e = arith.constant dense<1.0e-6> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?x16xf32>
  %me = arith.addf %eb, %mean : tensor<?x16xf32>
  %root = math.sqrt %me : tensor<?x16xf32>
  %rb = zorse.broadcast %root dims [0, 1] : tensor<?x16xf32> -> tensor<?x16x64xf32>
  %xn = arith.divf %x, %rb : tensor<?x16x64xf32>
  %gb = zorse.broadcast %g dims [2] : tensor<64xf32> -> tensor<?x16x64xf32>
  %y = arith.mulf %xn, %gb : tensor<?x16x64xf32>
  return %y : tensor<?x16x64xf32>
}

// -----

// Gemma: the weight is 1 + w; the addition stays, on w.
// CHECK-LABEL: @one_plus_weight
// CHECK: %[[G:.*]] = arith.addf %arg1, %{{.*}} : tensor<64xf32>
// CHECK-NEXT: %[[Y:.*]] = zorse.rms_norm %arg0 weight %[[G]]
// CHECK-NEXT: return %[[Y]]
func.func @one_plus_weight(%x: tensor<?x64xf32>, %w: tensor<64xf32>) -> tensor<?x64xf32> {
  %sq = arith.mulf %x, %x : tensor<?x64xf32>
  %s = zorse.reduce sum %sq dims [1] : tensor<?x64xf32> -> tensor<?xf32>
  %d = arith.constant dense<64.0> : tensor<f32>
  %db = zorse.broadcast %d dims [] : tensor<f32> -> tensor<?xf32>
  %mean = arith.divf %s, %db : tensor<?xf32>
  %e = arith.constant dense<1.0e-6> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?xf32>
  %me = arith.addf %mean, %eb : tensor<?xf32>
  %r = math.rsqrt %me : tensor<?xf32>
  %rb = zorse.broadcast %r dims [0] : tensor<?xf32> -> tensor<?x64xf32>
  %xn = arith.mulf %x, %rb : tensor<?x64xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<64xf32>
  %g = arith.addf %oneb, %w : tensor<64xf32>
  %g2 = zorse.reshape %g : tensor<64xf32> -> tensor<1x64xf32>
  %g3 = zorse.reshape %g2 : tensor<1x64xf32> -> tensor<64xf32>
  %gb = zorse.broadcast %g3 dims [1] : tensor<64xf32> -> tensor<?x64xf32>
  %y = arith.mulf %xn, %gb : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// A mean over a different number: a norm with another epsilon, times sqrt(32/64).
// CHECK-LABEL: @not_a_mean
// CHECK: zorse.rms_norm %arg0 {epsilon = 4.99{{.*}}E-7 : f64}
// CHECK: dense<0.707106{{.*}}>
// CHECK: arith.mulf
// CHECK: return
func.func @not_a_mean(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %sq = arith.mulf %x, %x : tensor<?x64xf32>
  %s = zorse.reduce sum %sq dims [1] : tensor<?x64xf32> -> tensor<?xf32>
  %d = arith.constant dense<32.0> : tensor<f32>
  %db = zorse.broadcast %d dims [] : tensor<f32> -> tensor<?xf32>
  %mean = arith.divf %s, %db : tensor<?xf32>
  %e = arith.constant dense<1.0e-6> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?xf32>
  %me = arith.addf %mean, %eb : tensor<?xf32>
  %r = math.rsqrt %me : tensor<?xf32>
  %rb = zorse.broadcast %r dims [0] : tensor<?xf32> -> tensor<?x64xf32>
  %xn = arith.mulf %x, %rb : tensor<?x64xf32>
  return %xn : tensor<?x64xf32>
}

// -----

// Gemma's first norm: the embedding scale 8 = sqrt(64) has been factored out and combined with the 1/64 of the mean.
// CHECK-LABEL: @scale_taken_out
// CHECK-NEXT: %[[Y:.*]] = zorse.rms_norm %arg0 weight %arg1 {epsilon = 1.56{{.*}}E-8 : f64}
// CHECK-NEXT: return %[[Y]]
func.func @scale_taken_out(%x: tensor<?x64xf32>, %g: tensor<64xf32>) -> tensor<?x64xf32> {
  %sq = arith.mulf %x, %x : tensor<?x64xf32>
  %s = zorse.reduce sum %sq dims [1] : tensor<?x64xf32> -> tensor<?xf32>
  %e = arith.constant dense<1.0e-6> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?xf32>
  %se = arith.addf %s, %eb : tensor<?xf32>
  %r = math.rsqrt %se : tensor<?xf32>
  %rb = zorse.broadcast %r dims [0] : tensor<?xf32> -> tensor<?x64xf32>
  %xn = arith.mulf %x, %rb : tensor<?x64xf32>
  %gb = zorse.broadcast %g dims [1] : tensor<64xf32> -> tensor<?x64xf32>
  %y = arith.mulf %xn, %gb : tensor<?x64xf32>
  %c = arith.constant dense<8.0> : tensor<f32>
  %cb = zorse.broadcast %c dims [] : tensor<f32> -> tensor<?x64xf32>
  %z = arith.mulf %y, %cb : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}
