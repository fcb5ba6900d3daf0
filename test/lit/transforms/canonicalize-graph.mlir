// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph | FileCheck %s
// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-canonicalize-graph | FileCheck %s

// K transposed directly, and through reshapes as dynamo writes it: one value.
// CHECK-LABEL: @transposes(
// CHECK-NEXT: %[[V0:.*]] = zorse.reshape %arg0 : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
// CHECK-NEXT: %[[V1:.*]] = zorse.transpose %[[V0]] [0, 2, 3, 1] : tensor<?x16x4x16xf32> -> tensor<?x4x16x16xf32>
// CHECK-NEXT: return %[[V1]], %[[V1]] : tensor<?x4x16x16xf32>, tensor<?x4x16x16xf32>
func.func @transposes(%k: tensor<?x16x64xf32>) -> (tensor<?x4x16x16xf32>, tensor<?x4x16x16xf32>) {
  %0 = zorse.reshape %k : tensor<?x16x64xf32> -> tensor<?x16x4x16xf32>
  %1 = zorse.transpose %0 [0, 2, 3, 1] : tensor<?x16x4x16xf32> -> tensor<?x4x16x16xf32>
  %2 = zorse.transpose %0 [0, 2, 1, 3] : tensor<?x16x4x16xf32> -> tensor<?x4x16x16xf32>
  %3 = zorse.reshape %2 : tensor<?x4x16x16xf32> -> tensor<?x1x4x16x16xf32>
  %4 = zorse.transpose %3 [0, 1, 2, 4, 3] : tensor<?x1x4x16x16xf32> -> tensor<?x1x4x16x16xf32>
  %5 = zorse.reshape %4 : tensor<?x1x4x16x16xf32> -> tensor<?x4x16x16xf32>
  return %1, %5 : tensor<?x4x16x16xf32>, tensor<?x4x16x16xf32>
}

// -----

// A part of a fused projection, split before or after the heads: one slice.
// CHECK-LABEL: @parts(
// CHECK-NEXT: %[[V0:.*]] = zorse.slice %arg0 [0, 0, 8] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf32> -> tensor<?x4x8xf32>
// CHECK-NEXT: %[[V1:.*]] = zorse.reshape %[[V0]] : tensor<?x4x8xf32> -> tensor<?x4x2x4xf32>
// CHECK-NEXT: return %[[V1]], %[[V1]] : tensor<?x4x2x4xf32>, tensor<?x4x2x4xf32>
func.func @parts(%qkv: tensor<?x4x24xf32>) -> (tensor<?x4x2x4xf32>, tensor<?x4x2x4xf32>) {
  %a = zorse.reshape %qkv : tensor<?x4x24xf32> -> tensor<?x4x3x2x4xf32>
  %b = zorse.slice %a [0, 0, 1, 0, 0] [?, 4, 1, 2, 4] [1, 1, 1, 1, 1] : tensor<?x4x3x2x4xf32> -> tensor<?x4x1x2x4xf32>
  %c = zorse.reshape %b : tensor<?x4x1x2x4xf32> -> tensor<?x4x2x4xf32>
  %d = zorse.slice %qkv [0, 0, 8] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf32> -> tensor<?x4x8xf32>
  %e = zorse.reshape %d : tensor<?x4x8xf32> -> tensor<?x4x2x4xf32>
  return %c, %e : tensor<?x4x2x4xf32>, tensor<?x4x2x4xf32>
}

// -----

// Parts within the heads (NeoX): a reshape separates them, then the slice.
// CHECK-LABEL: @interleaved_parts(
// CHECK-NEXT: %[[V0:.*]] = zorse.reshape %arg0 : tensor<?x4x24xf32> -> tensor<?x4x2x12xf32>
// CHECK-NEXT: %[[V1:.*]] = zorse.slice %[[V0]] [0, 0, 0, 4] [?, 4, 2, 4] [1, 1, 1, 1] : tensor<?x4x2x12xf32> -> tensor<?x4x2x4xf32>
// CHECK-NEXT: %[[V2:.*]] = zorse.transpose %[[V1]] [0, 2, 1, 3] : tensor<?x4x2x4xf32> -> tensor<?x2x4x4xf32>
// CHECK-NEXT: return %[[V2]] : tensor<?x2x4x4xf32>
func.func @interleaved_parts(%qkv: tensor<?x4x24xf32>) -> tensor<?x2x4x4xf32> {
  %a = zorse.reshape %qkv : tensor<?x4x24xf32> -> tensor<?x4x2x3x4xf32>
  %t = zorse.transpose %a [0, 2, 3, 1, 4] : tensor<?x4x2x3x4xf32> -> tensor<?x2x3x4x4xf32>
  %b = zorse.slice %t [0, 0, 1, 0, 0] [?, 2, 1, 4, 4] [1, 1, 1, 1, 1] : tensor<?x2x3x4x4xf32> -> tensor<?x2x1x4x4xf32>
  %c = zorse.reshape %b : tensor<?x2x1x4x4xf32> -> tensor<?x2x4x4xf32>
  return %c : tensor<?x2x4x4xf32>
}

