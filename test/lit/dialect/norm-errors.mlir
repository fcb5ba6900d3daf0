// RUN: zorse-opt %s -split-input-file -verify-diagnostics
// One program per numbered constraint: the smallest that violates only this constraint. The function's name names the constraint.

func.func @softmax_c1(%x: tensor<?xf32>) {
  // expected-error @below {{(C1) expects x of rank >= 1 whose last dimension is not the sample axis}}
  %y = zorse.softmax %x : tensor<?xf32>
  return
}

// -----

func.func @log_softmax_c1(%x: tensor<?xf32>) {
  // expected-error @below {{(C1) expects x of rank >= 1 whose last dimension is not the sample axis}}
  %y = zorse.log_softmax %x : tensor<?xf32>
  return
}

// -----

func.func @softmax_grad_c1(%x: tensor<?xf32>) {
  // expected-error @below {{(C1) expects y of rank >= 1 whose last dimension is not the sample axis}}
  %y = zorse.softmax_grad %x, %x : tensor<?xf32>
  return
}

// -----

func.func @log_softmax_grad_c1(%x: tensor<?xf32>) {
  // expected-error @below {{(C1) expects y of rank >= 1 whose last dimension is not the sample axis}}
  %y = zorse.log_softmax_grad %x, %x : tensor<?xf32>
  return
}

// -----

func.func @layer_norm_c1(%x: tensor<?xf32>) {
  // expected-error @below {{(C1) expects x of rank >= 1}}
  %y = zorse.layer_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @layer_norm_c2(%x: tensor<?x8x64xf32>, %g: tensor<32xf32>) {
  // expected-error @below {{(C2) expects weight 'tensor<64xf32>' to match the last dimension of x, got 'tensor<32xf32>'}}
  %y = zorse.layer_norm %x weight %g {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>, tensor<32xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @layer_norm_c3(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C3) expects a positive, finite epsilon, got 0}}
  %y = zorse.layer_norm %x {epsilon = 0.0 : f64} : (tensor<?x8x64xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @layer_norm_c4(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C4) expects y 'tensor<?x8x64xf32>'}}
  %y = zorse.layer_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>) -> tensor<?x8x32xf32>
  return
}

// -----

func.func @layer_norm_c5_count(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C5) expects no statistics or mean and rstd, got 1}}
  %y:2 = zorse.layer_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>) -> (tensor<?x8x64xf32>, tensor<?x8xf32>)
  return
}

// -----

func.func @layer_norm_c5_type(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C5) expects rstd 'tensor<?x8xf32>'}}
  %y:3 = zorse.layer_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>) -> (tensor<?x8x64xf32>, tensor<?x8xf32>, tensor<?x8x64xf32>)
  return
}

// -----

func.func @layer_norm_grad_input_c1(%x: tensor<?x8x64xf32>, %z: tensor<?x8x32xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C1) expects dy 'tensor<?x8x64xf32>'}}
  %y = zorse.layer_norm_grad_input %z, %x, %s, %s : (tensor<?x8x32xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @layer_norm_grad_input_c2(%x: tensor<?x8x64xf32>, %g: tensor<?x8xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C2) expects weight 'tensor<64xf32>'}}
  %y = zorse.layer_norm_grad_input %x, %x, %s, %s weight %g : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @layer_norm_grad_input_c3(%x: tensor<?x8x64xf32>, %s: tensor<?xf32>) {
  // expected-error @below {{(C3) expects mean 'tensor<?x8xf32>'}}
  %y = zorse.layer_norm_grad_input %x, %x, %s, %s : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?xf32>, tensor<?xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @layer_norm_grad_params_c1(%x: tensor<?x8x64xf32>, %z: tensor<?x8x32xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C1) expects dy 'tensor<?x8x64xf32>'}}
  %y:2 = zorse.layer_norm_grad_params %z, %x, %s, %s : (tensor<?x8x32xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @layer_norm_grad_params_c2(%x: tensor<?x8x64xf32>, %s: tensor<?xf32>) {
  // expected-error @below {{(C2) expects mean 'tensor<?x8xf32>'}}
  %y:2 = zorse.layer_norm_grad_params %x, %x, %s, %s : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<64xf32>, tensor<64xf32>)
  return
}

// -----

func.func @layer_norm_grad_params_c3(%x: tensor<?x8x64xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C3) expects dbias 'tensor<64xf32>'}}
  %y:2 = zorse.layer_norm_grad_params %x, %x, %s, %s : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<64xf32>, tensor<?x8xf32>)
  return
}

// -----

func.func @rms_norm_c1(%x: tensor<?xf32>) {
  // expected-error @below {{(C1) expects x of rank >= 1}}
  %y = zorse.rms_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @rms_norm_c2(%x: tensor<?x8x64xf32>, %g: tensor<32xf32>) {
  // expected-error @below {{(C2) expects weight 'tensor<64xf32>' to match the last dimension of x, got 'tensor<32xf32>'}}
  %y = zorse.rms_norm %x weight %g {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>, tensor<32xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @rms_norm_c3(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C3) expects a positive, finite epsilon}}
  %y = zorse.rms_norm %x {epsilon = 0x7FF0000000000000 : f64} : (tensor<?x8x64xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @rms_norm_c4(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C4) expects y 'tensor<?x8x64xf32>'}}
  %y = zorse.rms_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>) -> tensor<?x8x32xf32>
  return
}

// -----

func.func @rms_norm_c5(%x: tensor<?x8x64xf32>) {
  // expected-error @below {{(C5) expects rrms 'tensor<?x8xf32>'}}
  %y:2 = zorse.rms_norm %x {epsilon = 1.0e-5 : f64} : (tensor<?x8x64xf32>) -> (tensor<?x8x64xf32>, tensor<?x8x64xf32>)
  return
}

// -----

func.func @rms_norm_grad_input_c1(%x: tensor<?x8x64xf32>, %z: tensor<?x8x32xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C1) expects dy 'tensor<?x8x64xf32>'}}
  %y = zorse.rms_norm_grad_input %z, %x, %s : (tensor<?x8x32xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @rms_norm_grad_input_c2(%x: tensor<?x8x64xf32>, %g: tensor<?x8xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C2) expects weight 'tensor<64xf32>'}}
  %y = zorse.rms_norm_grad_input %x, %x, %s weight %g : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @rms_norm_grad_input_c3(%x: tensor<?x8x64xf32>, %s: tensor<?xf32>) {
  // expected-error @below {{(C3) expects rrms 'tensor<?x8xf32>'}}
  %y = zorse.rms_norm_grad_input %x, %x, %s : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?xf32>) -> tensor<?x8x64xf32>
  return
}

// -----

func.func @rms_norm_grad_params_c1(%x: tensor<?x8x64xf32>, %z: tensor<?x8x32xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C1) expects dy 'tensor<?x8x64xf32>'}}
  %y = zorse.rms_norm_grad_params %z, %x, %s : (tensor<?x8x32xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>) -> tensor<64xf32>
  return
}

// -----

func.func @rms_norm_grad_params_c2(%x: tensor<?x8x64xf32>, %s: tensor<?xf32>) {
  // expected-error @below {{(C2) expects rrms 'tensor<?x8xf32>'}}
  %y = zorse.rms_norm_grad_params %x, %x, %s : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?xf32>) -> tensor<64xf32>
  return
}

// -----

func.func @rms_norm_grad_params_c3(%x: tensor<?x8x64xf32>, %s: tensor<?x8xf32>) {
  // expected-error @below {{(C3) expects dweight 'tensor<64xf32>'}}
  %y = zorse.rms_norm_grad_params %x, %x, %s : (tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}
