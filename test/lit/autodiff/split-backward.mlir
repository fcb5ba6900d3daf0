// RUN: zorse-opt %s --zorse-differentiate=split | FileCheck %s
// B computes the gradients that other units wait for, W the gradients of parameters. In an MLP half, B has the two matmuls with weights and the input gradient of
// the norm. W has the two contractions, the sums over rows and the gradients of the norm's parameters. B saves the gradients after the gelu and after the norm, 128
// + 32 bytes per position. The gradient of the output, the saved tensors and the input are available anyway, and the gelu and the norm of the forward are recomputed
// where they are needed.

// The unsplit backward is unchanged.
// CHECK-LABEL: zorse.class @mlp {
// CHECK-LABEL: func.func @backward(
// CHECK:         zorse.matmul_grad_weight
// CHECK:         zorse.layer_norm_grad_input

// CHECK-LABEL: func.func @backward_inputs(
// CHECK-NOT:     zorse.argument = #zorse.argument<parameter_gradient
// CHECK-SAME:    -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in_gradient, 0>}, tensor<?x4x32xf32> {zorse.argument = #zorse.argument<saved_for_weight_grad, 0>}, tensor<?x4x8xf32> {zorse.argument = #zorse.argument<saved_for_weight_grad, 1>})
// CHECK-NOT:     zorse.matmul_grad_weight
// CHECK-NOT:     zorse.gelu %
// CHECK-NOT:     zorse.layer_norm %
// CHECK:         zorse.matmul %{{.*}}
// CHECK:         %[[DH:.+]] = zorse.gelu_grad
// CHECK:         %[[DN:.+]] = zorse.matmul %[[DH]]
// CHECK-NOT:     grad_params
// CHECK:         %[[DX:.+]] = zorse.layer_norm_grad_input %[[DN]]
// CHECK:         %[[SUM:.+]] = arith.addf %{{.*}}, %[[DX]]
// CHECK:         return %[[SUM]], %[[DH]], %[[DN]]

