// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-recognize-softmax --zorse-recognize-attention --zorse-canonicalize-graph | FileCheck %s

// Dynamo: q and k both scaled by the fourth root, K transposed through reshapes, a causal mask added, an IsNaN guard.
// CHECK-LABEL: @dynamo
// CHECK-NEXT: %[[Q:.*]] = zorse.reshape %arg0 : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
// CHECK-NEXT: %[[K:.*]] = zorse.reshape %arg1 : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
// CHECK-NEXT: %[[V:.*]] = zorse.reshape %arg2 : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
// CHECK-NEXT: %[[A:.*]] = zorse.attention %[[Q]], %[[K]], %[[V]] {causal, scale = 2.500000e-01 : f64}
// CHECK-NEXT: %[[Y:.*]] = zorse.reshape %[[A]] : tensor<?x16x4x16xf32> -> tensor<?x16x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @dynamo(%q: tensor<?x16x64xf32>, %k: tensor<?x16x64xf32>, %v: tensor<?x16x64xf32>) -> tensor<?x16x64xf32> {
  %q0 = zorse.reshape %q : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
  %q1 = zorse.transpose %q0 [0, 2, 1, 3] : tensor<?x16x4x16xf32> -> tensor<?x4x16x16xf32>
  %k0 = zorse.reshape %k : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
  %k1 = zorse.transpose %k0 [0, 2, 1, 3] : tensor<?x16x4x16xf32> -> tensor<?x4x16x16xf32>
  %v0 = zorse.reshape %v : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
  %v1 = zorse.transpose %v0 [0, 2, 1, 3] : tensor<?x16x4x16xf32> -> tensor<?x4x16x16xf32>
  %c = arith.constant dense<0.5> : tensor<f32>
  %cb = zorse.broadcast %c dims [] : tensor<f32> -> tensor<?x4x16x16xf32>
  %qs = arith.mulf %q1, %cb : tensor<?x4x16x16xf32>
  %kt = zorse.transpose %k1 [0, 1, 3, 2] : tensor<?x4x16x16xf32> -> tensor<?x4x16x16xf32>
  %ks = arith.mulf %kt, %cb : tensor<?x4x16x16xf32>
  %s = zorse.matmul %qs, %ks : tensor<?x4x16x16xf32>, tensor<?x4x16x16xf32> -> tensor<?x4x16x16xf32>
  %m = zorse.causal_mask : tensor<16x16xf32>
  %mb = zorse.broadcast %m dims [2, 3] : tensor<16x16xf32> -> tensor<?x4x16x16xf32>
  %sm = arith.addf %s, %mb : tensor<?x4x16x16xf32>
  %p = zorse.softmax %sm : tensor<?x4x16x16xf32>
  %nan = math.isnan %p : tensor<?x4x16x16xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %zb = zorse.broadcast %z dims [] : tensor<f32> -> tensor<?x4x16x16xf32>
  %pg = arith.select %nan, %zb, %p : tensor<?x4x16x16xi1>, tensor<?x4x16x16xf32>
  %o = zorse.matmul %pg, %v1 : tensor<?x4x16x16xf32>, tensor<?x4x16x16xf32> -> tensor<?x4x16x16xf32>
  %o1 = zorse.transpose %o [0, 2, 1, 3] : tensor<?x4x16x16xf32> -> tensor<?x16x4x16xf32>
  %y = zorse.reshape %o1 : tensor<?x16x4x16xf32> -> tensor<?x16x64xf32>
  return %y : tensor<?x16x64xf32>
}

// -----

