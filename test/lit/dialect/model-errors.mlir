// RUN: zorse-opt %s -split-input-file -verify-diagnostics
// One program per numbered constraint: the smallest that violates only this constraint. The function's name names the constraint.

func.func @attention_c1(%q: tensor<?x8x4x16xf32>, %k: tensor<8x8x2x16xf32>) {
  // expected-error @below {{(C1) expects q, k and v of rank 4, one element type and the same rows}}
  %y = zorse.attention %q, %k, %k {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<8x8x2x16xf32>, tensor<8x8x2x16xf32>) -> tensor<?x8x4x16xf32>
  return
}

// -----

func.func @attention_c2(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x3x16xf32>) {
  // expected-error @below {{(C2) expects k [?, S', H', D]}}
  %y = zorse.attention %q, %k, %k {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x3x16xf32>, tensor<?x8x3x16xf32>) -> tensor<?x8x4x16xf32>
  return
}

// -----

func.func @attention_c3(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>, %m: tensor<8x8xi1>) {
  // expected-error @below {{(C3) expects mask [?|1, 4|1, 8, 8] of i1 or 'f32', got 'tensor<8x8xi1>'}}
  %y = zorse.attention %q, %k, %k mask %m {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>, tensor<8x8xi1>) -> tensor<?x8x4x16xf32>
  return
}

// -----

func.func @attention_c4(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>) {
  // expected-error @below {{(C4) expects a finite scale, a positive, finite softcap and 0 <= dropout < 1}}
  %y = zorse.attention %q, %k, %k {scale = 0.25 : f64, dropout = 1.0 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>) -> tensor<?x8x4x16xf32>
  return
}

// -----

func.func @attention_c5(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>) {
  // expected-error @below {{(C5) expects window >= 1 together with causal, got 2 without causal}}
  %y = zorse.attention %q, %k, %k {scale = 0.25 : f64, window = 2 : i64} : (tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>) -> tensor<?x8x4x16xf32>
  return
}

// -----

func.func @attention_c6(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>) {
  // expected-error @below {{(C6) expects out 'tensor<?x8x4x16xf32>'}}
  %y = zorse.attention %q, %k, %k {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>) -> tensor<?x8x2x16xf32>
  return
}

// -----

func.func @attention_c7(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>) {
  // expected-error @below {{(C7) expects lse 'tensor<?x4x8xf32>', got 'tensor<?x8x4xf32>'}}
  %y:2 = zorse.attention %q, %k, %k {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>) -> (tensor<?x8x4x16xf32>, tensor<?x8x4xf32>)
  return
}

// -----

func.func @attention_grad_c1(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x3x16xf32>, %l: tensor<?x4x8xf32>) {
  // expected-error @below {{(C1) expects k [?, S', H', D]}}
  %y:3 = zorse.attention_grad %q, %q, %k, %k, %q, %l {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x4x16xf32>, tensor<?x8x3x16xf32>, tensor<?x8x3x16xf32>, tensor<?x8x4x16xf32>, tensor<?x4x8xf32>) -> (tensor<?x8x4x16xf32>, tensor<?x8x3x16xf32>, tensor<?x8x3x16xf32>)
  return
}

// -----

func.func @attention_grad_c2(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>, %l: tensor<?x4x8xf32>) {
  // expected-error @below {{(C2) expects dout 'tensor<?x8x4x16xf32>'}}
  %y:3 = zorse.attention_grad %k, %q, %k, %k, %q, %l {scale = 0.25 : f64} : (tensor<?x8x2x16xf32>, tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x4x16xf32>, tensor<?x4x8xf32>) -> (tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>)
  return
}

// -----

func.func @attention_grad_c3(%q: tensor<?x8x4x16xf32>, %k: tensor<?x8x2x16xf32>, %l: tensor<?x4x8xf32>) {
  // expected-error @below {{(C3) expects dq, dk and dv of the types of q, k and v}}
  %y:3 = zorse.attention_grad %q, %q, %k, %k, %q, %l {scale = 0.25 : f64} : (tensor<?x8x4x16xf32>, tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x2x16xf32>, tensor<?x8x4x16xf32>, tensor<?x4x8xf32>) -> (tensor<?x8x4x16xf32>, tensor<?x8x4x16xf32>, tensor<?x8x2x16xf32>)
  return
}