// -----

// Dimensions of size 1 and broadcasts move behind elementwise ops; sums of tables are computed once, not per row.
// CHECK-LABEL: @sinks(
// CHECK-NEXT: %[[V0:.*]] = math.exp %arg0 : tensor<?x16xf32>
// CHECK-NEXT: %[[V1:.*]] = zorse.broadcast %[[V0]] dims [0, 1] : tensor<?x16xf32> -> tensor<?x16x64xf32>
// CHECK-NEXT: %[[V2:.*]] = zorse.broadcast %arg1 dims [1] : tensor<64xf32> -> tensor<16x64xf32>
// CHECK-NEXT: %[[V3:.*]] = arith.addf %[[V2]], %arg2 : tensor<16x64xf32>
// CHECK-NEXT: %[[V4:.*]] = zorse.broadcast %[[V3]] dims [1, 2] : tensor<16x64xf32> -> tensor<?x16x64xf32>
// CHECK-NEXT: return %[[V1]], %[[V4]] : tensor<?x16x64xf32>, tensor<?x16x64xf32>
func.func @sinks(%x: tensor<?x16xf32>, %b: tensor<64xf32>, %p: tensor<16x64xf32>) -> (tensor<?x16x64xf32>, tensor<?x16x64xf32>) {
  %0 = zorse.reshape %x : tensor<?x16xf32> -> tensor<?x16x1xf32>
  %1 = math.exp %0 : tensor<?x16x1xf32>
  %2 = zorse.reshape %1 : tensor<?x16x1xf32> -> tensor<?x16xf32>
  %3 = zorse.broadcast %2 dims [0, 1] : tensor<?x16xf32> -> tensor<?x16x64xf32>
  %4 = zorse.broadcast %b dims [2] : tensor<64xf32> -> tensor<?x16x64xf32>
  %5 = zorse.broadcast %p dims [1, 2] : tensor<16x64xf32> -> tensor<?x16x64xf32>
  %6 = arith.addf %4, %5 : tensor<?x16x64xf32>
  return %3, %6 : tensor<?x16x64xf32>, tensor<?x16x64xf32>
}

// -----

// Operations without effect are removed.
// CHECK-LABEL: @exact(
// CHECK-NEXT: return %arg0 : tensor<?x4xf32>
func.func @exact(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x4xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %zerob = zorse.broadcast %zero dims [] : tensor<f32> -> tensor<?x4xf32>
  %0 = arith.mulf %oneb, %x : tensor<?x4xf32>
  %1 = arith.addf %zerob, %0 : tensor<?x4xf32>
  %2 = arith.divf %1, %oneb : tensor<?x4xf32>
  %3 = math.powf %2, %oneb : tensor<?x4xf32>
  %4 = arith.subf %3, %zerob : tensor<?x4xf32>
  %5 = zorse.slice %4 [0, 0] [?, 4] [1, 1] : tensor<?x4xf32> -> tensor<?x4xf32>
  %6 = zorse.concat %5 {dim = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %7 = zorse.dropout %6 {probability = 0.0 : f64, rng_id = 0 : i64} : tensor<?x4xf32>
  return %7 : tensor<?x4xf32>
}

// -----

// Arguments: inputs, then parameters by first use; unused constants are removed. Operands of commutative ops: the deeper first.
// CHECK-LABEL: @model(%arg0: tensor<?x4xf32> {zorse.input = "x"}, %arg1: tensor<4x4xf32> {zorse.parameter = "w", zorse.trainable = true}, %arg2: tensor<4xf32> {zorse.parameter = "b", zorse.trainable = true}) -> tensor<?x4xf32>
// CHECK-NEXT: %[[V0:.*]] = zorse.matmul %arg0, %arg1 : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
// CHECK-NEXT: %[[V1:.*]] = zorse.broadcast %arg2 dims [1] : tensor<4xf32> -> tensor<?x4xf32>
// CHECK-NEXT: %[[V2:.*]] = arith.addf %[[V0]], %[[V1]] : tensor<?x4xf32>
// CHECK-NEXT: %[[V3:.*]] = arith.addf %[[V2]], %arg0 : tensor<?x4xf32>
// CHECK-NEXT: return %[[V3]] : tensor<?x4xf32>
func.func @model(%i: tensor<?x4xf32> {zorse.input = "x"}, %b: tensor<4xf32> {zorse.parameter = "b", zorse.trainable = true},
                 %unused: tensor<3xf32> {zorse.parameter = "buffer", zorse.trainable = false}, %w: tensor<4x4xf32> {zorse.parameter = "w", zorse.trainable = true})
    -> tensor<?x4xf32> {
  %bb = zorse.broadcast %b dims [1] : tensor<4xf32> -> tensor<?x4xf32>
  %m = zorse.matmul %i, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
  %y = arith.addf %bb, %m : tensor<?x4xf32>
  %z = arith.addf %i, %y : tensor<?x4xf32>
  return %z : tensor<?x4xf32>
}
