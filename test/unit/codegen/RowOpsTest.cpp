// Compares compiled operations on rows with the reference: norms, softmax, cross entropy, and
// operations that select rows or elements by index.
#include "CodegenHarness.h"

#include <gtest/gtest.h>

#include <string>

using zorse::test::checkFunctions;

// Row-wise ops in one kernel with the ops around them: the residual stream of a transformer.
TEST(CodegenOps, ResidualLayerNorm) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %h: tensor<?x5x48x$T> {@@boundary_in1}, %g: tensor<48x$T> {@@parameter0}, %b: tensor<48x$T> {@@parameter1})
    -> (tensor<?x5x48x$T> {@@boundary_out0}, tensor<?x5x48x$T> {@@boundary_out1}, tensor<?x5x$T> {@@saved0}, tensor<?x5x$T> {@@saved1}) {
  %s = arith.addf %x, %h : tensor<?x5x48x$T>
  %y, %m, %r = zorse.layer_norm %s weight %g bias %b {epsilon = 1.0e-5 : f64} : (tensor<?x5x48x$T>, tensor<48x$T>, tensor<48x$T>) -> (tensor<?x5x48x$T>, tensor<?x5x$T>, tensor<?x5x$T>)
  return %s, %y, %m, %r : tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x$T>, tensor<?x5x$T>
})");
}

TEST(CodegenOps, LayerNormGradients) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %dy: tensor<?x5x48x$T> {@@boundary_out_gradient0}, %m: tensor<?x5x$T> {@@saved0}, %r: tensor<?x5x$T> {@@saved1},
             %g: tensor<48x$T> {@@parameter0})
    -> (tensor<?x5x48x$T> {@@boundary_in_gradient0}, tensor<48x$T> {@@parameter_gradient0}, tensor<48x$T> {@@parameter_gradient1}) {
  %dx = zorse.layer_norm_grad_input %dy, %x, %m, %r weight %g : (tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x$T>, tensor<?x5x$T>, tensor<48x$T>) -> tensor<?x5x48x$T>
  %dg, %db = zorse.layer_norm_grad_params %dy, %x, %m, %r : (tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x$T>, tensor<?x5x$T>) -> (tensor<48x$T>, tensor<48x$T>)
  %all = arith.addf %dx, %dy : tensor<?x5x48x$T>
  return %all, %dg, %db : tensor<?x5x48x$T>, tensor<48x$T>, tensor<48x$T>
})");
}

// Only the parts of an expanded operation that are read remain: a trained weight with a frozen
// bias, and the reverse.
TEST(CodegenOps, GradientsThatNobodyReads) {
  for (const char *read : {"%dg", "%db"})
    checkFunctions(std::string(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %dy: tensor<?x5x48x$T> {@@boundary_out_gradient0}, %m: tensor<?x5x$T> {@@saved0}, %r: tensor<?x5x$T> {@@saved1},
             %g: tensor<48x$T> {@@parameter0})
    -> (tensor<?x5x48x$T> {@@boundary_in_gradient0}, tensor<48x$T> {@@parameter_gradient0}) {
  %dx = zorse.layer_norm_grad_input %dy, %x, %m, %r weight %g : (tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x$T>, tensor<?x5x$T>, tensor<48x$T>) -> tensor<?x5x48x$T>
  %dg, %db = zorse.layer_norm_grad_params %dy, %x, %m, %r : (tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x$T>, tensor<?x5x$T>) -> (tensor<48x$T>, tensor<48x$T>)
  return %dx, )") + read +
                   R"( : tensor<?x5x48x$T>, tensor<48x$T>
})");
}

TEST(CodegenOps, RmsNorm) {
  checkFunctions(R"(
zorse.class @f {
  func.func @forward(%x: tensor<?x5x40x$T> {@@boundary_in0}, %g: tensor<40x$T> {@@parameter0}) -> (tensor<?x5x40x$T> {@@boundary_out0}, tensor<?x5x$T> {@@saved0}) {
    %y, %r = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : (tensor<?x5x40x$T>, tensor<40x$T>) -> (tensor<?x5x40x$T>, tensor<?x5x$T>)
    return %y, %r : tensor<?x5x40x$T>, tensor<?x5x$T>
  }
  func.func @backward(%x: tensor<?x5x40x$T> {@@boundary_in0}, %dy: tensor<?x5x40x$T> {@@boundary_out_gradient0}, %r: tensor<?x5x$T> {@@saved0}, %g: tensor<40x$T> {@@parameter0})
      -> (tensor<?x5x40x$T> {@@boundary_in_gradient0}, tensor<40x$T> {@@parameter_gradient0}) {
    %dx = zorse.rms_norm_grad_input %dy, %x, %r weight %g : (tensor<?x5x40x$T>, tensor<?x5x40x$T>, tensor<?x5x$T>, tensor<40x$T>) -> tensor<?x5x40x$T>
    %dg = zorse.rms_norm_grad_params %dy, %x, %r : (tensor<?x5x40x$T>, tensor<?x5x40x$T>, tensor<?x5x$T>) -> tensor<40x$T>
    return %dx, %dg : tensor<?x5x40x$T>, tensor<40x$T>
  }
})");
}