// -----

func.func @causal_mask_c1() {
  // expected-error @below {{(C1) expects a mask of rank 2}}
  %y = zorse.causal_mask : tensor<8xi1>
  return
}

// -----

func.func @causal_mask_c2() {
  // expected-error @below {{(C2) expects a window of at least 1, got 0}}
  %y = zorse.causal_mask {window = 0 : i64} : tensor<8x8xi1>
  return
}

// -----

func.func @causal_mask_c3() {
  // expected-error @below {{(C3) expects no more queries than keys}}
  %y = zorse.causal_mask : tensor<8x4xi1>
  return
}

// -----

func.func @causal_mask_c4() {
  // expected-error @below {{(C4) expects a fill below 0 of a float mask}}
  %y = zorse.causal_mask {fill = 1.0 : f64} : tensor<8x8xf32>
  return
}

// -----

func.func @causal_mask_c4_boolean() {
  // expected-error @below {{(C4) expects a fill below 0 of a float mask}}
  %y = zorse.causal_mask {fill = -1.0 : f64} : tensor<8x8xi1>
  return
}

// -----

func.func @rope_c1(%x: tensor<?x8x4x15xf32>, %c: tensor<8x7xf32>) {
  // expected-error @below {{(C1) expects x [?, S, H, D] with D even}}
  %y = zorse.rope %x, %c, %c : (tensor<?x8x4x15xf32>, tensor<8x7xf32>, tensor<8x7xf32>) -> tensor<?x8x4x15xf32>
  return
}

// -----

