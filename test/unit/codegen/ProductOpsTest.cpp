// Compares compiled matmuls and attention with the reference.
#include "CodegenHarness.h"

#include <gtest/gtest.h>

#include <string>

using zorse::test::checkFunctions;
using zorse::test::RunOptions;

// Fully masked rows have equal probabilities. The logarithm of their sum would be absorbed by 3e38.
TEST(CodegenOps, RowsThatAreMaskedAsAWhole) {
  checkFunctions(R"(
func.func @f(%q: tensor<?x6x4x8x$T> {@@boundary_in0}, %k: tensor<?x7x2x8x$T> {@@boundary_in1}, %v: tensor<?x7x2x8x$T> {@@boundary_in2}, %do: tensor<?x6x4x8x$T> {@@boundary_in3}, %m: tensor<?x1x6x7xi1> {@@input0}, %x: tensor<?x6x5x$T> {@@boundary_in4}, %l: tensor<?x6xi64> {@@input1, test.low = 0 : i64, test.high = 5 : i64}, %d: tensor<?x6x$T> {@@boundary_in5})
    -> (tensor<?x6x4x8x$T> {@@boundary_out0}, tensor<?x6x4x8x$T> {@@boundary_in_gradient0}, tensor<?x7x2x8x$T> {@@boundary_in_gradient1}, tensor<?x7x2x8x$T> {@@boundary_in_gradient2}, tensor<?x6x$T> {@@boundary_out1}, tensor<?x6x5x$T> {@@boundary_in_gradient4}) {
  %zero = arith.constant dense<0.0> : tensor<$T>
  %hide = arith.constant dense<-3.0e38> : tensor<$T>
  %none = zorse.broadcast %zero dims [] : tensor<$T> -> tensor<?x1x6x7x$T>
  %all = zorse.broadcast %hide dims [] : tensor<$T> -> tensor<?x1x6x7x$T>
  %some = arith.select %m, %none, %all : tensor<?x1x6x7xi1>, tensor<?x1x6x7x$T>
  %first = zorse.slice %some [0, 0, 0, 0] [?, 1, 2, 7] [1, 1, 1, 1] : tensor<?x1x6x7x$T> -> tensor<?x1x2x7x$T>
  %rest = zorse.broadcast %hide dims [] : tensor<$T> -> tensor<?x1x4x7x$T>
  %a = zorse.concat %first, %rest {dim = 2 : i64} : (tensor<?x1x2x7x$T>, tensor<?x1x4x7x$T>) -> tensor<?x1x6x7x$T>
  %o, %p = zorse.attention %q, %k, %v mask %a {scale = 0.35 : f64} : (tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>, tensor<?x1x6x7x$T>) -> (tensor<?x6x4x8x$T>, tensor<?x4x6x2x$T>)
  %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %p mask %a {scale = 0.35 : f64} : (tensor<?x6x4x8x$T>, tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>, tensor<?x6x4x8x$T>, tensor<?x4x6x2x$T>, tensor<?x1x6x7x$T>) -> (tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>)
  %hides = zorse.broadcast %hide dims [] : tensor<$T> -> tensor<?x6x5x$T>
  %y = arith.addf %x, %hides : tensor<?x6x5x$T>
  %loss, %s = zorse.cross_entropy %y, %l : (tensor<?x6x5x$T>, tensor<?x6xi64>) -> (tensor<?x6x$T>, tensor<?x6x2x$T>)
  %dx = zorse.cross_entropy_grad %d, %y, %l, %s : (tensor<?x6x$T>, tensor<?x6x5x$T>, tensor<?x6xi64>, tensor<?x6x2x$T>) -> tensor<?x6x5x$T>
  return %o, %dq, %dk, %dv, %loss, %dx : tensor<?x6x4x8x$T>, tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>, tensor<?x6x$T>, tensor<?x6x5x$T>
})");
}

