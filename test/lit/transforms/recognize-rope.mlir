// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-recognize-rope --zorse-canonicalize-graph | FileCheck %s

// LLaMA: halves, tables of both halves by structure (one concat of angles), heads before positions.
// CHECK-LABEL: @half
// CHECK-DAG: %[[C:.*]] = math.cos %arg1 : tensor<16x4xf32>
// CHECK-DAG: %[[S:.*]] = math.sin %arg1 : tensor<16x4xf32>
// CHECK: zorse.rope %{{.*}}, %[[C]], %[[S]] : (tensor<?x16x2x8xf32>, tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<?x16x2x8xf32>
func.func @half(%x: tensor<?x16x2x8xf32>, %angles: tensor<16x4xf32>) -> tensor<?x2x16x8xf32> {
  %both = zorse.concat %angles, %angles {dim = 1 : i64} : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x8xf32>
  %cos = math.cos %both : tensor<16x8xf32>
  %sin = math.sin %both : tensor<16x8xf32>
  %h = zorse.transpose %x [0, 2, 1, 3] : tensor<?x16x2x8xf32> -> tensor<?x2x16x8xf32>
  %cb = zorse.broadcast %cos dims [2, 3] : tensor<16x8xf32> -> tensor<?x2x16x8xf32>
  %sb = zorse.broadcast %sin dims [2, 3] : tensor<16x8xf32> -> tensor<?x2x16x8xf32>
  %a = zorse.slice %h [0, 0, 0, 0] [?, 2, 16, 4] [1, 1, 1, 1] : tensor<?x2x16x8xf32> -> tensor<?x2x16x4xf32>
  %b = zorse.slice %h [0, 0, 0, 4] [?, 2, 16, 4] [1, 1, 1, 1] : tensor<?x2x16x8xf32> -> tensor<?x2x16x4xf32>
  %n = arith.negf %b : tensor<?x2x16x4xf32>
  %r = zorse.concat %n, %a {dim = 3 : i64} : (tensor<?x2x16x4xf32>, tensor<?x2x16x4xf32>) -> tensor<?x2x16x8xf32>
  %xc = arith.mulf %h, %cb : tensor<?x2x16x8xf32>
  %rs = arith.mulf %r, %sb : tensor<?x2x16x8xf32>
  %y = arith.addf %xc, %rs : tensor<?x2x16x8xf32>
  return %y : tensor<?x2x16x8xf32>
}

// -----

// Constant tables with equal halves; the transposes around the heads cancel.
// CHECK-LABEL: @half_by_value
// CHECK-DAG: %[[C:.*]] = arith.constant dense<{{\[}}[1.000000e+00], [5.000000e-01]]> : tensor<2x1xf32>
// CHECK: zorse.rope %arg0, %[[C]], %{{.*}} : (tensor<?x2x3x2xf32>
func.func @half_by_value(%x: tensor<?x2x3x2xf32>) -> tensor<?x2x3x2xf32> {
  %cos = arith.constant dense<[[1.0, 1.0], [0.5, 0.5]]> : tensor<2x2xf32>
  %sin = arith.constant dense<[[0.0, 0.0], [0.8, 0.8]]> : tensor<2x2xf32>
  %cb = zorse.broadcast %cos dims [1, 3] : tensor<2x2xf32> -> tensor<?x2x3x2xf32>
  %sb = zorse.broadcast %sin dims [1, 3] : tensor<2x2xf32> -> tensor<?x2x3x2xf32>
  %a = zorse.slice %x [0, 0, 0, 0] [?, 2, 3, 1] [1, 1, 1, 1] : tensor<?x2x3x2xf32> -> tensor<?x2x3x1xf32>
  %b = zorse.slice %x [0, 0, 0, 1] [?, 2, 3, 1] [1, 1, 1, 1] : tensor<?x2x3x2xf32> -> tensor<?x2x3x1xf32>
  %n = arith.negf %b : tensor<?x2x3x1xf32>
  %r = zorse.concat %n, %a {dim = 3 : i64} : (tensor<?x2x3x1xf32>, tensor<?x2x3x1xf32>) -> tensor<?x2x3x2xf32>
  %xc = arith.mulf %x, %cb : tensor<?x2x3x2xf32>
  %rs = arith.mulf %r, %sb : tensor<?x2x3x2xf32>
  %y = arith.addf %rs, %xc : tensor<?x2x3x2xf32>
  return %y : tensor<?x2x3x2xf32>
}

