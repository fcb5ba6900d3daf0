// RUN: zorse-opt %s --zorse-lift-constants | FileCheck %s

// One argument per distinct value; scalars and splats stay; a mask that no attention uses is written out.
// CHECK: module attributes {zorse.constant_value = {const.[[A:[0-9a-f]+]] = dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>, const.[[M:[0-9a-f]+]] = dense<{{\[}}[true, false], [true, true]]> : tensor<2x2xi1>}}
// CHECK: func.func @model(%arg0: tensor<?x2xf32> {zorse.input = "x"}, %arg1: tensor<2xf32> {zorse.constant, zorse.parameter = "const.[[A]]", zorse.trainable = false}, %arg2: tensor<2x2xi1> {zorse.constant, zorse.parameter = "const.[[M]]", zorse.trainable = false})
func.func @model(%x: tensor<?x2xf32> {zorse.input = "x"}) -> (tensor<?x2xf32>, tensor<?x2x2xi1>) {
  // CHECK: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x2xf32>
  %a = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  // CHECK: zorse.broadcast %arg1 dims [1]
  %ab = zorse.broadcast %a dims [1] : tensor<2xf32> -> tensor<?x2xf32>
  // CHECK: zorse.broadcast %arg1 dims [1]
  %bb = zorse.broadcast %b dims [1] : tensor<2xf32> -> tensor<?x2xf32>
  // CHECK: zorse.broadcast %arg2 dims [1, 2]
  %m = zorse.causal_mask : tensor<2x2xi1>
  %mb = zorse.broadcast %m dims [1, 2] : tensor<2x2xi1> -> tensor<?x2x2xi1>
  %0 = arith.addf %x, %ab : tensor<?x2xf32>
  %1 = arith.mulf %0, %bb : tensor<?x2xf32>
  %2 = arith.addf %1, %oneb : tensor<?x2xf32>
  return %2, %mb : tensor<?x2xf32>, tensor<?x2x2xi1>
}
