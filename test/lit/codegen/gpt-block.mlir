// RUN: zorse-opt %s --zorse-compile-functions -o /dev/null | FileCheck %s
// RUN: zorse-opt %s --zorse-compile-functions=kernels -o /dev/null | FileCheck %s --check-prefix=KERNEL
// The attention half of a GPT block and its update. Nothing is copied: q, k and v are strided views of the fused matmul, their gradients are written directly into
// the fused gradient, results into their arguments, and an update is one in-place kernel.

// CHECK-NOT: kernel {{.*}}copy
// CHECK-LABEL: function @attention.forward: saved 67072 per row
// CHECK: argument saved: write, 67072 per row bytes
// CHECK: kernel 0 reduce{{.*}}(boundary_in0, parameter2, parameter3, saved, saved[256 per row], workspace) iterations 64 per row
// CHECK-NEXT: matmul workspace[16384 per row] = workspace * parameter4^T m 64 per row n 192 k 64 batch 1 ld 64 64 192
// CHECK-NEXT: kernel 1 addf(workspace[16384 per row], parameter1, saved[512 per row])
// CHECK-NEXT: library attention_forward(saved[512 per row], saved[256 + 512 per row], saved[512 + 512 per row], -, saved[49664 per row], saved[66048 per row])
// CHECK-NEXT: matmul workspace = saved[49664 per row] * parameter5^T
// CHECK-NEXT: kernel 2 addf(workspace, parameter0, boundary_in0, boundary_out0)
// CHECK-NEXT: function @attention.backward
// CHECK: argument saved: read, 67072 per row bytes
// CHECK: argument boundary_in_gradient0: accumulate
// CHECK: matmul +=parameter_gradient5 = boundary_out_gradient0^T * saved[49664 per row]
// CHECK: library attention_backward({{.*}}, workspace[16384 per row], workspace[256 + 16384 per row], workspace[512 + 16384 per row])
// CHECK: matmul +=parameter_gradient4 = workspace[16384 per row]^T * workspace m 192 n 64 k 64 per row
// CHECK: kernel {{.*}}reduce{{.*}}, +=boundary_in_gradient0) iterations 64 per row
// CHECK-LABEL: function @update.decay
// CHECK: argument state0: update, 4 per row bytes
// CHECK: argument state1: read, 4 per row bytes
// CHECK-NOT: argument workspace
// CHECK: kernel {{.*}}(state1, scalars[64], state0, {{.*}}state2, {{.*}}) iterations 1 per row
// CHECK-NOT: kernel

// KERNEL: // kernel {{[0-9]+}} addf
// KERNEL: llvm.func internal @body({{.*}}llvm.noalias
// KERNEL: scf.for
// KERNEL: llvm.func @kernel(