TEST(CodegenOps, Products) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x24x$T> {@@boundary_in0}, %w: tensor<24x16x$T> {@@parameter0}, %wt: tensor<16x24x$T> {@@parameter1}, %b: tensor<16x$T> {@@parameter2}, %dy: tensor<?x5x16x$T> {@@boundary_out_gradient0})
    -> (tensor<?x5x16x$T> {@@boundary_out0}, tensor<?x5x16x$T> {@@boundary_out1}, tensor<?x5x24x$T> {@@boundary_in_gradient0}, tensor<24x16x$T> {@@parameter_gradient0}, tensor<16x24x$T> {@@parameter_gradient1}, tensor<16x$T> {@@parameter_gradient2}) {
  %y = zorse.matmul %x, %w : tensor<?x5x24x$T>, tensor<24x16x$T> -> tensor<?x5x16x$T>
  %bb = zorse.broadcast %b dims [2] : tensor<16x$T> -> tensor<?x5x16x$T>
  %z = arith.addf %y, %bb : tensor<?x5x16x$T>
  %yt = zorse.matmul %x, %wt {transpose_b} : tensor<?x5x24x$T>, tensor<16x24x$T> -> tensor<?x5x16x$T>
  %dx = zorse.matmul %dy, %w {transpose_b} : tensor<?x5x16x$T>, tensor<24x16x$T> -> tensor<?x5x24x$T>
  %dw = zorse.matmul_grad_weight %x, %dy : tensor<?x5x24x$T>, tensor<?x5x16x$T> -> tensor<24x16x$T>
  %dwt = zorse.matmul_grad_weight %dy, %x : tensor<?x5x16x$T>, tensor<?x5x24x$T> -> tensor<16x24x$T>
  %db = zorse.reduce sum %dy dims [0, 1] : tensor<?x5x16x$T> -> tensor<16x$T>
  return %z, %yt, %dx, %dw, %dwt, %db : tensor<?x5x16x$T>, tensor<?x5x16x$T>, tensor<?x5x24x$T>, tensor<24x16x$T>, tensor<16x24x$T>, tensor<16x$T>
})");
}

// Unfused attention: batched matmuls over transposed views of slices, unbatched operands, matmuls
// of transposes.
TEST(CodegenOps, BatchedProducts) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %t: tensor<5x9x$T> {@@parameter0})
    -> (tensor<?x5x16x$T> {@@boundary_out0}, tensor<?x48x9x$T> {@@boundary_out1}, tensor<?x16x5x$T> {@@boundary_out2}, tensor<?x2x5x5x$T> {@@boundary_out3}) {
  %q0 = zorse.slice %x [0, 0, 0] [?, 5, 16] [1, 1, 1] : tensor<?x5x48x$T> -> tensor<?x5x16x$T>
  %k0 = zorse.slice %x [0, 0, 16] [?, 5, 16] [1, 1, 1] : tensor<?x5x48x$T> -> tensor<?x5x16x$T>
  %v0 = zorse.slice %x [0, 0, 32] [?, 5, 16] [1, 1, 1] : tensor<?x5x48x$T> -> tensor<?x5x16x$T>
  %q1 = zorse.reshape %q0 : tensor<?x5x16x$T> -> tensor<?x5x2x8x$T>
  %k1 = zorse.reshape %k0 : tensor<?x5x16x$T> -> tensor<?x5x2x8x$T>
  %v1 = zorse.reshape %v0 : tensor<?x5x16x$T> -> tensor<?x5x2x8x$T>
  %q = zorse.transpose %q1 [0, 2, 1, 3] : tensor<?x5x2x8x$T> -> tensor<?x2x5x8x$T>
  %k = zorse.transpose %k1 [0, 2, 1, 3] : tensor<?x5x2x8x$T> -> tensor<?x2x5x8x$T>
  %v = zorse.transpose %v1 [0, 2, 1, 3] : tensor<?x5x2x8x$T> -> tensor<?x2x5x8x$T>
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x2x5x8x$T>, tensor<?x2x5x8x$T> -> tensor<?x2x5x5x$T>
  %p = zorse.softmax %s : tensor<?x2x5x5x$T>
  %o = zorse.matmul %p, %v : tensor<?x2x5x5x$T>, tensor<?x2x5x8x$T> -> tensor<?x2x5x8x$T>
  %ot = zorse.transpose %o [0, 2, 1, 3] : tensor<?x2x5x8x$T> -> tensor<?x5x2x8x$T>
  %or = zorse.reshape %ot : tensor<?x5x2x8x$T> -> tensor<?x5x16x$T>
  %m = zorse.matmul %x, %t {transpose_a} : tensor<?x5x48x$T>, tensor<5x9x$T> -> tensor<?x48x9x$T>
  %vt = zorse.transpose %v0 [0, 2, 1] : tensor<?x5x16x$T> -> tensor<?x16x5x$T>
  return %or, %m, %vt, %s : tensor<?x5x16x$T>, tensor<?x48x9x$T>, tensor<?x16x5x$T>, tensor<?x2x5x5x$T>
})");
}