// TorchScript, fused projection: split after the heads, scores divided, a constant mask selected.
// CHECK-LABEL: @fused_projection
// CHECK: zorse.attention {{.*}} {causal, scale = 5.000000e-01 : f64}
// CHECK-SAME: -> tensor<?x4x2x4xf32>
// CHECK-NEXT: return
func.func @fused_projection(%qkv: tensor<?x4x24xf32>) -> tensor<?x4x2x4xf32> {
  %a = zorse.reshape %qkv : tensor<?x4x24xf32> -> tensor<?x4x3x2x4xf32>
  %b = zorse.transpose %a [0, 2, 3, 1, 4] : tensor<?x4x3x2x4xf32> -> tensor<?x3x2x4x4xf32>
  %q = zorse.slice %b [0, 0, 0, 0, 0] [?, 1, 2, 4, 4] [1, 1, 1, 1, 1] : tensor<?x3x2x4x4xf32> -> tensor<?x1x2x4x4xf32>
  %k = zorse.slice %b [0, 1, 0, 0, 0] [?, 1, 2, 4, 4] [1, 1, 1, 1, 1] : tensor<?x3x2x4x4xf32> -> tensor<?x1x2x4x4xf32>
  %v = zorse.slice %b [0, 2, 0, 0, 0] [?, 1, 2, 4, 4] [1, 1, 1, 1, 1] : tensor<?x3x2x4x4xf32> -> tensor<?x1x2x4x4xf32>
  %q1 = zorse.reshape %q : tensor<?x1x2x4x4xf32> -> tensor<?x2x4x4xf32>
  %k1 = zorse.reshape %k : tensor<?x1x2x4x4xf32> -> tensor<?x2x4x4xf32>
  %v1 = zorse.reshape %v : tensor<?x1x2x4x4xf32> -> tensor<?x2x4x4xf32>
  %s = zorse.matmul %q1, %k1 {transpose_b} : tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32> -> tensor<?x2x4x4xf32>
  %c = arith.constant dense<2.0> : tensor<f32>
  %cb = zorse.broadcast %c dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %sc = arith.divf %s, %cb : tensor<?x2x4x4xf32>
  %m = arith.constant dense<[[true, false, false, false], [true, true, false, false], [true, true, true, false], [true, true, true, true]]> : tensor<4x4xi1>
  %mb = zorse.broadcast %m dims [2, 3] : tensor<4x4xi1> -> tensor<?x2x4x4xi1>
  %f = arith.constant dense<0xFF800000> : tensor<f32>
  %fb = zorse.broadcast %f dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %sm = arith.select %mb, %sc, %fb : tensor<?x2x4x4xi1>, tensor<?x2x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x2x4x4xf32>
  %o = zorse.matmul %p, %v1 : tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32> -> tensor<?x2x4x4xf32>
  %y = zorse.transpose %o [0, 2, 1, 3] : tensor<?x2x4x4xf32> -> tensor<?x4x2x4xf32>
  return %y : tensor<?x4x2x4xf32>
}

// -----

// Grouped queries: Unsqueeze, Expand, Reshape of k and v are removed; k and v keep their two heads.
// CHECK-LABEL: @grouped_queries
// CHECK-NOT: zorse.broadcast
// CHECK: zorse.attention {{.*}} : (tensor<?x16x4x8xf32>, tensor<?x16x2x8xf32>, tensor<?x16x2x8xf32>) -> tensor<?x16x4x8xf32>
func.func @grouped_queries(%q: tensor<?x16x4x8xf32>, %k: tensor<?x16x2x8xf32>, %v: tensor<?x16x2x8xf32>) -> tensor<?x16x32xf32> {
  %q1 = zorse.transpose %q [0, 2, 1, 3] : tensor<?x16x4x8xf32> -> tensor<?x4x16x8xf32>
  %k1 = zorse.transpose %k [0, 2, 1, 3] : tensor<?x16x2x8xf32> -> tensor<?x2x16x8xf32>
  %k2 = zorse.broadcast %k1 dims [0, 1, 3, 4] : tensor<?x2x16x8xf32> -> tensor<?x2x2x16x8xf32>
  %k3 = zorse.reshape %k2 : tensor<?x2x2x16x8xf32> -> tensor<?x4x16x8xf32>
  %v1 = zorse.transpose %v [0, 2, 1, 3] : tensor<?x16x2x8xf32> -> tensor<?x2x16x8xf32>
  %v2 = zorse.broadcast %v1 dims [0, 1, 3, 4] : tensor<?x2x16x8xf32> -> tensor<?x2x2x16x8xf32>
  %v3 = zorse.reshape %v2 : tensor<?x2x2x16x8xf32> -> tensor<?x4x16x8xf32>
  %s = zorse.matmul %q1, %k3 {transpose_b} : tensor<?x4x16x8xf32>, tensor<?x4x16x8xf32> -> tensor<?x4x16x16xf32>
  %p = zorse.softmax %s : tensor<?x4x16x16xf32>
  %o = zorse.matmul %p, %v3 : tensor<?x4x16x16xf32>, tensor<?x4x16x8xf32> -> tensor<?x4x16x8xf32>
  %o1 = zorse.transpose %o [0, 2, 1, 3] : tensor<?x4x16x8xf32> -> tensor<?x16x4x8xf32>
  %y = zorse.reshape %o1 : tensor<?x16x4x8xf32> -> tensor<?x16x32xf32>
  return %y : tensor<?x16x32xf32>
}