TEST(CodegenOps, Softmaxes) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x3x4x37x$T> {@@boundary_in0}, %d: tensor<?x3x4x37x$T> {@@boundary_in1})
    -> (tensor<?x3x4x37x$T> {@@boundary_out0}, tensor<?x3x4x37x$T> {@@boundary_out1}, tensor<?x3x4x37x$T> {@@boundary_out2}, tensor<?x3x4x37x$T> {@@boundary_out3}) {
  %y = zorse.softmax %x : tensor<?x3x4x37x$T>
  %l = zorse.log_softmax %x : tensor<?x3x4x37x$T>
  %dy = zorse.softmax_grad %y, %d : tensor<?x3x4x37x$T>
  %dl = zorse.log_softmax_grad %l, %d : tensor<?x3x4x37x$T>
  return %y, %l, %dy, %dl : tensor<?x3x4x37x$T>, tensor<?x3x4x37x$T>, tensor<?x3x4x37x$T>, tensor<?x3x4x37x$T>
})");
}

TEST(CodegenOps, CrossEntropy) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x6x50x$T> {@@boundary_in0}, %l: tensor<?x6xi64> {@@input0, test.low = -1 : i64, test.high = 50 : i64}, %w: tensor<50x$T> {@@parameter0}, %seed: tensor<f64> {@@scalars0})
    -> (tensor<?x$T> {@@loss0}, tensor<?x6x50x$T> {@@boundary_in_gradient0}, tensor<?x6x$T> {@@boundary_out1}) {
  %loss, %st = zorse.cross_entropy %x, %l weights %w {ignore_index = -1 : i64} : (tensor<?x6x50x$T>, tensor<?x6xi64>, tensor<50x$T>) -> (tensor<?x6x$T>, tensor<?x6x2x$T>)
  %sum = zorse.reduce sum %loss dims [1] : tensor<?x6x$T> -> tensor<?x$T>
  $CAST
  %db = zorse.broadcast %s dims [] : tensor<$T> -> tensor<?x6x$T>
  %d = zorse.cross_entropy_grad %db, %x, %l, %st weights %w {ignore_index = -1 : i64} : (tensor<?x6x$T>, tensor<?x6x50x$T>, tensor<?x6xi64>, tensor<?x6x2x$T>, tensor<50x$T>) -> tensor<?x6x50x$T>
  return %sum, %d, %loss : tensor<?x$T>, tensor<?x6x50x$T>, tensor<?x6x$T>
})");
}

TEST(CodegenOps, TakeAndGather) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x6x50x$T> {@@boundary_in0}, %l: tensor<?x6xi64> {@@input0, test.high = 50 : i64}, %t: tensor<50x24x$T> {@@parameter0}, %p: tensor<6x24x$T> {@@parameter1},
             %d: tensor<?x6x$T> {@@boundary_in1}, %i: tensor<?x6xi32> {@@input1, test.high = 50 : i64}, %v: tensor<50x$T> {@@parameter2})
    -> (tensor<?x6x$T> {@@boundary_out0}, tensor<?x6x$T> {@@boundary_out1}, tensor<?x6x24x$T> {@@boundary_out2}, tensor<?x6x50x$T> {@@boundary_out3}, tensor<?x6x$T> {@@boundary_out4}) {
  %a = zorse.take_along_dim %x, %l : tensor<?x6x50x$T>, tensor<?x6xi64> -> tensor<?x6x$T>
  %lp = zorse.log_softmax %x : tensor<?x6x50x$T>
  %b = zorse.take_along_dim %lp, %i : tensor<?x6x50x$T>, tensor<?x6xi32> -> tensor<?x6x$T>
  %e = zorse.gather %t, %l : tensor<50x24x$T>, tensor<?x6xi64> -> tensor<?x6x24x$T>
  %pb = zorse.broadcast %p dims [1, 2] : tensor<6x24x$T> -> tensor<?x6x24x$T>
  %c = arith.addf %e, %pb : tensor<?x6x24x$T>
  %g = zorse.take_along_dim_grad %d, %l : tensor<?x6x$T>, tensor<?x6xi64> -> tensor<?x6x50x$T>
  %h = zorse.gather %v, %i : tensor<50x$T>, tensor<?x6xi32> -> tensor<?x6x$T>
  return %a, %b, %c, %g, %h : tensor<?x6x$T>, tensor<?x6x$T>, tensor<?x6x24x$T>, tensor<?x6x50x$T>, tensor<?x6x$T>
})");
}

