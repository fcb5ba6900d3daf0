// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-recognize-softmax --zorse-recognize-cross-entropy --zorse-canonicalize-graph | FileCheck %s

// CHECK-LABEL: @softmax(
// CHECK-NEXT: %[[Y:.*]] = zorse.softmax %arg0 : tensor<?x8xf32>
// CHECK-NEXT: return %[[Y]]
func.func @softmax(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %m = zorse.reduce max %x dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %mb = zorse.broadcast %m dims [0] : tensor<?xf32> -> tensor<?x8xf32>
  %s = arith.subf %x, %mb : tensor<?x8xf32>
  %e = math.exp %s : tensor<?x8xf32>
  %z = zorse.reduce sum %e dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %zb = zorse.broadcast %z dims [0] : tensor<?xf32> -> tensor<?x8xf32>
  %y = arith.divf %e, %zb : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// CHECK-LABEL: @log_softmax(
// CHECK-NEXT: %[[Y:.*]] = zorse.log_softmax %arg0 : tensor<?x8xf32>
// CHECK-NEXT: return %[[Y]]
func.func @log_softmax(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %m = zorse.reduce max %x dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %mb = zorse.broadcast %m dims [0] : tensor<?xf32> -> tensor<?x8xf32>
  %s = arith.subf %x, %mb : tensor<?x8xf32>
  %e = math.exp %s : tensor<?x8xf32>
  %z = zorse.reduce sum %e dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %l = math.log %z : tensor<?xf32>
  %lb = zorse.broadcast %l dims [0] : tensor<?xf32> -> tensor<?x8xf32>
  %y = arith.subf %s, %lb : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A softmax without subtraction of the maximum overflows where zorse.softmax does not: a different function.
// CHECK-LABEL: @no_maximum(
// CHECK-NOT: zorse.softmax
// CHECK: return
func.func @no_maximum(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %e = math.exp %x : tensor<?x8xf32>
  %z = zorse.reduce sum %e dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  %zb = zorse.broadcast %z dims [0] : tensor<?xf32> -> tensor<?x8xf32>
  %y = arith.divf %e, %zb : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// The loss written out: LogSoftmax, GatherElements by labels clamped to valid values, negation, mask.
// CHECK-LABEL: @loss(
// CHECK-NEXT: %[[L:.*]] = zorse.cross_entropy %arg0, %arg1 {ignore_index = -100 : i64} : (tensor<?x8x99xf32>, tensor<?x8xi64>) -> tensor<?x8xf32>
// CHECK-NEXT: return %[[L]]
func.func @loss(%x: tensor<?x8x99xf32>, %labels: tensor<?x8xi64>) -> tensor<?x8xf32> {
  %c = arith.constant dense<-100> : tensor<i64>
  %cb = zorse.broadcast %c dims [] : tensor<i64> -> tensor<?x8xi64>
  %keep = arith.cmpi ne, %labels, %cb : tensor<?x8xi64>
  %z = arith.constant dense<0> : tensor<i64>
  %zb = zorse.broadcast %z dims [] : tensor<i64> -> tensor<?x8xi64>
  %safe = arith.select %keep, %labels, %zb : tensor<?x8xi1>, tensor<?x8xi64>
  %p = zorse.log_softmax %x : tensor<?x8x99xf32>
  %t = zorse.take_along_dim %p, %safe : tensor<?x8x99xf32>, tensor<?x8xi64> -> tensor<?x8xf32>
  %n = arith.negf %t : tensor<?x8xf32>
  %f = arith.constant dense<0.0> : tensor<f32>
  %fb = zorse.broadcast %f dims [] : tensor<f32> -> tensor<?x8xf32>
  %y = arith.select %keep, %n, %fb : tensor<?x8xi1>, tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