// -----

// Soft cap inside, a constant window mask, dropout on the probabilities.
// CHECK-LABEL: @cap_window_dropout
// CHECK: zorse.attention {{.*}} {causal, dropout = 1.000000e-01 : f64, rng_id = 3 : i64, scale = 2.500000e-01 : f64, softcap = 5.000000e+01 : f64, window = 2 : i64}
func.func @cap_window_dropout(%q: tensor<?x2x4x8xf32>, %k: tensor<?x2x4x8xf32>, %v: tensor<?x2x4x8xf32>) -> tensor<?x2x4x8xf32> {
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x4xf32>
  %c = arith.constant dense<0.25> : tensor<f32>
  %cb = zorse.broadcast %c dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %sc = arith.mulf %s, %cb : tensor<?x2x4x4xf32>
  %cap = arith.constant dense<50.0> : tensor<f32>
  %capb = zorse.broadcast %cap dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %d = arith.divf %sc, %capb : tensor<?x2x4x4xf32>
  %t = math.tanh %d : tensor<?x2x4x4xf32>
  %capped = arith.mulf %t, %capb : tensor<?x2x4x4xf32>
  %m = arith.constant dense<[[0.0, -3.40282347E+38, -3.40282347E+38, -3.40282347E+38], [0.0, 0.0, -3.40282347E+38, -3.40282347E+38],
                             [-3.40282347E+38, 0.0, 0.0, -3.40282347E+38], [-3.40282347E+38, -3.40282347E+38, 0.0, 0.0]]> : tensor<4x4xf32>
  %mb = zorse.broadcast %m dims [2, 3] : tensor<4x4xf32> -> tensor<?x2x4x4xf32>
  %sm = arith.addf %mb, %capped : tensor<?x2x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x2x4x4xf32>
  %pd = zorse.dropout %p {probability = 0.1 : f64, rng_id = 3 : i64} : tensor<?x2x4x4xf32>
  %o = zorse.matmul %pd, %v : tensor<?x2x4x4xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x8xf32>
  return %o : tensor<?x2x4x8xf32>
}

// -----

// BERT: a finite mask from the inputs; the additive operand keeps one head, and its queries are not repeated.
// CHECK-LABEL: @padding_mask
// CHECK: zorse.attention {{.*}} mask %[[M:.*]] {scale = 1.0{{.*}}tensor<?x1x4x4xf32>) -> tensor<?x4x2x8xf32>
func.func @padding_mask(%q: tensor<?x2x4x8xf32>, %k: tensor<?x2x4x8xf32>, %v: tensor<?x2x4x8xf32>, %ids: tensor<?x4xi64>) -> tensor<?x2x4x8xf32> {
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x4xf32>
  %f = arith.sitofp %ids : tensor<?x4xi64> to tensor<?x4xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x4xf32>
  %i = arith.subf %oneb, %f : tensor<?x4xf32>
  %min = arith.constant dense<-3.40282347E+38> : tensor<f32>
  %minb = zorse.broadcast %min dims [] : tensor<f32> -> tensor<?x4xf32>
  %m = arith.mulf %i, %minb : tensor<?x4xf32>
  %mb = zorse.broadcast %m dims [0, 3] : tensor<?x4xf32> -> tensor<?x2x4x4xf32>
  %sm = arith.addf %s, %mb : tensor<?x2x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x2x4x4xf32>
  %o = zorse.matmul %p, %v : tensor<?x2x4x4xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x8xf32>
  return %o : tensor<?x2x4x8xf32>
}

// -----