func.func @rope_c2(%x: tensor<?x8x4x16xf32>, %c: tensor<8x16xf32>) {
  // expected-error @below {{(C2) expects cos and sin 'tensor<8x8xf32>'}}
  %y = zorse.rope %x, %c, %c : (tensor<?x8x4x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<?x8x4x16xf32>
  return
}

// -----

func.func @rope_c3(%x: tensor<?x8x4x16xf32>, %c: tensor<8x8xf32>) {
  // expected-error @below {{(C3) expects y 'tensor<?x8x4x16xf32>'}}
  %y = zorse.rope %x, %c, %c : (tensor<?x8x4x16xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<?x8x2x16xf32>
  return
}

// -----

func.func @cross_entropy_c1(%x: tensor<?x8x99xf32>, %i: tensor<?xi64>) {
  // expected-error @below {{(C1) expects labels of the shape of logits without the (static) last dimension}}
  %y = zorse.cross_entropy %x, %i : (tensor<?x8x99xf32>, tensor<?xi64>) -> tensor<?xf32>
  return
}

// -----

func.func @cross_entropy_c2(%x: tensor<?x8x99xf32>, %i: tensor<?x8xi64>, %w: tensor<98xf32>) {
  // expected-error @below {{(C2) expects weights 'tensor<99xf32>'}}
  %y = zorse.cross_entropy %x, %i weights %w : (tensor<?x8x99xf32>, tensor<?x8xi64>, tensor<98xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @cross_entropy_c3(%x: tensor<?x8x99xf32>, %i: tensor<?x8xi64>) {
  // expected-error @below {{(C3) expects loss 'tensor<?x8xf32>' and statistics 'tensor<?x8x2xf32>'}}
  %y = zorse.cross_entropy %x, %i : (tensor<?x8x99xf32>, tensor<?x8xi64>) -> tensor<?x8xf64>
  return
}

// -----

func.func @cross_entropy_grad_c1(%x: tensor<?x8x99xf32>, %i: tensor<?x8xi64>, %l: tensor<?x8xf64>) {
  // expected-error @below {{(C1) expects statistics 'tensor<?x8x2xf32>'}}
  %y = zorse.cross_entropy_grad %l, %x, %i, %l : (tensor<?x8xf64>, tensor<?x8x99xf32>, tensor<?x8xi64>, tensor<?x8xf64>) -> tensor<?x8x99xf32>
  return
}

// -----

func.func @cross_entropy_grad_c2(%x: tensor<?x8x99xf32>, %i: tensor<?x8xi64>, %l: tensor<?x8x2xf32>, %d: tensor<?xf32>) {
  // expected-error @below {{(C2) expects dloss 'tensor<?x8xf32>'}}
  %y = zorse.cross_entropy_grad %d, %x, %i, %l : (tensor<?xf32>, tensor<?x8x99xf32>, tensor<?x8xi64>, tensor<?x8x2xf32>) -> tensor<?x8x99xf32>
  return
}

// -----

func.func @cross_entropy_grad_c3(%x: tensor<?x8x99xf32>, %i: tensor<?x8xi64>, %d: tensor<?x8xf32>, %l: tensor<?x8x2xf32>) {
  // expected-error @below {{(C3) expects dlogits 'tensor<?x8x99xf32>'}}
  %y = zorse.cross_entropy_grad %d, %x, %i, %l : (tensor<?x8xf32>, tensor<?x8x99xf32>, tensor<?x8xi64>, tensor<?x8x2xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @dropout_c1(%x: tensor<?x8x99xf32>) {
  // expected-error @below {{(C1) expects 0 <= probability < 1, got 1}}
  %y = zorse.dropout %x {probability = 1.0 : f64, rng_id = 0 : i64} : tensor<?x8x99xf32>
  return
}

// -----

func.func @dropout_c2(%x: tensor<?x8x99xf32>) {
  // expected-error @below {{(C2) expects rng_id >= 0, got -1}}
  %y = zorse.dropout %x {probability = 0.5 : f64, rng_id = -1 : i64} : tensor<?x8x99xf32>
  return
}

// -----

func.func @running_stat_c1(%x: tensor<?x8xf32>, %r: tensor<7xf32>) {
  // expected-error @below {{(C1) expects a statistic of every row and running ones of its shape without the samples, got 'tensor<?x8xf32>' and 'tensor<7xf32>'}}
  %y = zorse.running_stat %x, %r {momentum = 0.1 : f64, correction = 1.0 : f64} : tensor<?x8xf32>, tensor<7xf32>
  return
}

// -----

func.func @running_stat_c2(%x: tensor<?x8xf32>, %r: tensor<8xf32>) {
  // expected-error @below {{(C2) expects 0 < momentum <= 1 and a correction above 0, got 0.000000e+00 and 1.000000e+00}}
  %y = zorse.running_stat %x, %r {momentum = 0.0 : f64, correction = 1.0 : f64} : tensor<?x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @round_c1(%x: tensor<?x8xf32>) {
  // expected-error @below {{(C1) expects to round to bf16 or f16, got 'f32'}}
  %y = zorse.round %x to f32 : tensor<?x8xf32>
  return
}

// -----

func.func @round_c2(%x: tensor<?x8xbf16>) {
  // expected-error @below {{(C2) expects elements of f32 or f64, got 'bf16'}}
  %y = zorse.round %x to bf16 : tensor<?x8xbf16>
  return
}

// -----

func.func @round_c3(%w: tensor<8x8xf32>) {
  // expected-error @below {{(C3) expects straight_through for a value without samples}}
  %y = zorse.round %w to bf16 : tensor<8x8xf32>
  return
}

// -----

func.func @round_c4(%x: tensor<?x8xf32>) {
  // expected-error @below {{(C4) expects one of straight_through and per_operator}}
  %y = zorse.round %x to bf16 {straight_through, per_operator} : tensor<?x8xf32>
  return
}

// -----

func.func @known_c1() {
  // expected-error @below {{(C1) expects an expression of B and counts, got "1/": column 3: expected a number, B, a count such as n0, a function or '(', found the end}}
  %k = zorse.known "1/" : tensor<f64>
  return
}
