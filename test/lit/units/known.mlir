// RUN: zorse-opt %s --zorse-verify-model --zorse-train-pipeline=from=recognized --zorse-print-summary | FileCheck %s
// RUN: zorse-opt %s --zorse-verify-model --zorse-train-pipeline=from=recognized --zorse-compile-functions=arch=sm_80 -o /dev/null | FileCheck %s --check-prefix=CUDA
// Numbers that are known before a step: functions of units read them from the step's scalars, each unit only its own.

// CHECK: loss 0 '{{.*}}' factor 1/max(n0, 1)
// CHECK: count n0 sum of {{.*}}, from 'w'
// CHECK: count n1 max of {{.*}}, from 'w'
// CHECK: known 0 1/sqrt(B)
// CHECK: known 1 n1/n0

// CHECK:      zorse.class
// CHECK:      func.func @forward
// CHECK-SAME:   tensor<f64> {zorse.argument = #zorse.argument<scalars, {{[01]}}, known>}
// CHECK-NOT:  zorse.known
// The backward multiplies by the same number, and by the seed.
// CHECK:      func.func @backward
// CHECK-SAME:   zorse.argument = #zorse.argument<scalars, {{[0-9]+}}, known>
// CHECK-LABEL: func.func @counts
// CHECK:        zorse.reduce max
// CHECK-NOT:  zorse.known

// CUDA: function @{{.*}}.forward
// CUDA: scalars

func.func @model(%x: tensor<?x8xf32> {zorse.input = "x"}, %w: tensor<?x8xf32> {zorse.input = "w"},
                 %a: tensor<8x8xf32> {zorse.parameter = "a", zorse.trainable = true},
                 %b: tensor<8x8xf32> {zorse.parameter = "b", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.role = "numerator", zorse.term = 0 : i64, zorse.factor = "1/max(n0, 1)"},
        tensor<?xf32> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"},
        tensor<?xf32> {zorse.role = "count", zorse.count = 1 : i64, zorse.reduce = "max"}) {
  %k0 = zorse.known "1/sqrt(B)" : tensor<f64>
  %s0 = arith.truncf %k0 : tensor<f64> to tensor<f32>
  %f0 = zorse.broadcast %s0 dims [] : tensor<f32> -> tensor<?x8xf32>
  %k1 = zorse.known "n1/n0" : tensor<f64>
  %s1 = arith.truncf %k1 : tensor<f64> to tensor<f32>
  %f1 = zorse.broadcast %s1 dims [] : tensor<f32> -> tensor<?x8xf32>
  %0 = zorse.matmul %x, %a {transpose_b} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %1 = arith.mulf %0, %f0 : tensor<?x8xf32>
  %2 = zorse.matmul %1, %b {transpose_b} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %3 = arith.mulf %2, %f1 : tensor<?x8xf32>
  %4 = arith.mulf %3, %w : tensor<?x8xf32>
  %5 = zorse.reduce sum %4 dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %6 = zorse.reduce sum %w dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %7 = zorse.reduce max %w dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  return %5, %6, %7 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