TEST(CodegenOps, Attention) {
  checkFunctions(R"(
zorse.class @f {
  func.func @forward(%x: tensor<?x6x48x$T> {@@boundary_in0}) -> (tensor<?x6x16x$T> {@@boundary_out0}, tensor<?x6x48x$T> {@@saved0}, tensor<?x6x2x8x$T> {@@saved1}, tensor<?x2x6x$T> {@@saved2}) {
    %h = arith.addf %x, %x : tensor<?x6x48x$T>
    %q0 = zorse.slice %h [0, 0, 0] [?, 6, 16] [1, 1, 1] : tensor<?x6x48x$T> -> tensor<?x6x16x$T>
    %k0 = zorse.slice %h [0, 0, 16] [?, 6, 16] [1, 1, 1] : tensor<?x6x48x$T> -> tensor<?x6x16x$T>
    %v0 = zorse.slice %h [0, 0, 32] [?, 6, 16] [1, 1, 1] : tensor<?x6x48x$T> -> tensor<?x6x16x$T>
    %q = zorse.reshape %q0 : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %k = zorse.reshape %k0 : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %v = zorse.reshape %v0 : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %o, %l = zorse.attention %q, %k, %v {causal, scale = 0.35 : f64, dropout = 0.2 : f64, rng_id = 2 : i64} : (tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>) -> (tensor<?x6x2x8x$T>, tensor<?x2x6x$T>)
    %y = zorse.reshape %o : tensor<?x6x2x8x$T> -> tensor<?x6x16x$T>
    return %y, %h, %o, %l : tensor<?x6x16x$T>, tensor<?x6x48x$T>, tensor<?x6x2x8x$T>, tensor<?x2x6x$T>
  }
  func.func @backward(%h: tensor<?x6x48x$T> {@@saved0}, %o: tensor<?x6x2x8x$T> {@@saved1}, %l: tensor<?x2x6x$T> {@@saved2}, %dy: tensor<?x6x16x$T> {@@boundary_out_gradient0})
      -> (tensor<?x6x48x$T> {@@boundary_in_gradient0}) {
    %q0 = zorse.slice %h [0, 0, 0] [?, 6, 16] [1, 1, 1] : tensor<?x6x48x$T> -> tensor<?x6x16x$T>
    %k0 = zorse.slice %h [0, 0, 16] [?, 6, 16] [1, 1, 1] : tensor<?x6x48x$T> -> tensor<?x6x16x$T>
    %v0 = zorse.slice %h [0, 0, 32] [?, 6, 16] [1, 1, 1] : tensor<?x6x48x$T> -> tensor<?x6x16x$T>
    %q = zorse.reshape %q0 : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %k = zorse.reshape %k0 : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %v = zorse.reshape %v0 : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %do = zorse.reshape %dy : tensor<?x6x16x$T> -> tensor<?x6x2x8x$T>
    %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l {causal, scale = 0.35 : f64, dropout = 0.2 : f64, rng_id = 2 : i64} : (tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x2x6x$T>) -> (tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x6x2x8x$T>)
    %a = zorse.reshape %dq : tensor<?x6x2x8x$T> -> tensor<?x6x16x$T>
    %b = zorse.reshape %dk : tensor<?x6x2x8x$T> -> tensor<?x6x16x$T>
    %c = zorse.reshape %dv : tensor<?x6x2x8x$T> -> tensor<?x6x16x$T>
    %d = zorse.concat %a, %b, %c {dim = 2 : i64} : (tensor<?x6x16x$T>, tensor<?x6x16x$T>, tensor<?x6x16x$T>) -> tensor<?x6x48x$T>
    return %d : tensor<?x6x48x$T>
  }
})");
}

