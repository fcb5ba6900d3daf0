// RUN: zorse-opt %s -split-input-file --zorse-differentiate | FileCheck %s

// The gradient of relu at zero is zero: the comparison is strict.
// CHECK-LABEL: zorse.class @relu {
// CHECK-LABEL: func.func @backward
// CHECK:         arith.cmpf ogt
// CHECK:         arith.select
zorse.class @relu {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %c = arith.constant dense<0.0> : tensor<f32>
    %z = zorse.broadcast %c dims [] : tensor<f32> -> tensor<?x4xf32>
    %y = arith.maximumf %x, %z : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// Integers and booleans have no gradient: only the selected value has one.
// CHECK-LABEL: zorse.class @select {
// CHECK-LABEL: func.func @backward
// CHECK-SAME:    -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in_gradient, 0>})
// CHECK:         arith.cmpi
// CHECK:         arith.select
zorse.class @select {
  func.func @forward(%i: tensor<?x4xi64> {zorse.argument = #zorse.argument<input, 0>},
                     %x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %c = arith.constant dense<0> : tensor<i64>
    %z = zorse.broadcast %c dims [] : tensor<i64> -> tensor<?x4xi64>
    %b = arith.cmpi sgt, %i, %z : tensor<?x4xi64>
    %f = arith.sitofp %i : tensor<?x4xi64> to tensor<?x4xf32>
    %y = arith.select %b, %x, %f : tensor<?x4xi1>, tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// Dropout is its own transpose; no mask is saved.
// CHECK-LABEL: zorse.class @dropout {
// CHECK-LABEL: func.func @forward
// CHECK-NOT:     <saved
// CHECK-LABEL: func.func @backward
// CHECK:         zorse.dropout %{{.*}} {probability = 1.000000e-01 : f64, rng_id = 3 : i64}
zorse.class @dropout {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.dropout %x {probability = 0.1 : f64, rng_id = 3 : i64} : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// A gradient that is always zero is returned as zeros, because readers expect the contribution.
// CHECK-LABEL: zorse.class @vanishing {
// CHECK-LABEL: func.func @backward
// CHECK:         %[[Z:.+]] = zorse.broadcast %{{.*}} dims [] : tensor<f32> -> tensor<?x4xf32>
// CHECK:         return %[[Z]]
zorse.class @vanishing {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = math.floor %x : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// 16-bit operators: each reader's contribution is rounded, and so is their sum; the derivative of tanh reads the rounded result.
// CHECK-LABEL: zorse.class @narrow {
// CHECK-LABEL: func.func @backward
// CHECK:         %[[H:.+]] = zorse.round %{{.*}} to bf16 {per_operator}
// CHECK:         %[[T:.+]] = math.tanh %[[H]]
// CHECK:         %[[R:.+]] = zorse.round %[[T]] to bf16 {per_operator}
// CHECK:         arith.mulf %[[R]], %[[R]]
// CHECK:         %[[G:.+]] = zorse.round %{{.*}} to bf16
// CHECK:         %[[S:.+]] = arith.addf %{{.*}}, %[[G]]
// CHECK-NEXT:    zorse.round %[[S]] to bf16
zorse.class @narrow {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %h = zorse.round %x to bf16 {per_operator} : tensor<?x4xf32>
    %t = math.tanh %h : tensor<?x4xf32>
    %r = zorse.round %t to bf16 {per_operator} : tensor<?x4xf32>
    %y = arith.mulf %r, %h : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// A bound that is a number: as in PyTorch's clamp and relu6, there is no gradient at or beyond the bound.
// CHECK-LABEL: zorse.class @bounded {
// CHECK-LABEL: func.func @backward
// CHECK:         %[[INSIDE:.+]] = arith.cmpf olt
// CHECK:         arith.select %[[INSIDE]]
// CHECK-NOT:     arith.cmpf oeq
// CHECK:         return
zorse.class @bounded {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %six = arith.constant dense<6.0> : tensor<f32>
    %bound = zorse.broadcast %six dims [] : tensor<f32> -> tensor<?x4xf32>
    %y = arith.minimumf %x, %bound : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}
