// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-recognize-layer-norm --zorse-canonicalize-graph | FileCheck %s

// The decomposition in opset 17 function bodies and by older exporters: every reduction keeps dimensions.
// CHECK-LABEL: @kept_dimensions
// CHECK-NEXT: %[[Y:.*]] = zorse.layer_norm %arg0 weight %arg1 bias %arg2 {epsilon = 9.9{{.*}}E-6 : f64}
// CHECK-NEXT: return %[[Y]]
func.func @kept_dimensions(%x: tensor<?x16x64xf32>, %g: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<?x16x64xf32> {
  %d = arith.constant dense<64.0> : tensor<f32>
  %db = zorse.broadcast %d dims [] : tensor<f32> -> tensor<?x16xf32>
  %s = zorse.reduce sum %x dims [2] : tensor<?x16x64xf32> -> tensor<?x16xf32>
  %mean = arith.divf %s, %db : tensor<?x16xf32>
  %keep = zorse.reshape %mean : tensor<?x16xf32> -> tensor<?x16x1xf32>
  %flat = zorse.reshape %keep : tensor<?x16x1xf32> -> tensor<?x16xf32>
  %mb = zorse.broadcast %flat dims [0, 1] : tensor<?x16xf32> -> tensor<?x16x64xf32>
  %c = arith.subf %x, %mb : tensor<?x16x64xf32>
  %two = arith.constant dense<2.0> : tensor<f32>
  %twob = zorse.broadcast %two dims [] : tensor<f32> -> tensor<?x16x64xf32>
  %sq = math.powf %c, %twob : tensor<?x16x64xf32>
  %s2 = zorse.reduce sum %sq dims [2] : tensor<?x16x64xf32> -> tensor<?x16xf32>
  %var = arith.divf %s2, %db : tensor<?x16xf32>
  %e = arith.constant dense<1.0e-5> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?x16xf32>
  %ve = arith.addf %var, %eb : tensor<?x16xf32>
  %root = math.sqrt %ve : tensor<?x16xf32>
  %rb = zorse.broadcast %root dims [0, 1] : tensor<?x16xf32> -> tensor<?x16x64xf32>
  %h = arith.divf %c, %rb : tensor<?x16x64xf32>
  %gb = zorse.broadcast %g dims [2] : tensor<64xf32> -> tensor<?x16x64xf32>
  %hg = arith.mulf %h, %gb : tensor<?x16x64xf32>
  %bb = zorse.broadcast %b dims [2] : tensor<64xf32> -> tensor<?x16x64xf32>
  %y = arith.addf %hg, %bb : tensor<?x16x64xf32>
  return %y : tensor<?x16x64xf32>
}

// -----

// The normalized value has another user: weight and bias stay separate.
// CHECK-LABEL: @shared
// CHECK: %[[H:.*]] = zorse.layer_norm %arg0 {epsilon
// CHECK: arith.mulf %[[H]]
func.func @shared(%x: tensor<?x64xf32>, %g: tensor<64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %d = arith.constant dense<64.0> : tensor<f32>
  %db = zorse.broadcast %d dims [] : tensor<f32> -> tensor<?xf32>
  %s = zorse.reduce sum %x dims [1] : tensor<?x64xf32> -> tensor<?xf32>
  %mean = arith.divf %s, %db : tensor<?xf32>
  %mb = zorse.broadcast %mean dims [0] : tensor<?xf32> -> tensor<?x64xf32>
  %c = arith.subf %x, %mb : tensor<?x64xf32>
  %sq = arith.mulf %c, %c : tensor<?x64xf32>
  %s2 = zorse.reduce sum %sq dims [1] : tensor<?x64xf32> -> tensor<?xf32>
  %var = arith.divf %s2, %db : tensor<?xf32>
  %e = arith.constant dense<1.0e-5> : tensor<f32>
  %eb = zorse.broadcast %e dims [] : tensor<f32> -> tensor<?xf32>
  %ve = arith.addf %var, %eb : tensor<?xf32>
  %r = math.rsqrt %ve : tensor<?xf32>
  %rb = zorse.broadcast %r dims [0] : tensor<?xf32> -> tensor<?x64xf32>
  %h = arith.mulf %c, %rb : tensor<?x64xf32>
  %gb = zorse.broadcast %g dims [1] : tensor<64xf32> -> tensor<?x64xf32>
  %y = arith.mulf %h, %gb : tensor<?x64xf32>
  return %y, %h : tensor<?x64xf32>, tensor<?x64xf32>
}