// One query without a stride of its position, and keys that are copies of one key: no matmul
// supports such rows.
TEST(CodegenOps, AttentionOfRowsThatAreNoMatrix) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x2x8x1x$T> {@@boundary_in0}, %y: tensor<?x1x2x8x$T> {@@boundary_in1}, %z: tensor<?x5x2x8x$T> {@@boundary_in2})
    -> (tensor<?x1x2x8x$T> {@@boundary_out0}, tensor<?x6x2x8x$T> {@@boundary_out1}, tensor<?x1x2x8x$T> {@@boundary_out2}, tensor<?x5x2x8x$T> {@@boundary_out3}, tensor<?x5x2x8x$T> {@@boundary_out4}) {
  %q = zorse.transpose %x [0, 3, 1, 2] : tensor<?x2x8x1x$T> -> tensor<?x1x2x8x$T>
  %o, %l = zorse.attention %q, %z, %z {scale = 0.35 : f64} : (tensor<?x1x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>) -> (tensor<?x1x2x8x$T>, tensor<?x2x1x$T>)
  %dq, %dk, %dv = zorse.attention_grad %y, %q, %z, %z, %o, %l {scale = 0.35 : f64} : (tensor<?x1x2x8x$T>, tensor<?x1x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x1x2x8x$T>, tensor<?x2x1x$T>) -> (tensor<?x1x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>)
  %y1 = zorse.reshape %y : tensor<?x1x2x8x$T> -> tensor<?x2x8x$T>
  %r = zorse.broadcast %y1 dims [0, 2, 3] : tensor<?x2x8x$T> -> tensor<?x6x2x8x$T>
  %p = zorse.attention %r, %z, %z {scale = 0.35 : f64} : (tensor<?x6x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>) -> tensor<?x6x2x8x$T>
  return %o, %p, %dq, %dk, %dv : tensor<?x1x2x8x$T>, tensor<?x6x2x8x$T>, tensor<?x1x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>
})");
}

// Masks: boolean and float operands shared by all heads, and the recognized causal mask as a
// tensor.
TEST(CodegenOps, AttentionMasks) {
  checkFunctions(R"(
func.func @f(%q: tensor<?x6x4x8x$T> {@@boundary_in0}, %k: tensor<?x7x2x8x$T> {@@boundary_in1}, %v: tensor<?x7x2x8x$T> {@@boundary_in2}, %m: tensor<?x1x6x7xi1> {@@input0}, %n: tensor<1x4x6x7x$T> {@@parameter0})
    -> (tensor<?x6x4x8x$T> {@@boundary_out0}, tensor<?x6x4x8x$T> {@@boundary_out1}, tensor<?x6x4x8x$T> {@@boundary_out2}) {
  %a = zorse.attention %q, %k, %v mask %m {scale = 0.35 : f64} : (tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>, tensor<?x1x6x7xi1>) -> tensor<?x6x4x8x$T>
  %b = zorse.attention %q, %k, %v mask %n {scale = 0.35 : f64, softcap = 3.0 : f64} : (tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>, tensor<1x4x6x7x$T>) -> tensor<?x6x4x8x$T>
  %cm = zorse.causal_mask {window = 3 : i64} : tensor<6x7xi1>
  %cr = zorse.reshape %cm : tensor<6x7xi1> -> tensor<1x1x6x7xi1>
  %c = zorse.attention %q, %k, %v mask %cr {scale = 0.35 : f64} : (tensor<?x6x4x8x$T>, tensor<?x7x2x8x$T>, tensor<?x7x2x8x$T>, tensor<1x1x6x7xi1>) -> tensor<?x6x4x8x$T>
  return %a, %b, %c : tensor<?x6x4x8x$T>, tensor<?x6x4x8x$T>, tensor<?x6x4x8x$T>
})");
}

