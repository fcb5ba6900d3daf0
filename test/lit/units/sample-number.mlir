// RUN: zorse-opt %s --zorse-verify-model --zorse-train-pipeline=from=recognized --zorse-print-summary | FileCheck %s
// RUN: zorse-opt %s --zorse-verify-model --zorse-train-pipeline=from=recognized --zorse-compile-functions=arch=sm_80 -o /dev/null | FileCheck %s --check-prefix=CUDA
// The sample index is computed where it is read, in functions of units and in that of the counts; a count reads a value computed from an earlier one.

// CHECK: count n0 sum of {{.*}}, from 'w'
// CHECK: count n1 sum of {{.*}}, from 'w', n0
// CHECK: known 0 n0/B
// CHECK: reads sample numbers

// CHECK:      func.func @forward
// CHECK-NOT:  boundary_in
// CHECK:      zorse.sample_number : tensor<?xi64>
// CHECK-LABEL: func.func @counts
// CHECK-SAME:   tensor<f64> {zorse.argument = #zorse.argument<scalars, 0, known>}
// CHECK:        zorse.sample_number : tensor<?xi64>
// CHECK-NOT:    zorse.known

// CUDA: function @{{.*}}.forward

func.func @model(%x: tensor<?x8xf32> {zorse.input = "x"}, %w: tensor<?xf32> {zorse.input = "w"},
                 %a: tensor<8x8xf32> {zorse.parameter = "a", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.role = "numerator", zorse.term = 0 : i64, zorse.factor = "1/max(n1, 1)"},
        tensor<?xf32> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"},
        tensor<?xf32> {zorse.role = "count", zorse.count = 1 : i64, zorse.reduce = "sum"}) {
  %i = zorse.sample_number : tensor<?xi64>
  %f = arith.sitofp %i : tensor<?xi64> to tensor<?xf32>
  %k = zorse.known "n0/B" : tensor<f64>
  %s = arith.truncf %k : tensor<f64> to tensor<f32>
  %m = zorse.broadcast %s dims [] : tensor<f32> -> tensor<?xf32>
  %c = arith.subf %w, %m : tensor<?xf32>
  %e = arith.mulf %c, %f : tensor<?xf32>
  %0 = zorse.matmul %x, %a {transpose_b} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %n = zorse.broadcast %f dims [0] : tensor<?xf32> -> tensor<?x8xf32>
  %1 = arith.mulf %0, %n : tensor<?x8xf32>
  %2 = zorse.reduce sum %1 dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  return %2, %w, %e : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