// A condition on the inputs with -inf and no guard: a row without visible keys would be NaN, so the ops stay.
// CHECK-LABEL: @unguarded
// CHECK-NOT: zorse.attention
// CHECK: zorse.softmax
// CHECK: return
func.func @unguarded(%q: tensor<?x4x8xf32>, %k: tensor<?x4x8xf32>, %v: tensor<?x4x8xf32>, %m: tensor<?x4x4xi1>) -> tensor<?x4x8xf32> {
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x4x8xf32>, tensor<?x4x8xf32> -> tensor<?x4x4xf32>
  %f = arith.constant dense<0xFF800000> : tensor<f32>
  %fb = zorse.broadcast %f dims [] : tensor<f32> -> tensor<?x4x4xf32>
  %sm = arith.select %m, %s, %fb : tensor<?x4x4xi1>, tensor<?x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x4x4xf32>
  %o = zorse.matmul %p, %v : tensor<?x4x4xf32>, tensor<?x4x8xf32> -> tensor<?x4x8xf32>
  return %o : tensor<?x4x8xf32>
}

// -----

// The same with the guard: a boolean mask gives zeros there, too. One head, no head dimension.
// CHECK-LABEL: @guarded
// CHECK: zorse.attention {{.*}} mask %{{.*}} {scale = 1.000000e+00 : f64} : {{.*}}tensor<?x1x4x4xi1>) -> tensor<?x4x1x8xf32>
func.func @guarded(%q: tensor<?x4x8xf32>, %k: tensor<?x4x8xf32>, %v: tensor<?x4x8xf32>, %m: tensor<?x4x4xi1>) -> tensor<?x4x8xf32> {
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x4x8xf32>, tensor<?x4x8xf32> -> tensor<?x4x4xf32>
  %f = arith.constant dense<0xFF800000> : tensor<f32>
  %fb = zorse.broadcast %f dims [] : tensor<f32> -> tensor<?x4x4xf32>
  %sm = arith.select %m, %s, %fb : tensor<?x4x4xi1>, tensor<?x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x4x4xf32>
  %nan = math.isnan %p : tensor<?x4x4xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %zb = zorse.broadcast %z dims [] : tensor<f32> -> tensor<?x4x4xf32>
  %pg = arith.select %nan, %zb, %p : tensor<?x4x4xi1>, tensor<?x4x4xf32>
  %o = zorse.matmul %pg, %v : tensor<?x4x4xf32>, tensor<?x4x8xf32> -> tensor<?x4x8xf32>
  return %o : tensor<?x4x8xf32>
}

// -----

// A finite causal fill with a padding mask: if every visible key is padded, all scores are equal and have no gradient. Neither becomes an attribute; such a query
// gives the mean of all values.
// CHECK-LABEL: @finite_causal_and_padding
// CHECK: zorse.reduce max
// CHECK: arith.negf
// CHECK: zorse.reduce sum {{.*}} -> tensor<?x2x8xf32>
// CHECK: %[[U:.*]] = arith.mulf {{.*}} : tensor<?x4x2x8xf32>
// CHECK: %[[O:.*]] = zorse.attention {{.*}} mask %{{.*}} {scale = 1.000000e+00 : f64} : {{.*}}tensor<?x1x4x4xi1>
// CHECK: arith.addf %[[U]], %[[O]] : tensor<?x4x2x8xf32>
func.func @finite_causal_and_padding(%q: tensor<?x2x4x8xf32>, %k: tensor<?x2x4x8xf32>, %v: tensor<?x2x4x8xf32>, %pad: tensor<?x4xi1>) -> tensor<?x2x4x8xf32> {
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x4xf32>
  %c = zorse.causal_mask : tensor<4x4xi1>
  %cb = zorse.broadcast %c dims [1, 2] : tensor<4x4xi1> -> tensor<?x4x4xi1>
  %pb = zorse.broadcast %pad dims [0, 2] : tensor<?x4xi1> -> tensor<?x4x4xi1>
  %both = arith.andi %cb, %pb : tensor<?x4x4xi1>
  %bothb = zorse.broadcast %both dims [0, 2, 3] : tensor<?x4x4xi1> -> tensor<?x2x4x4xi1>
  %f = arith.constant dense<-3.40282347E+38> : tensor<f32>
  %fb = zorse.broadcast %f dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %sm = arith.select %bothb, %s, %fb : tensor<?x2x4x4xi1>, tensor<?x2x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x2x4x4xf32>
  %o = zorse.matmul %p, %v : tensor<?x2x4x4xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x8xf32>
  return %o : tensor<?x2x4x8xf32>
}