// Takes from vectors of one element; the leading dimensions are larger.
TEST(CodegenOps, TakeOfOneElement) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x6x1x$T> {@@boundary_in0}, %l: tensor<?x6xi64> {@@input0, test.high = 1 : i64}, %d: tensor<?x6x$T> {@@boundary_in1})
    -> (tensor<?x6x$T> {@@boundary_out0}, tensor<?x6x$T> {@@boundary_out1}, tensor<?x6x1x$T> {@@boundary_out2}, tensor<?x6x$T> {@@boundary_out3}) {
  %a = zorse.take_along_dim %x, %l : tensor<?x6x1x$T>, tensor<?x6xi64> -> tensor<?x6x$T>
  %zero = arith.constant dense<0> : tensor<i64>
  %first = zorse.broadcast %zero dims [] : tensor<i64> -> tensor<?x6xi64>
  %c = zorse.take_along_dim %x, %first : tensor<?x6x1x$T>, tensor<?x6xi64> -> tensor<?x6x$T>
  %s = arith.addf %x, %x : tensor<?x6x1x$T>
  %b = zorse.take_along_dim %s, %l : tensor<?x6x1x$T>, tensor<?x6xi64> -> tensor<?x6x$T>
  %g = zorse.take_along_dim_grad %d, %l : tensor<?x6x$T>, tensor<?x6xi64> -> tensor<?x6x1x$T>
  return %a, %b, %g, %c : tensor<?x6x$T>, tensor<?x6x$T>, tensor<?x6x1x$T>, tensor<?x6x$T>
})");
}

// Rows of one column need no sum.
TEST(CodegenOps, RowsOfOneElement) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x6x1x$T> {@@boundary_in0}, %l: tensor<?x6xi64> {@@input0, test.low = -1 : i64, test.high = 1 : i64}, %g: tensor<1x$T> {@@parameter0})
    -> (tensor<?x6x1x$T> {@@boundary_out0}, tensor<?x6x1x$T> {@@boundary_out1}, tensor<?x6x2x$T> {@@boundary_out2}, tensor<?x6x$T> {@@boundary_out3}) {
  %s = zorse.softmax %x : tensor<?x6x1x$T>
  %n, %r = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : (tensor<?x6x1x$T>, tensor<1x$T>) -> (tensor<?x6x1x$T>, tensor<?x6x$T>)
  %e, %m = zorse.cross_entropy %x, %l {ignore_index = -1 : i64} : (tensor<?x6x1x$T>, tensor<?x6xi64>) -> (tensor<?x6x$T>, tensor<?x6x2x$T>)
  return %s, %n, %m, %e : tensor<?x6x1x$T>, tensor<?x6x1x$T>, tensor<?x6x2x$T>, tensor<?x6x$T>
})");
}

TEST(CodegenOps, EmbeddingGradients) {
  checkFunctions(R"(
func.func @f(%dy: tensor<?x6x72x$T> {@@boundary_out_gradient0}, %l: tensor<?x6xi64> {@@input0, test.high = 9 : i64})
    -> (tensor<9x72x$T> {@@parameter_gradient0}, tensor<6x72x$T> {@@parameter_gradient1}, tensor<9x2x36x$T> {@@parameter_gradient2}, tensor<9x72x$T> {@@parameter_gradient3}) {
  %q = zorse.scatter_add %l, %dy {padding = 4 : i64} : tensor<?x6xi64>, tensor<?x6x72x$T> -> tensor<9x72x$T>
  %t = zorse.scatter_add %l, %dy : tensor<?x6xi64>, tensor<?x6x72x$T> -> tensor<9x72x$T>
  %p = zorse.reduce sum %dy dims [0] : tensor<?x6x72x$T> -> tensor<6x72x$T>
  %r = zorse.reshape %dy : tensor<?x6x72x$T> -> tensor<?x6x2x36x$T>
  %u = zorse.scatter_add %l, %r : tensor<?x6xi64>, tensor<?x6x2x36x$T> -> tensor<9x2x36x$T>
  return %t, %p, %u, %q : tensor<9x72x$T>, tensor<6x72x$T>, tensor<9x2x36x$T>, tensor<9x72x$T>
})");
}
