// RUN: zorse-opt %s --split-input-file --zorse-canonicalize-graph --zorse-recognize-gelu --zorse-recognize-silu --zorse-canonicalize-graph | FileCheck %s

// x * 0.5 * (1 + erf(x / sqrt 2)).
// CHECK-LABEL: @erf
// CHECK-NEXT: %[[Y:.*]] = zorse.gelu %arg0 : tensor<?x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @erf(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %r = arith.constant dense<1.41421354> : tensor<f32>
  %rb = zorse.broadcast %r dims [] : tensor<f32> -> tensor<?x64xf32>
  %a = arith.divf %x, %rb : tensor<?x64xf32>
  %e = math.erf %a : tensor<?x64xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x64xf32>
  %b = arith.addf %e, %oneb : tensor<?x64xf32>
  %c = arith.mulf %x, %b : tensor<?x64xf32>
  %h = arith.constant dense<0.5> : tensor<f32>
  %hb = zorse.broadcast %h dims [] : tensor<f32> -> tensor<?x64xf32>
  %y = arith.mulf %c, %hb : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// GPT-2's gelu_new: the cube as a power.
// CHECK-LABEL: @tanh_power
// CHECK-NEXT: %[[Y:.*]] = zorse.gelu %arg0 {approximate} : tensor<?x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @tanh_power(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %three = arith.constant dense<3.0> : tensor<f32>
  %threeb = zorse.broadcast %three dims [] : tensor<f32> -> tensor<?x64xf32>
  %cube = math.powf %x, %threeb : tensor<?x64xf32>
  %k = arith.constant dense<0.044715> : tensor<f32>
  %kb = zorse.broadcast %k dims [] : tensor<f32> -> tensor<?x64xf32>
  %kc = arith.mulf %cube, %kb : tensor<?x64xf32>
  %s = arith.addf %x, %kc : tensor<?x64xf32>
  %r = arith.constant dense<0.797884583> : tensor<f32>
  %rb = zorse.broadcast %r dims [] : tensor<f32> -> tensor<?x64xf32>
  %a = arith.mulf %s, %rb : tensor<?x64xf32>
  %t = math.tanh %a : tensor<?x64xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x64xf32>
  %b = arith.addf %t, %oneb : tensor<?x64xf32>
  %h = arith.constant dense<0.5> : tensor<f32>
  %hb = zorse.broadcast %h dims [] : tensor<f32> -> tensor<?x64xf32>
  %xh = arith.mulf %x, %hb : tensor<?x64xf32>
  %y = arith.mulf %xh, %b : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// The cube as products.
// CHECK-LABEL: @tanh_products
// CHECK-NEXT: %[[Y:.*]] = zorse.gelu %arg0 {approximate} : tensor<?x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @tanh_products(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %sq = arith.mulf %x, %x : tensor<?x64xf32>
  %cube = arith.mulf %sq, %x : tensor<?x64xf32>
  %k = arith.constant dense<0.044715> : tensor<f32>
  %kb = zorse.broadcast %k dims [] : tensor<f32> -> tensor<?x64xf32>
  %kc = arith.mulf %kb, %cube : tensor<?x64xf32>
  %s = arith.addf %kc, %x : tensor<?x64xf32>
  %r = arith.constant dense<0.797884583> : tensor<f32>
  %rb = zorse.broadcast %r dims [] : tensor<f32> -> tensor<?x64xf32>
  %a = arith.mulf %rb, %s : tensor<?x64xf32>
  %t = math.tanh %a : tensor<?x64xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x64xf32>
  %b = arith.addf %oneb, %t : tensor<?x64xf32>
  %h = arith.constant dense<0.5> : tensor<f32>
  %hb = zorse.broadcast %h dims [] : tensor<f32> -> tensor<?x64xf32>
  %bh = arith.mulf %b, %hb : tensor<?x64xf32>
  %y = arith.mulf %bh, %x : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// Another constant is another function.
// CHECK-LABEL: @not_gelu
// CHECK-NOT: zorse.gelu
// CHECK: return
func.func @not_gelu(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %e = math.erf %x : tensor<?x64xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x64xf32>
  %b = arith.addf %e, %oneb : tensor<?x64xf32>
  %c = arith.mulf %x, %b : tensor<?x64xf32>
  %h = arith.constant dense<0.5> : tensor<f32>
  %hb = zorse.broadcast %h dims [] : tensor<f32> -> tensor<?x64xf32>
  %y = arith.mulf %c, %hb : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// -----

// x * Sigmoid(x), as the importer writes Sigmoid.
// CHECK-LABEL: @silu
// CHECK-NEXT: %[[Y:.*]] = zorse.silu %arg0 : tensor<?x64xf32>
// CHECK-NEXT: return %[[Y]]
func.func @silu(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %n = arith.negf %x : tensor<?x64xf32>
  %e = math.exp %n : tensor<?x64xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %oneb = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?x64xf32>
  %d = arith.addf %oneb, %e : tensor<?x64xf32>
  %s = arith.divf %oneb, %d : tensor<?x64xf32>
  %y = arith.mulf %x, %s : tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