// -----

// Tables with different halves are not a rotation.
// CHECK-LABEL: @unequal_halves
// CHECK-NOT: zorse.rope
// CHECK: return
func.func @unequal_halves(%x: tensor<?x2x3x2xf32>) -> tensor<?x2x3x2xf32> {
  %cos = arith.constant dense<[[1.0, 1.0], [0.5, 0.4]]> : tensor<2x2xf32>
  %sin = arith.constant dense<[[0.0, 0.0], [0.8, 0.8]]> : tensor<2x2xf32>
  %cb = zorse.broadcast %cos dims [1, 3] : tensor<2x2xf32> -> tensor<?x2x3x2xf32>
  %sb = zorse.broadcast %sin dims [1, 3] : tensor<2x2xf32> -> tensor<?x2x3x2xf32>
  %a = zorse.slice %x [0, 0, 0, 0] [?, 2, 3, 1] [1, 1, 1, 1] : tensor<?x2x3x2xf32> -> tensor<?x2x3x1xf32>
  %b = zorse.slice %x [0, 0, 0, 1] [?, 2, 3, 1] [1, 1, 1, 1] : tensor<?x2x3x2xf32> -> tensor<?x2x3x1xf32>
  %n = arith.negf %b : tensor<?x2x3x1xf32>
  %r = zorse.concat %n, %a {dim = 3 : i64} : (tensor<?x2x3x1xf32>, tensor<?x2x3x1xf32>) -> tensor<?x2x3x2xf32>
  %xc = arith.mulf %x, %cb : tensor<?x2x3x2xf32>
  %rs = arith.mulf %r, %sb : tensor<?x2x3x2xf32>
  %y = arith.addf %rs, %xc : tensor<?x2x3x2xf32>
  return %y : tensor<?x2x3x2xf32>
}

// -----

// NeoX: the first half of the channels is rotated, the rest is unchanged.
// CHECK-LABEL: @partial
// CHECK: %[[P:.*]] = zorse.slice %arg0 [0, 0, 0, 0] [?, 16, 2, 4] [1, 1, 1, 1]
// CHECK: %[[R:.*]] = zorse.rope %[[P]], %arg1, %arg2
// CHECK: zorse.concat %[[R]]
func.func @partial(%x: tensor<?x16x2x8xf32>, %cos: tensor<16x2xf32>, %sin: tensor<16x2xf32>) -> tensor<?x16x2x8xf32> {
  %c2 = zorse.concat %cos, %cos {dim = 1 : i64} : (tensor<16x2xf32>, tensor<16x2xf32>) -> tensor<16x4xf32>
  %s2 = zorse.concat %sin, %sin {dim = 1 : i64} : (tensor<16x2xf32>, tensor<16x2xf32>) -> tensor<16x4xf32>
  %p = zorse.slice %x [0, 0, 0, 0] [?, 16, 2, 4] [1, 1, 1, 1] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %pass = zorse.slice %x [0, 0, 0, 4] [?, 16, 2, 4] [1, 1, 1, 1] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %a = zorse.slice %p [0, 0, 0, 0] [?, 16, 2, 2] [1, 1, 1, 1] : tensor<?x16x2x4xf32> -> tensor<?x16x2x2xf32>
  %b = zorse.slice %p [0, 0, 0, 2] [?, 16, 2, 2] [1, 1, 1, 1] : tensor<?x16x2x4xf32> -> tensor<?x16x2x2xf32>
  %n = arith.negf %b : tensor<?x16x2x2xf32>
  %r = zorse.concat %n, %a {dim = 3 : i64} : (tensor<?x16x2x2xf32>, tensor<?x16x2x2xf32>) -> tensor<?x16x2x4xf32>
  %cb = zorse.broadcast %c2 dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %sb = zorse.broadcast %s2 dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %pc = arith.mulf %p, %cb : tensor<?x16x2x4xf32>
  %rs = arith.mulf %r, %sb : tensor<?x16x2x4xf32>
  %q = arith.addf %pc, %rs : tensor<?x16x2x4xf32>
  %y = zorse.concat %q, %pass {dim = 3 : i64} : (tensor<?x16x2x4xf32>, tensor<?x16x2x4xf32>) -> tensor<?x16x2x8xf32>
  return %y : tensor<?x16x2x8xf32>
}

