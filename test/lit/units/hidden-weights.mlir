// RUN: zorse-opt %s --zorse-verify-model --zorse-find-units | FileCheck %s
// Weights of hidden layers, which Muon updates as matrices: all reads are matmuls, and another matmul with a parameter follows on the way to the loss.

// CHECK:      func.func @model
// CHECK-SAME: {zorse.parameter = "table", zorse.trainable = true}
// CHECK-SAME: {zorse.hidden = array<i64: 6, 8>, zorse.parameter = "hidden", zorse.trainable = true}
// A filter of a convolution is one matrix.
// CHECK-SAME: {zorse.hidden = array<i64: 4, 6>, zorse.parameter = "filter", zorse.trainable = true}
// A stack has a matrix for each index.
// CHECK-SAME: {zorse.hidden = array<i64: 4, 2>, zorse.parameter = "stack", zorse.trainable = true}
// The sum of a parameter and activations is no matmul.
// CHECK-SAME: {zorse.parameter = "positions", zorse.trainable = true}
// CHECK-SAME: {zorse.parameter = "frozen", zorse.trainable = false}
// CHECK-SAME: {zorse.parameter = "head", zorse.trainable = true}
func.func @model(%ids: tensor<?x3xi64> {zorse.input = "ids"},
                 %table: tensor<5x8xf64> {zorse.parameter = "table", zorse.trainable = true},
                 %hidden: tensor<6x8xf64> {zorse.parameter = "hidden", zorse.trainable = true},
                 %filter: tensor<4x3x2xf64> {zorse.parameter = "filter", zorse.trainable = true},
                 %stack: tensor<3x4x2xf64> {zorse.parameter = "stack", zorse.trainable = true},
                 %positions: tensor<3x8xf64> {zorse.parameter = "positions", zorse.trainable = true},
                 %frozen: tensor<2x2xf64> {zorse.parameter = "frozen", zorse.trainable = false},
                 %head: tensor<5x2xf64> {zorse.parameter = "head", zorse.trainable = true})
    -> (tensor<?xf64> {zorse.role = "numerator", zorse.term = 0 : i64, zorse.factor = "1/B"}) {
  %0 = zorse.gather %table, %ids : tensor<5x8xf64>, tensor<?x3xi64> -> tensor<?x3x8xf64>
  %p = zorse.broadcast %positions dims [1, 2] : tensor<3x8xf64> -> tensor<?x3x8xf64>
  %1 = arith.addf %0, %p : tensor<?x3x8xf64>
  %2 = zorse.matmul %1, %hidden {transpose_b} : tensor<?x3x8xf64>, tensor<6x8xf64> -> tensor<?x3x6xf64>
  %f = zorse.reshape %filter : tensor<4x3x2xf64> -> tensor<4x6xf64>
  %3 = zorse.matmul %2, %f {transpose_b} : tensor<?x3x6xf64>, tensor<4x6xf64> -> tensor<?x3x4xf64>
  %s = zorse.slice %stack [1, 0, 0] [1, 4, 2] [1, 1, 1] : tensor<3x4x2xf64> -> tensor<1x4x2xf64>
  %t = zorse.reshape %s : tensor<1x4x2xf64> -> tensor<4x2xf64>
  %4 = zorse.matmul %3, %t : tensor<?x3x4xf64>, tensor<4x2xf64> -> tensor<?x3x2xf64>
  %5 = zorse.matmul %4, %frozen : tensor<?x3x2xf64>, tensor<2x2xf64> -> tensor<?x3x2xf64>
  %6 = zorse.matmul %5, %head {transpose_b} : tensor<?x3x2xf64>, tensor<5x2xf64> -> tensor<?x3x5xf64>
  %7 = zorse.cross_entropy %6, %ids {ignore_index = -100 : i64} : (tensor<?x3x5xf64>, tensor<?x3xi64>) -> tensor<?x3xf64>
  %8 = zorse.reduce sum %7 dims [1] : tensor<?x3xf64> -> tensor<?xf64>
  return %8 : tensor<?xf64>
}