module {
  zorse.class @attention {
    func.func @forward(%arg0: tensor<64xf32> {zorse.gradient, zorse.argument = #zorse.argument<parameter, 0>}, %arg1: tensor<192xf32> {zorse.gradient, zorse.argument = #zorse.argument<parameter, 1>}, %arg2: tensor<64xf32> {zorse.gradient, zorse.argument = #zorse.argument<parameter, 2>}, %arg3: tensor<64xf32> {zorse.gradient, zorse.argument = #zorse.argument<parameter, 3>}, %arg4: tensor<192x64xf32> {zorse.gradient, zorse.argument = #zorse.argument<parameter, 4>}, %arg5: tensor<64x64xf32> {zorse.gradient, zorse.argument = #zorse.argument<parameter, 5>}, %arg6: tensor<?x64x64xf32> {zorse.gradient, zorse.argument = #zorse.argument<boundary_in, 0>}) -> (tensor<?x64x64xf32> {zorse.gradient, zorse.argument = #zorse.argument<boundary_out, 0>}, tensor<?x64xf32> {zorse.argument = #zorse.argument<saved, 0>}, tensor<?x64xf32> {zorse.argument = #zorse.argument<saved, 1>}, tensor<?x64x192xf32> {zorse.argument = #zorse.argument<saved, 2>}, tensor<?x64x4x16xf32> {zorse.argument = #zorse.argument<saved, 3>}, tensor<?x4x64xf32> {zorse.argument = #zorse.argument<saved, 4>}) {
      %0 = zorse.broadcast %arg0 dims [2] : tensor<64xf32> -> tensor<?x64x64xf32>
      %1 = zorse.broadcast %arg1 dims [2] : tensor<192xf32> -> tensor<?x64x192xf32>
      %y, %statistics:2 = zorse.layer_norm %arg6 weight %arg2 bias %arg3 {epsilon = 9.9999997473787516E-6 : f64} : (tensor<?x64x64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<?x64x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
      %2 = zorse.matmul %y, %arg4 {transpose_b} : tensor<?x64x64xf32>, tensor<192x64xf32> -> tensor<?x64x192xf32>
      %3 = arith.addf %2, %1 : tensor<?x64x192xf32>
      %4 = zorse.slice %3 [0, 0, 0] [?, 64, 64] [1, 1, 1] : tensor<?x64x192xf32> -> tensor<?x64x64xf32>
      %5 = zorse.reshape %4 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %6 = zorse.slice %3 [0, 0, 64] [?, 64, 64] [1, 1, 1] : tensor<?x64x192xf32> -> tensor<?x64x64xf32>
      %7 = zorse.reshape %6 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %8 = zorse.slice %3 [0, 0, 128] [?, 64, 64] [1, 1, 1] : tensor<?x64x192xf32> -> tensor<?x64x64xf32>
      %9 = zorse.reshape %8 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %out, %lse = zorse.attention %5, %7, %9 {causal, scale = 2.500000e-01 : f64} : (tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>) -> (tensor<?x64x4x16xf32>, tensor<?x4x64xf32>)
      %10 = zorse.reshape %out : tensor<?x64x4x16xf32> -> tensor<?x64x64xf32>
      %11 = zorse.matmul %10, %arg5 {transpose_b} : tensor<?x64x64xf32>, tensor<64x64xf32> -> tensor<?x64x64xf32>
      %12 = arith.addf %11, %0 : tensor<?x64x64xf32>
      %13 = arith.addf %12, %arg6 : tensor<?x64x64xf32>
      return %13, %statistics#0, %statistics#1, %3, %out, %lse : tensor<?x64x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64x192xf32>, tensor<?x64x4x16xf32>, tensor<?x4x64xf32>
    }
    func.func @backward(%arg0: tensor<64xf32> {zorse.argument = #zorse.argument<parameter, 2>}, %arg1: tensor<64xf32> {zorse.argument = #zorse.argument<parameter, 3>}, %arg2: tensor<192x64xf32> {zorse.argument = #zorse.argument<parameter, 4>}, %arg3: tensor<64x64xf32> {zorse.argument = #zorse.argument<parameter, 5>}, %arg4: tensor<?x64x64xf32> {zorse.argument = #zorse.argument<boundary_in, 0>}, %arg5: tensor<?x64x64xf32> {zorse.argument = #zorse.argument<boundary_out_gradient, 0>}, %arg6: tensor<?x64xf32> {zorse.argument = #zorse.argument<saved, 0>}, %arg7: tensor<?x64xf32> {zorse.argument = #zorse.argument<saved, 1>}, %arg8: tensor<?x64x192xf32> {zorse.argument = #zorse.argument<saved, 2>}, %arg9: tensor<?x64x4x16xf32> {zorse.argument = #zorse.argument<saved, 3>}, %arg10: tensor<?x4x64xf32> {zorse.argument = #zorse.argument<saved, 4>}) -> (tensor<?x64x64xf32> {zorse.argument = #zorse.argument<boundary_in_gradient, 0>}, tensor<64xf32> {zorse.argument = #zorse.argument<parameter_gradient, 0>}, tensor<192xf32> {zorse.argument = #zorse.argument<parameter_gradient, 1>}, tensor<64xf32> {zorse.argument = #zorse.argument<parameter_gradient, 2>}, tensor<64xf32> {zorse.argument = #zorse.argument<parameter_gradient, 3>}, tensor<192x64xf32> {zorse.argument = #zorse.argument<parameter_gradient, 4>}, tensor<64x64xf32> {zorse.argument = #zorse.argument<parameter_gradient, 5>}) {
      %0 = zorse.reshape %arg9 : tensor<?x64x4x16xf32> -> tensor<?x64x64xf32>
      %1 = zorse.matmul_grad_weight %arg5, %0 : tensor<?x64x64xf32>, tensor<?x64x64xf32> -> tensor<64x64xf32>
      %2 = zorse.matmul %arg5, %arg3 : tensor<?x64x64xf32>, tensor<64x64xf32> -> tensor<?x64x64xf32>
      %3 = zorse.reshape %2 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %4 = zorse.slice %arg8 [0, 0, 128] [?, 64, 64] [1, 1, 1] : tensor<?x64x192xf32> -> tensor<?x64x64xf32>
      %5 = zorse.reshape %4 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %6 = zorse.slice %arg8 [0, 0, 64] [?, 64, 64] [1, 1, 1] : tensor<?x64x192xf32> -> tensor<?x64x64xf32>
      %7 = zorse.reshape %6 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %8 = zorse.slice %arg8 [0, 0, 0] [?, 64, 64] [1, 1, 1] : tensor<?x64x192xf32> -> tensor<?x64x64xf32>
      %9 = zorse.reshape %8 : tensor<?x64x64xf32> -> tensor<?x64x4x16xf32>
      %dq, %dk, %dv = zorse.attention_grad %3, %9, %7, %5, %arg9, %arg10 {causal, scale = 2.500000e-01 : f64} : (tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>, tensor<?x4x64xf32>) -> (tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>, tensor<?x64x4x16xf32>)
      %10 = zorse.reshape %dv : tensor<?x64x4x16xf32> -> tensor<?x64x64xf32>
      %11 = zorse.reshape %dk : tensor<?x64x4x16xf32> -> tensor<?x64x64xf32>
      %12 = zorse.reshape %dq : tensor<?x64x4x16xf32> -> tensor<?x64x64xf32>
      %13 = zorse.concat %12, %11, %10 {dim = 2 : i64} : (tensor<?x64x64xf32>, tensor<?x64x64xf32>, tensor<?x64x64xf32>) -> tensor<?x64x192xf32>
      %y = zorse.layer_norm %arg4 weight %arg0 bias %arg1 {epsilon = 9.9999997473787516E-6 : f64} : (tensor<?x64x64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<?x64x64xf32>
      %14 = zorse.matmul_grad_weight %13, %y : tensor<?x64x192xf32>, tensor<?x64x64xf32> -> tensor<192x64xf32>
      %15 = zorse.matmul %13, %arg2 : tensor<?x64x192xf32>, tensor<192x64xf32> -> tensor<?x64x64xf32>
      %dweight, %dbias = zorse.layer_norm_grad_params %15, %arg4, %arg6, %arg7 : (tensor<?x64x64xf32>, tensor<?x64x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>) -> (tensor<64xf32>, tensor<64xf32>)
      %16 = zorse.layer_norm_grad_input %15, %arg4, %arg6, %arg7 weight %arg0 : (tensor<?x64x64xf32>, tensor<?x64x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64x64xf32>
      %17 = arith.addf %arg5, %16 : tensor<?x64x64xf32>
      %18 = zorse.reduce sum %13 dims [0, 1] : tensor<?x64x192xf32> -> tensor<192xf32>
      %19 = zorse.reduce sum %arg5 dims [0, 1] : tensor<?x64x64xf32> -> tensor<64xf32>
      return %17, %19, %18, %dweight, %dbias, %14, %1 : tensor<?x64x64xf32>, tensor<64xf32>, tensor<192xf32>, tensor<64xf32>, tensor<64xf32>, tensor<192x64xf32>, tensor<64x64xf32>
    }
  }
  func.func @update.decay(%main_graph: tensor<?xf32> {zorse.argument = #zorse.argument<state, 0>}, %main_graph_0: tensor<?xf32> {zorse.argument = #zorse.argument<state, 1>}, %main_graph_1: tensor<?xf32> {zorse.argument = #zorse.argument<state, 2>}, %main_graph_2: tensor<f64> {zorse.argument = #zorse.argument<scalars, 0, learning_rate>}, %main_graph_3: tensor<f64> {zorse.argument = #zorse.argument<scalars, 0, clip_factor>}, %main_graph_4: tensor<i64> {zorse.argument = #zorse.argument<scalars, 0, skip>}, %main_graph_5: tensor<f64> {zorse.argument = #zorse.argument<optimizer_step, 0>}) -> (tensor<?xf32> {zorse.argument = #zorse.argument<state, 0>}, tensor<?xf32> {zorse.argument = #zorse.argument<state, 2>}) {
    %main_graph_6 = arith.truncf %main_graph_3 : tensor<f64> to tensor<f32>
    %main_graph_7 = zorse.broadcast %main_graph_6 dims [] : tensor<f32> -> tensor<?xf32>
    %main_graph_8 = arith.mulf %main_graph_0, %main_graph_7 : tensor<?xf32>
    %main_graph_9 = arith.constant dense<1.000000e-01> : tensor<f32>
    %main_graph_10 = zorse.broadcast %main_graph_9 dims [] : tensor<f32> -> tensor<?xf32>
    %main_graph_11 = arith.mulf %main_graph, %main_graph_10 : tensor<?xf32>
    %main_graph_12 = arith.addf %main_graph_8, %main_graph_11 : tensor<?xf32>
    %main_graph_13 = arith.constant dense<1.000000e+00> : tensor<f64>
    %main_graph_14 = arith.cmpf oeq, %main_graph_5, %main_graph_13 : tensor<f64>
    %main_graph_15 = zorse.broadcast %main_graph_14 dims [] : tensor<i1> -> tensor<?xi1>
    %main_graph_16 = arith.constant dense<0.899999976> : tensor<f32>
    %main_graph_17 = zorse.broadcast %main_graph_16 dims [] : tensor<f32> -> tensor<?xf32>
    %main_graph_18 = arith.mulf %main_graph_1, %main_graph_17 : tensor<?xf32>
    %main_graph_19 = arith.addf %main_graph_18, %main_graph_12 : tensor<?xf32>
    %main_graph_20 = arith.select %main_graph_15, %main_graph_12, %main_graph_19 : tensor<?xi1>, tensor<?xf32>
    %main_graph_21 = arith.truncf %main_graph_2 : tensor<f64> to tensor<f32>
    %main_graph_22 = zorse.broadcast %main_graph_21 dims [] : tensor<f32> -> tensor<?xf32>
    %main_graph_23 = arith.mulf %main_graph_20, %main_graph_22 : tensor<?xf32>
    %main_graph_24 = arith.subf %main_graph, %main_graph_23 : tensor<?xf32>
    %main_graph_25 = arith.constant dense<0> : tensor<i64>
    %main_graph_26 = arith.cmpi ne, %main_graph_4, %main_graph_25 : tensor<i64>
    %main_graph_27 = zorse.broadcast %main_graph_26 dims [] : tensor<i1> -> tensor<?xi1>
    %main_graph_28 = arith.select %main_graph_27, %main_graph, %main_graph_24 : tensor<?xi1>, tensor<?xf32>
    %main_graph_29 = zorse.broadcast %main_graph_26 dims [] : tensor<i1> -> tensor<?xi1>
    %main_graph_30 = arith.select %main_graph_29, %main_graph_1, %main_graph_20 : tensor<?xi1>, tensor<?xf32>
    return %main_graph_28, %main_graph_30 : tensor<?xf32>, tensor<?xf32>
  }
}