// CHECK-LABEL: func.func @backward_weights(
// CHECK-NOT:     <boundary_in_gradient
// CHECK:         %[[DH:[^ ]+]]: tensor<?x4x32xf32> {zorse.argument = #zorse.argument<saved_for_weight_grad, 0>}, %[[DN:.+]]: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<saved_for_weight_grad, 1>})
// CHECK-NOT:     zorse.matmul
// CHECK-NOT:     gelu_grad
// CHECK-NOT:     grad_input
// CHECK:         zorse.gelu %
// CHECK:         zorse.matmul_grad_weight
// CHECK:         zorse.reduce sum %[[DH]]
// CHECK:         zorse.layer_norm %
// CHECK:         zorse.matmul_grad_weight %[[DH]]
// CHECK:         zorse.layer_norm_grad_params %[[DN]]
zorse.class @mlp {
  func.func @forward(%g: tensor<8xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %b: tensor<8xf32> {zorse.argument = #zorse.argument<parameter, 1>, zorse.gradient},
                     %w1: tensor<32x8xf32> {zorse.argument = #zorse.argument<parameter, 2>, zorse.gradient},
                     %b1: tensor<32xf32> {zorse.argument = #zorse.argument<parameter, 3>, zorse.gradient},
                     %w2: tensor<8x32xf32> {zorse.argument = #zorse.argument<parameter, 4>, zorse.gradient},
                     %x: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %n = zorse.layer_norm %x weight %g bias %b {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
    %h0 = zorse.matmul %n, %w1 {transpose_b} : tensor<?x4x8xf32>, tensor<32x8xf32> -> tensor<?x4x32xf32>
    %bb = zorse.broadcast %b1 dims [2] : tensor<32xf32> -> tensor<?x4x32xf32>
    %h = arith.addf %h0, %bb : tensor<?x4x32xf32>
    %a = zorse.gelu %h : tensor<?x4x32xf32>
    %o = zorse.matmul %a, %w2 {transpose_b} : tensor<?x4x32xf32>, tensor<8x32xf32> -> tensor<?x4x8xf32>
    %y = arith.addf %x, %o : tensor<?x4x8xf32>
    return %y : tensor<?x4x8xf32>
  }
}

// Attention saves queries, keys, values and its result. W reads only the result: B passes it on, and the saved block ends with B.
// CHECK-LABEL: zorse.class @attention {
// CHECK-LABEL: func.func @backward_inputs(
// CHECK-SAME:    %[[OUT:[^ ]+]]: tensor<?x4x2x4xf32> {zorse.argument = #zorse.argument<saved, {{[0-9]}}>}, %{{[^ ]+}}: tensor<?x2x4xf32>
// CHECK-SAME:    tensor<?x4x2x4xf32> {zorse.argument = #zorse.argument<saved_for_weight_grad, {{[0-9]}}>}
// CHECK:         zorse.attention_grad
// CHECK:         return {{.*}}%[[OUT]]
// CHECK-LABEL: func.func @backward_weights(
// CHECK-NOT:     zorse.argument = #zorse.argument<saved,
// CHECK-NOT:     zorse.attention_grad
// CHECK:         zorse.matmul_grad_weight
// CHECK:         zorse.matmul_grad_weight
zorse.class @attention {
  func.func @forward(%w: tensor<8x24xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %p: tensor<8x8xf32> {zorse.argument = #zorse.argument<parameter, 1>, zorse.gradient},
                     %x: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %h = zorse.matmul %x, %w : tensor<?x4x8xf32>, tensor<8x24xf32> -> tensor<?x4x24xf32>
    %f = zorse.reshape %h : tensor<?x4x24xf32> -> tensor<?x4x6x4xf32>
    %q = zorse.slice %f [0, 0, 0, 0] [?, 4, 2, 4] [1, 1, 1, 1] : tensor<?x4x6x4xf32> -> tensor<?x4x2x4xf32>
    %k = zorse.slice %f [0, 0, 2, 0] [?, 4, 2, 4] [1, 1, 1, 1] : tensor<?x4x6x4xf32> -> tensor<?x4x2x4xf32>
    %v = zorse.slice %f [0, 0, 4, 0] [?, 4, 2, 4] [1, 1, 1, 1] : tensor<?x4x6x4xf32> -> tensor<?x4x2x4xf32>
    %a = zorse.attention %q, %k, %v {causal, scale = 0.5 : f64} : (tensor<?x4x2x4xf32>, tensor<?x4x2x4xf32>, tensor<?x4x2x4xf32>) -> tensor<?x4x2x4xf32>
    %r = zorse.reshape %a : tensor<?x4x2x4xf32> -> tensor<?x4x8xf32>
    %y = zorse.matmul %r, %p : tensor<?x4x8xf32>, tensor<8x8xf32> -> tensor<?x4x8xf32>
    return %y : tensor<?x4x8xf32>
  }
}

// Only parameters have gradients: no other unit waits, and W is the whole backward.
// CHECK-LABEL: zorse.class @embedding {
// CHECK-LABEL: func.func @backward(
// CHECK-NOT:   @embedding.backward_
zorse.class @embedding {
  func.func @forward(%t: tensor<11x8xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %ids: tensor<?x4xi64> {zorse.argument = #zorse.argument<input, 0>})
      -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.gather %t, %ids : tensor<11x8xf32>, tensor<?x4xi64> -> tensor<?x4x8xf32>
    return %y : tensor<?x4x8xf32>
  }
}

// No parameters: B is the whole backward.
// CHECK-LABEL: zorse.class @activation {
// CHECK-LABEL: func.func @backward(
// CHECK-NOT:   @activation.backward_
zorse.class @activation {
  func.func @forward(%x: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.gelu %x : tensor<?x4x8xf32>
    return %y : tensor<?x4x8xf32>
  }
}

// The loss: W recomputes the gradient of the logits from saved values, elementwise; B does not pass it on.
// CHECK-LABEL: zorse.class @head {
// CHECK-LABEL: func.func @backward_inputs(
// CHECK-NOT:     <saved_for_weight_grad
// CHECK:         zorse.cross_entropy_grad
// CHECK-LABEL: func.func @backward_weights(
// CHECK-NOT:     <saved_for_weight_grad
// CHECK:         zorse.cross_entropy_grad
// CHECK:         zorse.matmul_grad_weight
zorse.class @head {
  func.func @forward(%w: tensor<64x8xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %labels: tensor<?x4xi64> {zorse.argument = #zorse.argument<input, 0>},
                     %x: tensor<?x4x8xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?xf32> {zorse.argument = #zorse.argument<loss, 0>}) {
    %l = zorse.matmul %x, %w {transpose_b} : tensor<?x4x8xf32>, tensor<64x8xf32> -> tensor<?x4x64xf32>
    %e = zorse.cross_entropy %l, %labels : (tensor<?x4x64xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
    %s = zorse.reduce sum %e dims [1] : tensor<?x4xf32> -> tensor<?xf32>
    return %s : tensor<?xf32>
  }
}