// -----

// One fill that replaces scores and one that is added: for a query without visible keys, some scores have a gradient and others none.
// CHECK-LABEL: @replaced_and_added
// CHECK-NOT: zorse.attention
// CHECK: zorse.softmax
// CHECK: return
func.func @replaced_and_added(%q: tensor<?x4x8xf32>, %k: tensor<?x4x8xf32>, %v: tensor<?x4x8xf32>, %m: tensor<?x4x4xi1>, %a: tensor<?x4x4xf32>) -> tensor<?x4x8xf32> {
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x4x8xf32>, tensor<?x4x8xf32> -> tensor<?x4x4xf32>
  %f = arith.constant dense<-3.40282347E+38> : tensor<f32>
  %fb = zorse.broadcast %f dims [] : tensor<f32> -> tensor<?x4x4xf32>
  %sm = arith.select %m, %s, %fb : tensor<?x4x4xi1>, tensor<?x4x4xf32>
  %sa = arith.addf %sm, %a : tensor<?x4x4xf32>
  %p = zorse.softmax %sa : tensor<?x4x4xf32>
  %o = zorse.matmul %p, %v : tensor<?x4x4xf32>, tensor<?x4x8xf32> -> tensor<?x4x8xf32>
  return %o : tensor<?x4x8xf32>
}

// -----

// An imported Attention node with a constant causal mask and repeated heads.
// CHECK-LABEL: @imported_node
// CHECK: zorse.attention %arg0, %arg1, %arg1 {causal, scale = 5.000000e-01 : f64} : (tensor<?x4x4x8xf32>, tensor<?x4x2x8xf32>, tensor<?x4x2x8xf32>)
func.func @imported_node(%q: tensor<?x4x4x8xf32>, %k: tensor<?x4x2x8xf32>) -> tensor<?x4x4x8xf32> {
  %b = zorse.broadcast %k dims [0, 1, 2, 4] : tensor<?x4x2x8xf32> -> tensor<?x4x2x2x8xf32>
  %kr = zorse.reshape %b : tensor<?x4x2x2x8xf32> -> tensor<?x4x4x8xf32>
  %m = zorse.causal_mask : tensor<4x4xi1>
  %mb = zorse.reshape %m : tensor<4x4xi1> -> tensor<1x1x4x4xi1>
  %y = zorse.attention %q, %kr, %kr mask %mb {scale = 0.5 : f64} : (tensor<?x4x4x8xf32>, tensor<?x4x4x8xf32>, tensor<?x4x4x8xf32>, tensor<1x1x4x4xi1>) -> tensor<?x4x4x8xf32>
  return %y : tensor<?x4x4x8xf32>
}

// -----

// A trained score bias needs a gradient, which attention does not compute for its mask: the ops stay.
// CHECK-LABEL: @trained_bias
// CHECK-NOT: zorse.attention
// CHECK: zorse.softmax
// CHECK-NOT: zorse.attention
func.func @trained_bias(%q: tensor<?x2x4x8xf32>, %bias: tensor<2x4x4xf32> {zorse.parameter = "bias", zorse.trainable = true}) -> tensor<?x2x4x8xf32> {
  %s = zorse.matmul %q, %q {transpose_b} : tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x4xf32>
  %bb = zorse.broadcast %bias dims [1, 2, 3] : tensor<2x4x4xf32> -> tensor<?x2x4x4xf32>
  %sm = arith.addf %s, %bb : tensor<?x2x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x2x4x4xf32>
  %nan = math.isnan %p : tensor<?x2x4x4xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %zb = zorse.broadcast %z dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %pg = arith.select %nan, %zb, %p : tensor<?x2x4x4xi1>, tensor<?x2x4x4xf32>
  %o = zorse.matmul %pg, %q : tensor<?x2x4x4xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x8xf32>
  return %o : tensor<?x2x4x8xf32>
}

// -----