// -----

// GPT-J: even and odd channels, tables repeated pairwise.
// CHECK-LABEL: @interleaved
// CHECK: zorse.rope %arg0, %arg1, %arg2 {interleaved}
func.func @interleaved(%x: tensor<?x16x2x8xf32>, %cos: tensor<16x4xf32>, %sin: tensor<16x4xf32>) -> tensor<?x16x2x8xf32> {
  %c1 = zorse.broadcast %cos dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4x2xf32>
  %cb = zorse.reshape %c1 : tensor<?x16x2x4x2xf32> -> tensor<?x16x2x8xf32>
  %s1 = zorse.broadcast %sin dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4x2xf32>
  %sb = zorse.reshape %s1 : tensor<?x16x2x4x2xf32> -> tensor<?x16x2x8xf32>
  %a = zorse.slice %x [0, 0, 0, 0] [?, 16, 2, 4] [1, 1, 1, 2] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %b = zorse.slice %x [0, 0, 0, 1] [?, 16, 2, 4] [1, 1, 1, 2] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %n = arith.negf %b : tensor<?x16x2x4xf32>
  %n1 = zorse.reshape %n : tensor<?x16x2x4xf32> -> tensor<?x16x2x4x1xf32>
  %a1 = zorse.reshape %a : tensor<?x16x2x4xf32> -> tensor<?x16x2x4x1xf32>
  %r1 = zorse.concat %n1, %a1 {dim = 4 : i64} : (tensor<?x16x2x4x1xf32>, tensor<?x16x2x4x1xf32>) -> tensor<?x16x2x4x2xf32>
  %r = zorse.reshape %r1 : tensor<?x16x2x4x2xf32> -> tensor<?x16x2x8xf32>
  %xc = arith.mulf %x, %cb : tensor<?x16x2x8xf32>
  %rs = arith.mulf %r, %sb : tensor<?x16x2x8xf32>
  %y = arith.addf %xc, %rs : tensor<?x16x2x8xf32>
  return %y : tensor<?x16x2x8xf32>
}

// -----

// Halves written out, each member of the pairs separately.
// CHECK-LABEL: @half_in_parts
// CHECK-NEXT: %[[Y:.*]] = zorse.rope %arg0, %arg1, %arg2 : (tensor<?x16x2x8xf32>, tensor<16x4xf32>, tensor<16x4xf32>)
// CHECK-NEXT: return %[[Y]]
func.func @half_in_parts(%x: tensor<?x16x2x8xf32>, %cos: tensor<16x4xf32>, %sin: tensor<16x4xf32>) -> tensor<?x16x2x8xf32> {
  %a = zorse.slice %x [0, 0, 0, 0] [?, 16, 2, 4] [1, 1, 1, 1] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %b = zorse.slice %x [0, 0, 0, 4] [?, 16, 2, 4] [1, 1, 1, 1] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %cb = zorse.broadcast %cos dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %sb = zorse.broadcast %sin dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %ac = arith.mulf %a, %cb : tensor<?x16x2x4xf32>
  %bs = arith.mulf %sb, %b : tensor<?x16x2x4xf32>
  %first = arith.subf %ac, %bs : tensor<?x16x2x4xf32>
  %bc = arith.mulf %b, %cb : tensor<?x16x2x4xf32>
  %as = arith.mulf %a, %sb : tensor<?x16x2x4xf32>
  %second = arith.addf %as, %bc : tensor<?x16x2x4xf32>
  %y = zorse.concat %first, %second {dim = 3 : i64} : (tensor<?x16x2x4xf32>, tensor<?x16x2x4xf32>) -> tensor<?x16x2x8xf32>
  return %y : tensor<?x16x2x8xf32>
}