// Two-byte values: read directly by matmuls, attention, norms and scatters, through views; results
// of both types.
TEST(CodegenOps, HalfStorage) {
  RunOptions options;
  options.types = {"bf16", "f16"};
  options.tolerance32 = 1.0 / 128; // sums in f32 and f64 may be rounded to neighboring numbers
  checkFunctions(R"(
func.func @products(%x: tensor<?x6x40x$T> {@@boundary_in0}, %w: tensor<40x56x$T> {@@parameter0}, %v: tensor<24x40x$T> {@@parameter1}, %d: tensor<?x6x56x$T> {@@boundary_in1}, %g: tensor<40xf32> {@@parameter2})
    -> (tensor<?x6x56xf32> {@@boundary_out0}, tensor<?x6x24x$T> {@@boundary_out1}, tensor<40x56xf32> {@@parameter_gradient0}, tensor<?x6x40x$T> {@@boundary_in_gradient0}, tensor<?x40x6xf32> {@@boundary_out2}) {
  %a = zorse.matmul %x, %w : tensor<?x6x40x$T>, tensor<40x56x$T> -> tensor<?x6x56xf32>
  %b = zorse.matmul %x, %v {transpose_b} : tensor<?x6x40x$T>, tensor<24x40x$T> -> tensor<?x6x24x$T>
  %dw = zorse.matmul_grad_weight %x, %d : tensor<?x6x40x$T>, tensor<?x6x56x$T> -> tensor<40x56xf32>
  %dx = zorse.matmul %d, %w {transpose_b} : tensor<?x6x56x$T>, tensor<40x56x$T> -> tensor<?x6x40x$T>
  %e = arith.extf %x : tensor<?x6x40x$T> to tensor<?x6x40xf32>
  %n = zorse.rms_norm %e weight %g {epsilon = 1.0e-5 : f64} : (tensor<?x6x40xf32>, tensor<40xf32>) -> tensor<?x6x40xf32>
  %t = zorse.transpose %n [0, 2, 1] : tensor<?x6x40xf32> -> tensor<?x40x6xf32>
  return %a, %b, %dw, %dx, %t : tensor<?x6x56xf32>, tensor<?x6x24x$T>, tensor<40x56xf32>, tensor<?x6x40x$T>, tensor<?x40x6xf32>
}
func.func @attention(%x: tensor<?x7x6x8x$T> {@@boundary_in0}, %do: tensor<?x7x4x8x$T> {@@boundary_in1}, %m: tensor<1x1x7x7xi1> {@@parameter0})
    -> (tensor<?x7x4x8x$T> {@@boundary_out0}, tensor<?x7x6x8x$T> {@@boundary_out1}, tensor<?x7x4x8xf32> {@@boundary_out2}) {
  %q = zorse.slice %x [0, 0, 0, 0] [?, 7, 4, 8] [1, 1, 1, 1] : tensor<?x7x6x8x$T> -> tensor<?x7x4x8x$T>
  %k = zorse.slice %x [0, 0, 4, 0] [?, 7, 1, 8] [1, 1, 1, 1] : tensor<?x7x6x8x$T> -> tensor<?x7x1x8x$T>
  %v = zorse.slice %x [0, 0, 5, 0] [?, 7, 1, 8] [1, 1, 1, 1] : tensor<?x7x6x8x$T> -> tensor<?x7x1x8x$T>
  %o, %l = zorse.attention %q, %k, %v {causal, scale = 0.35 : f64} : (tensor<?x7x4x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x1x8x$T>) -> (tensor<?x7x4x8x$T>, tensor<?x4x7xf32>)
  %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l {causal, scale = 0.35 : f64} : (tensor<?x7x4x8x$T>, tensor<?x7x4x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x4x8x$T>, tensor<?x4x7xf32>) -> (tensor<?x7x4x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x1x8x$T>)
  %dx = zorse.concat %dq, %dk, %dv {dim = 2 : i64} : (tensor<?x7x4x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x1x8x$T>) -> tensor<?x7x6x8x$T>
  %wq, %wk, %wv = zorse.attention_grad %do, %q, %k, %v, %o, %l {causal, scale = 0.35 : f64} : (tensor<?x7x4x8x$T>, tensor<?x7x4x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x1x8x$T>, tensor<?x7x4x8x$T>, tensor<?x4x7xf32>) -> (tensor<?x7x4x8xf32>, tensor<?x7x1x8xf32>, tensor<?x7x1x8xf32>)
  return %o, %dx, %wq : tensor<?x7x4x8x$T>, tensor<?x7x6x8x$T>, tensor<?x7x4x8xf32>
})",
                 options);
}