// The same bias frozen is a mask.
// CHECK-LABEL: @frozen_bias
// CHECK: zorse.attention {{.*}} mask
func.func @frozen_bias(%q: tensor<?x2x4x8xf32>, %bias: tensor<2x4x4xf32> {zorse.parameter = "bias", zorse.trainable = false}) -> tensor<?x2x4x8xf32> {
  %s = zorse.matmul %q, %q {transpose_b} : tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x4xf32>
  %bb = zorse.broadcast %bias dims [1, 2, 3] : tensor<2x4x4xf32> -> tensor<?x2x4x4xf32>
  %sm = arith.addf %s, %bb : tensor<?x2x4x4xf32>
  %p = zorse.softmax %sm : tensor<?x2x4x4xf32>
  %nan = math.isnan %p : tensor<?x2x4x4xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %zb = zorse.broadcast %z dims [] : tensor<f32> -> tensor<?x2x4x4xf32>
  %pg = arith.select %nan, %zb, %p : tensor<?x2x4x4xi1>, tensor<?x2x4x4xf32>
  %o = zorse.matmul %pg, %q : tensor<?x2x4x4xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x8xf32>
  return %o : tensor<?x2x4x8xf32>
}

// -----

// An imported Attention node with a trained mask is decomposed: grouped heads, cap before mask, causal.
// CHECK-LABEL: @imported_trained_mask
// CHECK-NOT: zorse.attention
// CHECK: zorse.matmul {{.*}} {transpose_b} : tensor<?x2x4x8xf32>
// CHECK: math.tanh
// CHECK: zorse.softmax {{.*}} : tensor<?x2x4x4xf32>
// CHECK-NOT: zorse.attention
func.func @imported_trained_mask(%q: tensor<?x4x2x8xf32>, %k: tensor<?x4x1x8xf32>, %bias: tensor<1x2x4x4xf32> {zorse.parameter = "bias", zorse.trainable = true}) -> tensor<?x4x2x8xf32> {
  %y = zorse.attention %q, %k, %k mask %bias {causal, scale = 0.5 : f64, softcap = 30.0 : f64} : (tensor<?x4x2x8xf32>, tensor<?x4x1x8xf32>, tensor<?x4x1x8xf32>, tensor<1x2x4x4xf32>) -> tensor<?x4x2x8xf32>
  return %y : tensor<?x4x2x8xf32>
}

// -----

// A finite causal fill added to an additive padding mask: if every visible key is padded, hidden keys count again, so it stays a mask with its own fill.
// CHECK-LABEL: @added_finite_causal_and_padding
// CHECK: zorse.causal_mask {fill = -1.000000e+09 : f64} : tensor<4x4xf32>
// CHECK: zorse.attention {{.*}} mask %{{.*}} {scale = 1.000000e+00 : f64}
func.func @added_finite_causal_and_padding(%q: tensor<?x2x4x8xf32>, %pad: tensor<?x4xi64>) -> tensor<?x2x4x8xf32> {
  %s = zorse.matmul %q, %q {transpose_b} : tensor<?x2x4x8xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x4xf32>
  %c = zorse.causal_mask {fill = -1.0e9 : f64} : tensor<4x4xf32>
  %cb = zorse.broadcast %c dims [2, 3] : tensor<4x4xf32> -> tensor<?x2x4x4xf32>
  %float = arith.sitofp %pad : tensor<?x4xi64> to tensor<?x4xf32>
  %big = arith.constant dense<-1.0e9> : tensor<f32>
  %bigb = zorse.broadcast %big dims [] : tensor<f32> -> tensor<?x4xf32>
  %hidden = arith.mulf %float, %bigb : tensor<?x4xf32>
  %hb = zorse.broadcast %hidden dims [0, 3] : tensor<?x4xf32> -> tensor<?x2x4x4xf32>
  %s1 = arith.addf %s, %cb : tensor<?x2x4x4xf32>
  %s2 = arith.addf %s1, %hb : tensor<?x2x4x4xf32>
  %p = zorse.softmax %s2 : tensor<?x2x4x4xf32>
  %o = zorse.matmul %p, %q : tensor<?x2x4x4xf32>, tensor<?x2x4x8xf32> -> tensor<?x2x4x8xf32>
  return %o : tensor<?x2x4x8xf32>
}