// -----

// Even and odd channels written out and stacked.
// CHECK-LABEL: @interleaved_in_parts
// CHECK-NEXT: %[[Y:.*]] = zorse.rope %arg0, %arg1, %arg2 {interleaved}
// CHECK-NEXT: return %[[Y]]
func.func @interleaved_in_parts(%x: tensor<?x16x2x8xf32>, %cos: tensor<16x4xf32>, %sin: tensor<16x4xf32>) -> tensor<?x16x2x8xf32> {
  %a = zorse.slice %x [0, 0, 0, 0] [?, 16, 2, 4] [1, 1, 1, 2] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %b = zorse.slice %x [0, 0, 0, 1] [?, 16, 2, 4] [1, 1, 1, 2] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %cb = zorse.broadcast %cos dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %sb = zorse.broadcast %sin dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %ac = arith.mulf %a, %cb : tensor<?x16x2x4xf32>
  %bs = arith.mulf %sb, %b : tensor<?x16x2x4xf32>
  %first = arith.subf %ac, %bs : tensor<?x16x2x4xf32>
  %bc = arith.mulf %b, %cb : tensor<?x16x2x4xf32>
  %as = arith.mulf %a, %sb : tensor<?x16x2x4xf32>
  %second = arith.addf %as, %bc : tensor<?x16x2x4xf32>
  %f1 = zorse.reshape %first : tensor<?x16x2x4xf32> -> tensor<?x16x2x4x1xf32>
  %s1 = zorse.reshape %second : tensor<?x16x2x4xf32> -> tensor<?x16x2x4x1xf32>
  %c1 = zorse.concat %f1, %s1 {dim = 4 : i64} : (tensor<?x16x2x4x1xf32>, tensor<?x16x2x4x1xf32>) -> tensor<?x16x2x4x2xf32>
  %y = zorse.reshape %c1 : tensor<?x16x2x4x2xf32> -> tensor<?x16x2x8xf32>
  return %y : tensor<?x16x2x8xf32>
}

// -----

// Members of halves combined as pairs are not a rotation that rope can express.
// CHECK-LABEL: @halves_stacked
// CHECK-NOT: zorse.rope
func.func @halves_stacked(%x: tensor<?x16x2x8xf32>, %cos: tensor<16x4xf32>, %sin: tensor<16x4xf32>) -> tensor<?x16x2x4x2xf32> {
  %a = zorse.slice %x [0, 0, 0, 0] [?, 16, 2, 4] [1, 1, 1, 1] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %b = zorse.slice %x [0, 0, 0, 4] [?, 16, 2, 4] [1, 1, 1, 1] : tensor<?x16x2x8xf32> -> tensor<?x16x2x4xf32>
  %cb = zorse.broadcast %cos dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %sb = zorse.broadcast %sin dims [1, 3] : tensor<16x4xf32> -> tensor<?x16x2x4xf32>
  %ac = arith.mulf %a, %cb : tensor<?x16x2x4xf32>
  %bs = arith.mulf %sb, %b : tensor<?x16x2x4xf32>
  %first = arith.subf %ac, %bs : tensor<?x16x2x4xf32>
  %bc = arith.mulf %b, %cb : tensor<?x16x2x4xf32>
  %as = arith.mulf %a, %sb : tensor<?x16x2x4xf32>
  %second = arith.addf %as, %bc : tensor<?x16x2x4xf32>
  %f1 = zorse.reshape %first : tensor<?x16x2x4xf32> -> tensor<?x16x2x4x1xf32>
  %s1 = zorse.reshape %second : tensor<?x16x2x4xf32> -> tensor<?x16x2x4x1xf32>
  %y = zorse.concat %f1, %s1 {dim = 4 : i64} : (tensor<?x16x2x4x1xf32>, tensor<?x16x2x4x1xf32>) -> tensor<?x16x2x4x2xf32>
  return %y : tensor<?x16x2x4x2xf32>
}
