// RUN: zorse-opt %s -split-input-file -verify-diagnostics --zorse-differentiate

zorse.class @trained_mask {
  func.func @forward(%m: tensor<1x1x3x3xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %x: tensor<?x3x2x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3x2x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    // expected-error @below {{has no gradient with respect to its mask, which depends on a trained parameter; freeze that parameter or compute its mask from inputs and constants alone}}
    %y = zorse.attention %x, %x, %x mask %m {scale = 0.5 : f64}
        : (tensor<?x3x2x4xf32>, tensor<?x3x2x4xf32>, tensor<?x3x2x4xf32>, tensor<1x1x3x3xf32>) -> tensor<?x3x2x4xf32>
    return %y : tensor<?x3x2x4xf32>
  }
}

// -----

zorse.class @unknown {
  func.func @forward(%x: tensor<?x3xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x3xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    // expected-error @below {{'math.clampf' has no gradient, and a trained parameter depends on it: expected a differentiable operation here}}
    %y = math.clampf %x to [%x, %x] : tensor<?x3xf32>
    return %y : tensor<?x3xf32>
  }
}