// f32 gradients that are added to existing values, with heads that fill a part of their tile and
// that two blocks share.
TEST(CodegenOps, AttentionAddsGradients) {
  RunOptions options;
  options.types = {"bf16"};
  options.rows = {1, 2};
  options.tolerance32 = 1.0 / 64;
  for (const std::string size : {"40", "200"}) {
    std::string text = R"(
func.func @f(%q: tensor<?x19x2xDx$T> {@@boundary_in0}, %k: tensor<?x37x1xDx$T> {@@boundary_in1}, %v: tensor<?x37x1xDx$T> {@@boundary_in2}, %do: tensor<?x19x2xDx$T> {@@boundary_in3})
    -> (tensor<?x19x2xDxf32> {@@boundary_in_gradient0}, tensor<?x37x1xDxf32> {@@boundary_in_gradient1}, tensor<?x37x1xDxf32> {@@boundary_in_gradient2}, tensor<?x19x2xDxf32> {@@boundary_out0}) {
  %e = arith.extf %do : tensor<?x19x2xDx$T> to tensor<?x19x2xDxf32>
  %n = arith.negf %e : tensor<?x19x2xDxf32>
  %o, %l = zorse.attention %q, %k, %v {causal, scale = 0.1 : f64} : (tensor<?x19x2xDx$T>, tensor<?x37x1xDx$T>, tensor<?x37x1xDx$T>) -> (tensor<?x19x2xDx$T>, tensor<?x2x19xf32>)
  %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l {causal, scale = 0.1 : f64} : (tensor<?x19x2xDx$T>, tensor<?x19x2xDx$T>, tensor<?x37x1xDx$T>, tensor<?x37x1xDx$T>, tensor<?x19x2xDx$T>, tensor<?x2x19xf32>) -> (tensor<?x19x2xDxf32>, tensor<?x37x1xDxf32>, tensor<?x37x1xDxf32>)
  return %dq, %dk, %dv, %n : tensor<?x19x2xDxf32>, tensor<?x37x1xDxf32>, tensor<?x37x1xDxf32>, tensor<?x19x2xDxf32>
})";
    for (size_t at; (at = text.find("xDx")) != std::string::npos;)
      text.replace(at + 1, 1, size);
    checkFunctions(text, options);
  }
}
