// Compares compiled operations with the reference, combined with views, fusion and accumulation:
// elementwise operations, reductions, views, updates, roundings and whole blocks. RowOpsTest.cpp
// and ProductOpsTest.cpp test the others.
#include "CodegenHarness.h"
#include "UpdateText.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

using zorse::test::checkFunctions;
using zorse::test::RunOptions;

TEST(CodegenOps, Elementwise) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %b: tensor<48x$T> {@@parameter0}) -> (tensor<?x5x48x$T> {@@boundary_out0}, tensor<?x5x48x$T> {@@boundary_out1}) {
  %bb = zorse.broadcast %b dims [2] : tensor<48x$T> -> tensor<?x5x48x$T>
  %s = arith.addf %x, %bb : tensor<?x5x48x$T>
  %t = math.tanh %s : tensor<?x5x48x$T>
  %e = math.exp %t : tensor<?x5x48x$T>
  %m = arith.mulf %e, %x : tensor<?x5x48x$T>
  return %m, %s : tensor<?x5x48x$T>, tensor<?x5x48x$T>
})");
}

// More results than bits in the mask of results that a kernel adds to.
TEST(CodegenOps, GradientsOfManySlices) {
  std::ostringstream results, lines, values, types;
  for (int i = 0; i < 70; ++i) {
    const char *comma = i ? ", " : "";
    results << comma << "tensor<1x4x$T> {@@parameter_gradient" << i << "}";
    lines << "  %s" << i << " = zorse.slice %w [" << i
          << ", 0] [1, 4] [1, 1] : tensor<70x4x$T> -> tensor<1x4x$T>\n";
    lines << "  %m" << i << " = arith.mulf %s" << i << ", %s" << i << " : tensor<1x4x$T>\n";
    values << comma << "%m" << i;
    types << comma << "tensor<1x4x$T>";
  }
  RunOptions options;
  options.rows = {2};
  checkFunctions("func.func @f(%w: tensor<70x4x$T> {@@parameter0}) -> (" + results.str() + ") {\n" +
                     lines.str() + "  return " + values.str() + " : " + types.str() + "\n}\n",
                 options);
}

TEST(CodegenOps, Activations) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x300x$T> {@@boundary_in0}, %d: tensor<?x300x$T> {@@boundary_in1})
    -> (tensor<?x300x$T> {@@boundary_out0}, tensor<?x300x$T> {@@boundary_out1}, tensor<?x300x$T> {@@boundary_out2}, tensor<?x300x$T> {@@boundary_out3}, tensor<?x300x$T> {@@boundary_out4}, tensor<?x300x$T> {@@boundary_out5}) {
  %a = zorse.gelu %x : tensor<?x300x$T>
  %b = zorse.gelu %x {approximate} : tensor<?x300x$T>
  %c = zorse.silu %x : tensor<?x300x$T>
  %da = zorse.gelu_grad %x, %d : tensor<?x300x$T>
  %db = zorse.gelu_grad %x, %d {approximate} : tensor<?x300x$T>
  %dc = zorse.silu_grad %x, %d : tensor<?x300x$T>
  return %a, %b, %c, %da, %db, %dc : tensor<?x300x$T>, tensor<?x300x$T>, tensor<?x300x$T>, tensor<?x300x$T>, tensor<?x300x$T>, tensor<?x300x$T>
})");
}

TEST(CodegenOps, Reductions) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x7x$T> {@@boundary_in0}, %u: tensor<5x7x$T> {@@parameter7})
    -> (tensor<7x$T> {@@parameter_gradient0}, tensor<5x$T> {@@parameter_gradient1}, tensor<$T> {@@parameter_gradient2}, tensor<5x7x$T> {@@parameter_gradient3},
        tensor<?x7x$T> {@@boundary_out0}, tensor<?x5x$T> {@@boundary_out1}, tensor<?x$T> {@@boundary_out2}, tensor<?x5x$T> {@@boundary_out3}, tensor<?x7x$T> {@@boundary_out4},
        tensor<$T> {@@boundary_out5}, tensor<?x5x$T> {@@boundary_out6}, tensor<7x$T> {@@boundary_out7}) {
  %a = zorse.reduce sum %x dims [0, 1] : tensor<?x5x7x$T> -> tensor<7x$T>
  %b = zorse.reduce sum %x dims [0, 2] : tensor<?x5x7x$T> -> tensor<5x$T>
  %c = zorse.reduce sum %x dims [0, 1, 2] : tensor<?x5x7x$T> -> tensor<$T>
  %d = zorse.reduce sum %x dims [0] : tensor<?x5x7x$T> -> tensor<5x7x$T>
  %e = zorse.reduce sum %x dims [1] : tensor<?x5x7x$T> -> tensor<?x7x$T>
  %f = zorse.reduce max %x dims [2] : tensor<?x5x7x$T> -> tensor<?x5x$T>
  %g = zorse.reduce min %x dims [1, 2] : tensor<?x5x7x$T> -> tensor<?x$T>
  %h = zorse.reduce prod %x dims [2] : tensor<?x5x7x$T> -> tensor<?x5x$T>
  %i = zorse.reduce max %x dims [1] : tensor<?x5x7x$T> -> tensor<?x7x$T>
  %j = zorse.reduce sum %u dims [0, 1] : tensor<5x7x$T> -> tensor<$T>
  %k = zorse.reduce sum %x dims [2] : tensor<?x5x7x$T> -> tensor<?x5x$T>
  %l = zorse.reduce max %u dims [0] : tensor<5x7x$T> -> tensor<7x$T>
  return %a, %b, %c, %d, %e, %f, %g, %h, %i, %j, %k, %l : tensor<7x$T>, tensor<5x$T>, tensor<$T>, tensor<5x7x$T>, tensor<?x7x$T>, tensor<?x5x$T>, tensor<?x$T>, tensor<?x5x$T>, tensor<?x7x$T>, tensor<$T>, tensor<?x5x$T>, tensor<7x$T>
})");
}

TEST(CodegenOps, Views) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x4x6x$T> {@@boundary_in0}, %y: tensor<?x4x3x$T> {@@boundary_in1})
    -> (tensor<?x6x4x$T> {@@boundary_out0}, tensor<?x24x$T> {@@boundary_out1}, tensor<?x4x9x$T> {@@boundary_out2}, tensor<?x2x3x$T> {@@boundary_out3}, tensor<?x4x6x$T> {@@boundary_out4}, tensor<?x4x9x$T> {@@saved0}, tensor<?x24x$T> {@@boundary_out5}) {
  %t = zorse.transpose %x [0, 2, 1] : tensor<?x4x6x$T> -> tensor<?x6x4x$T>
  %e = math.exp %t : tensor<?x6x4x$T>
  %r = zorse.reshape %t : tensor<?x6x4x$T> -> tensor<?x24x$T>
  %n = arith.negf %r : tensor<?x24x$T>
  %xy = arith.mulf %x, %x : tensor<?x4x6x$T>
  %c = zorse.concat %xy, %y {dim = 2 : i64} : (tensor<?x4x6x$T>, tensor<?x4x3x$T>) -> tensor<?x4x9x$T>
  %s = zorse.slice %x [0, 1, 0] [?, 2, 3] [1, 2, 2] : tensor<?x4x6x$T> -> tensor<?x2x3x$T>
  %er = zorse.reshape %e : tensor<?x6x4x$T> -> tensor<?x24x$T>
  return %e, %n, %c, %s, %x, %c, %er : tensor<?x6x4x$T>, tensor<?x24x$T>, tensor<?x4x9x$T>, tensor<?x2x3x$T>, tensor<?x4x6x$T>, tensor<?x4x9x$T>, tensor<?x24x$T>
})");
}

TEST(CodegenOps, Rope) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %c: tensor<5x4x$T> {@@parameter0}, %s: tensor<5x4x$T> {@@parameter1}, %cr: tensor<?x5x4x$T> {@@input0}, %sr: tensor<?x5x4x$T> {@@input1})
    -> (tensor<?x5x2x8x$T> {@@boundary_out0}, tensor<?x5x2x8x$T> {@@boundary_out1}, tensor<?x5x2x8x$T> {@@boundary_out2}, tensor<?x5x2x8x$T> {@@boundary_out3}) {
  %q0 = zorse.slice %x [0, 0, 16] [?, 5, 16] [1, 1, 1] : tensor<?x5x48x$T> -> tensor<?x5x16x$T>
  %q = zorse.reshape %q0 : tensor<?x5x16x$T> -> tensor<?x5x2x8x$T>
  %a = zorse.rope %q, %c, %s : (tensor<?x5x2x8x$T>, tensor<5x4x$T>, tensor<5x4x$T>) -> tensor<?x5x2x8x$T>
  %b = zorse.rope %q, %c, %s {interleaved} : (tensor<?x5x2x8x$T>, tensor<5x4x$T>, tensor<5x4x$T>) -> tensor<?x5x2x8x$T>
  %i = zorse.rope %q, %cr, %sr {inverse} : (tensor<?x5x2x8x$T>, tensor<?x5x4x$T>, tensor<?x5x4x$T>) -> tensor<?x5x2x8x$T>
  %j = zorse.rope %q, %cr, %sr {inverse, interleaved} : (tensor<?x5x2x8x$T>, tensor<?x5x4x$T>, tensor<?x5x4x$T>) -> tensor<?x5x2x8x$T>
  return %a, %b, %i, %j : tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>, tensor<?x5x2x8x$T>
})");
}

TEST(CodegenOps, RunningStatIsTheRunningStatisticInEvaluation) {
  static const char *const runningStat = R"(
func.func @f(%x: tensor<?x48x$T> {@@boundary_in0}, %r: tensor<48x$T> {@@parameter0}) -> (tensor<?x48x$T> {@@boundary_out0}) {
  %t = zorse.running_stat %x, %r {correction = 1.25 : f64, momentum = 0.1 : f64} : tensor<?x48x$T>, tensor<48x$T>
  %y = arith.mulf %t, %x : tensor<?x48x$T>
  return %y : tensor<?x48x$T>
})";
  checkFunctions(runningStat);
  RunOptions options;
  options.evaluation = true;
  checkFunctions(runningStat, options);
}

// Alone, among other values, and after a sum.
TEST(CodegenOps, NumbersOfSamples) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}) -> (tensor<?x5x48x$T> {@@boundary_out0}, tensor<?x$T> {@@boundary_out1}, tensor<?x$T> {@@boundary_out2}) {
  %i = zorse.sample_number : tensor<?xi64>
  %n = arith.sitofp %i : tensor<?xi64> to tensor<?x$T>
  %b = zorse.broadcast %n dims [0] : tensor<?x$T> -> tensor<?x5x48x$T>
  %y = arith.mulf %x, %b : tensor<?x5x48x$T>
  %s = zorse.reduce sum %x dims [1, 2] : tensor<?x5x48x$T> -> tensor<?x$T>
  %z = arith.mulf %s, %n : tensor<?x$T>
  return %y, %n, %z : tensor<?x5x48x$T>, tensor<?x$T>, tensor<?x$T>
})");
}

static const char *const kDropout = R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %y: tensor<?x5x48x$T> {@@boundary_in1}) -> (tensor<?x5x48x$T> {@@boundary_out0}, tensor<?x5x48x$T> {@@boundary_out1}) {
  %d = zorse.dropout %x {probability = 0.4 : f64, rng_id = 3 : i64} : tensor<?x5x48x$T>
  %s = arith.addf %d, %y : tensor<?x5x48x$T>
  %n = zorse.rms_norm %s {epsilon = 1.0e-5 : f64} : (tensor<?x5x48x$T>) -> tensor<?x5x48x$T>
  return %s, %n : tensor<?x5x48x$T>, tensor<?x5x48x$T>
})";

TEST(CodegenOps, Dropout) { checkFunctions(kDropout); }

TEST(CodegenOps, DropoutIsTheIdentityInEvaluation) {
  RunOptions options;
  options.evaluation = true;
  checkFunctions(kDropout, options);
}

static std::string updateFunction(const zorse::test::OptimizerCase &optimizer,
                                  const std::string &element, double skip) {
  const zorse::test::UpdateText body =
      zorse::test::updateText(optimizer.training(), optimizer.weightDecay, element);
  const std::string state = "tensor<?x" + element + ">";
  std::string arguments, results, types, values;
  for (int i = 0; i < 2 + body.states; ++i) {
    const bool positive = std::count(optimizer.positive.begin(), optimizer.positive.end(), i - 2);
    arguments += "%arg" + std::to_string(i) + ": " + state + " {@@state" + std::to_string(i) +
                 (positive ? ", test.positive}, " : "}, ");
  }
  const std::string scalars[] = {"f64> {@@learning_rate0, test.value = 0.01 : f64}",
                                 "f64> {@@clip_factor0, test.value = 0.5 : f64}",
                                 "i64> {@@skip0, test.value = " + std::to_string(skip) + " : f64}",
                                 "f64> {@@optimizer_step0, test.value = 3.0 : f64}"};
  for (int i = 0; i < 4; ++i)
    arguments += (i ? ", %arg" : "%arg") + std::to_string(2 + body.states + i) + ": tensor<" +
                 scalars[i];
  for (size_t r = 0; r < body.results.size(); ++r) {
    const std::string comma = r ? ", " : "";
    results += comma + state + " {@@state" + std::to_string(r ? r + 1 : 0) + "}";
    types += comma + state;
    values += comma + body.results[r];
  }
  return "func.func @f(" + arguments + ") -> (" + results + ") {\n" + body.lines + "  return " +
         values + " : " + types + "\n}";
}

TEST(CodegenOps, Updates) {
  RunOptions options;
  options.rows = {1, 2, 15, 16, 17, 33, 1000, 4099};
  for (const zorse::test::OptimizerCase &optimizer : zorse::test::optimizerCases())
    for (const char *element : {"f32", "f64"})
      for (double skip : {0.0, 1.0}) {
        SCOPED_TRACE(optimizer.name);
        options.types = {element};
        checkFunctions(updateFunction(optimizer, element, skip), options);
      }
}

// Unbatched values, constants (splat and not), scalars, booleans, integers.
TEST(CodegenOps, UnsampledAndIntegers) {
  checkFunctions(R"(
func.func @f(%l: tensor<?x6xi64> {@@input0, test.low = -1 : i64, test.high = 4 : i64}, %g: tensor<6x$T> {@@parameter0}, %x: tensor<?x6x$T> {@@boundary_in0})
    -> (tensor<?x$T> {@@loss0}, tensor<?x6x$T> {@@boundary_out0}, tensor<?x6xi1> {@@boundary_out1}, tensor<2x3x$T> {@@parameter_gradient0}, tensor<?x6xi64> {@@boundary_out2}) {
  %i = arith.constant dense<-1> : tensor<i64>
  %ib = zorse.broadcast %i dims [] : tensor<i64> -> tensor<?x6xi64>
  %v = arith.cmpi ne, %l, %ib : tensor<?x6xi64>
  %f = arith.uitofp %v : tensor<?x6xi1> to tensor<?x6x$T>
  %n = zorse.reduce sum %f dims [1] : tensor<?x6x$T> -> tensor<?x$T>
  %t = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6x$T>
  %g1 = arith.addf %g, %t : tensor<6x$T>
  %gb = zorse.broadcast %g1 dims [1] : tensor<6x$T> -> tensor<?x6x$T>
  %y = arith.mulf %x, %gb : tensor<?x6x$T>
  %z = arith.select %v, %y, %x : tensor<?x6xi1>, tensor<?x6x$T>
  %r = zorse.reshape %g1 : tensor<6x$T> -> tensor<2x3x$T>
  %s = zorse.slice %t [2] [3] [1] : tensor<6x$T> -> tensor<3x$T>
  %sb = zorse.broadcast %s dims [1] : tensor<3x$T> -> tensor<2x3x$T>
  %q = arith.mulf %r, %sb : tensor<2x3x$T>
  %m = arith.maxsi %l, %ib : tensor<?x6xi64>
  return %n, %z, %v, %q, %m : tensor<?x$T>, tensor<?x6x$T>, tensor<?x6xi1>, tensor<2x3x$T>, tensor<?x6xi64>
})");
}

// Dimensions of size 1, and results that are arguments, equal to each other, or constants.
TEST(CodegenOps, UnitDimensionsAndTrivialResults) {
  checkFunctions(R"(
func.func @f(%x: tensor<?x1x8x1x$T> {@@boundary_in0}, %w: tensor<8x1x$T> {@@parameter0}, %dy: tensor<?x1x1x$T> {@@boundary_out_gradient0})
    -> (tensor<?x1x8x1x$T> {@@boundary_in_gradient0}, tensor<?x1x1x$T> {@@boundary_out0}, tensor<8x1x$T> {@@parameter_gradient0}, tensor<?x1x8x$T> {@@boundary_out1}, tensor<?x1x1x$T> {@@boundary_out2}, tensor<4x$T> {@@parameter_gradient1}) {
  %r = zorse.reshape %x : tensor<?x1x8x1x$T> -> tensor<?x1x8x$T>
  %y = zorse.matmul %r, %w : tensor<?x1x8x$T>, tensor<8x1x$T> -> tensor<?x1x1x$T>
  %dx = zorse.matmul %dy, %w {transpose_b} : tensor<?x1x1x$T>, tensor<8x1x$T> -> tensor<?x1x8x$T>
  %dw = zorse.matmul_grad_weight %r, %dy : tensor<?x1x8x$T>, tensor<?x1x1x$T> -> tensor<8x1x$T>
  %n = zorse.rms_norm %r {epsilon = 1.0e-5 : f64} : (tensor<?x1x8x$T>) -> tensor<?x1x8x$T>
  %sum = arith.addf %dx, %n : tensor<?x1x8x$T>
  %back = zorse.reshape %sum : tensor<?x1x8x$T> -> tensor<?x1x8x1x$T>
  %zero = arith.constant dense<0.0> : tensor<4x$T>
  return %back, %y, %dw, %sum, %y, %zero : tensor<?x1x8x1x$T>, tensor<?x1x1x$T>, tensor<8x1x$T>, tensor<?x1x8x$T>, tensor<?x1x1x$T>, tensor<4x$T>
})");
}

// Labels that the graph shifts: a kernel must not read parts of a concat that it writes at the same
// time.
TEST(CodegenOps, ReadsOfConcatsComeAfterAllOfTheirParts) {
  checkFunctions(R"(
func.func @f(%l: tensor<?x6xi64> {@@input0, test.high = 50 : i64}, %x: tensor<?x6x50x$T> {@@boundary_in0}, %y: tensor<?x6x$T> {@@boundary_in1})
    -> (tensor<?x$T> {@@loss0}, tensor<?x$T> {@@boundary_out0}, tensor<?x6x$T> {@@boundary_out1}) {
  %p0 = arith.constant dense<-100> : tensor<i64>
  %p = zorse.broadcast %p0 dims [] : tensor<i64> -> tensor<?x1xi64>
  %c = zorse.concat %l, %p {dim = 1 : i64} : (tensor<?x6xi64>, tensor<?x1xi64>) -> tensor<?x7xi64>
  %s = zorse.slice %c [0, 1] [?, 6] [1, 1] : tensor<?x7xi64> -> tensor<?x6xi64>
  %loss = zorse.cross_entropy %x, %s {ignore_index = -100 : i64} : (tensor<?x6x50x$T>, tensor<?x6xi64>) -> tensor<?x6x$T>
  %sum = zorse.reduce sum %loss dims [1] : tensor<?x6x$T> -> tensor<?x$T>
  %pb = zorse.broadcast %p0 dims [] : tensor<i64> -> tensor<?x6xi64>
  %v = arith.cmpi ne, %s, %pb : tensor<?x6xi64>
  %f = arith.uitofp %v : tensor<?x6xi1> to tensor<?x6x$T>
  %n = zorse.reduce sum %f dims [1] : tensor<?x6x$T> -> tensor<?x$T>
  %e = math.exp %y : tensor<?x6x$T>
  %d = zorse.concat %e, %y {dim = 1 : i64} : (tensor<?x6x$T>, tensor<?x6x$T>) -> tensor<?x12x$T>
  %t = zorse.slice %d [0, 3] [?, 6] [1, 1] : tensor<?x12x$T> -> tensor<?x6x$T>
  %z = arith.addf %t, %e : tensor<?x6x$T>
  return %sum, %n, %z : tensor<?x$T>, tensor<?x$T>, tensor<?x6x$T>
})");
}

// Vectors that are too long for the stack are recomputed in later phases; odd lengths leave
// remainders.
TEST(CodegenOps, LongAndOddVectors) {
  RunOptions options;
  options.rows = {1, 2};
  options.tolerance32 = 1e-4;
  checkFunctions(R"(
func.func @f(%x: tensor<?x70001x$T> {@@boundary_in0}, %y: tensor<?x3x131x$T> {@@boundary_in1}, %g: tensor<131x$T> {@@parameter0})
    -> (tensor<?x70001x$T> {@@boundary_in_gradient0}, tensor<?x3x131x$T> {@@boundary_out0}, tensor<131x$T> {@@parameter_gradient0}) {
  %e = math.exp %x : tensor<?x70001x$T>
  %s = zorse.softmax %e : tensor<?x70001x$T>
  %m = arith.mulf %s, %e : tensor<?x70001x$T>
  %t = math.tanh %y : tensor<?x3x131x$T>
  %n = zorse.layer_norm %t weight %g {epsilon = 1.0e-5 : f64} : (tensor<?x3x131x$T>, tensor<131x$T>) -> tensor<?x3x131x$T>
  %r = zorse.reduce sum %n dims [0, 1] : tensor<?x3x131x$T> -> tensor<131x$T>
  return %m, %n, %r : tensor<?x70001x$T>, tensor<?x3x131x$T>, tensor<131x$T>
})",
                 options);
}

// The attention half of a GPT block, as made by units and autodiff, at its real size.
TEST(CodegenOps, GptBlock) {
  std::ifstream file(ZORSE_SOURCE_DIR "/test/lit/codegen/gpt-block.mlir");
  std::stringstream text;
  text << file.rdbuf();
  std::string functions = text.str();
  functions = functions.substr(0, functions.find("  func.func @update.decay")) + "}\n";
  RunOptions options;
  options.rows = {1, 3};
  options.types = {"f32"};
  options.tolerance32 = 1e-4;
  options.split = true;
  checkFunctions(functions, options);
}

// The separate parts of a split backward: a norm before two matmuls, with gelu between them.
TEST(CodegenOps, SplitBackward) {
  RunOptions options;
  options.split = true;
  checkFunctions(R"(
zorse.class @f {
  func.func @forward(%x: tensor<?x6x16x$T> {@@boundary_in0}, %g: tensor<16x$T> {@@parameter0}, %w: tensor<16x48x$T> {@@parameter1}, %v: tensor<48x16x$T> {@@parameter2})
      -> (tensor<?x6x16x$T> {@@boundary_out0}, tensor<?x6x$T> {@@saved0}, tensor<?x6x48x$T> {@@saved1}) {
    %n, %r = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : (tensor<?x6x16x$T>, tensor<16x$T>) -> (tensor<?x6x16x$T>, tensor<?x6x$T>)
    %h = zorse.matmul %n, %w : tensor<?x6x16x$T>, tensor<16x48x$T> -> tensor<?x6x48x$T>
    %a = zorse.gelu %h : tensor<?x6x48x$T>
    %y = zorse.matmul %a, %v : tensor<?x6x48x$T>, tensor<48x16x$T> -> tensor<?x6x16x$T>
    return %y, %r, %h : tensor<?x6x16x$T>, tensor<?x6x$T>, tensor<?x6x48x$T>
  }
  func.func @backward(%x: tensor<?x6x16x$T> {@@boundary_in0}, %g: tensor<16x$T> {@@parameter0}, %w: tensor<16x48x$T> {@@parameter1}, %v: tensor<48x16x$T> {@@parameter2},
                      %r: tensor<?x6x$T> {@@saved0}, %h: tensor<?x6x48x$T> {@@saved1}, %dy: tensor<?x6x16x$T> {@@boundary_out_gradient0})
      -> (tensor<?x6x16x$T> {@@boundary_in_gradient0}, tensor<16x$T> {@@parameter_gradient0}, tensor<16x48x$T> {@@parameter_gradient1}, tensor<48x16x$T> {@@parameter_gradient2}) {
    %a = zorse.gelu %h : tensor<?x6x48x$T>
    %dv = zorse.matmul_grad_weight %a, %dy : tensor<?x6x48x$T>, tensor<?x6x16x$T> -> tensor<48x16x$T>
    %da = zorse.matmul %dy, %v {transpose_b} : tensor<?x6x16x$T>, tensor<48x16x$T> -> tensor<?x6x48x$T>
    %dh = zorse.gelu_grad %h, %da : tensor<?x6x48x$T>
    %n = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : (tensor<?x6x16x$T>, tensor<16x$T>) -> tensor<?x6x16x$T>
    %dw = zorse.matmul_grad_weight %n, %dh : tensor<?x6x16x$T>, tensor<?x6x48x$T> -> tensor<16x48x$T>
    %dn = zorse.matmul %dh, %w {transpose_b} : tensor<?x6x48x$T>, tensor<16x48x$T> -> tensor<?x6x16x$T>
    %dg = zorse.rms_norm_grad_params %dn, %x, %r : (tensor<?x6x16x$T>, tensor<?x6x16x$T>, tensor<?x6x$T>) -> tensor<16x$T>
    %dx = zorse.rms_norm_grad_input %dn, %x, %r weight %g : (tensor<?x6x16x$T>, tensor<?x6x16x$T>, tensor<?x6x$T>, tensor<16x$T>) -> tensor<?x6x16x$T>
    return %dx, %dg, %dw, %dv : tensor<?x6x16x$T>, tensor<16x$T>, tensor<16x48x$T>, tensor<48x16x$T>
  }
})",
                 options);
}

// Roundings are exact: numbers of all magnitudes, including ties, subnormal and too large numbers.
TEST(CodegenOps, Roundings) {
  RunOptions options;
  options.tolerance32 = options.tolerance64 = 0;
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48x$T> {@@boundary_in0}, %e: tensor<?x5x48xi32> {@@input0, test.low = -150 : i64, test.high = 130 : i64})
    -> (tensor<?x5x48x$T> {@@boundary_out0}, tensor<?x5x48x$T> {@@boundary_out1}, tensor<?x5x48x$T> {@@boundary_out2}, tensor<?x5x48x$T> {@@boundary_out3}) {
  %f = arith.sitofp %e : tensor<?x5x48xi32> to tensor<?x5x48x$T>
  %p = math.exp2 %f : tensor<?x5x48x$T>
  %b = zorse.round %x to bf16 : tensor<?x5x48x$T>
  %h = zorse.round %x to f16 : tensor<?x5x48x$T>
  %pb = zorse.round %p to bf16 : tensor<?x5x48x$T>
  %ph = zorse.round %p to f16 : tensor<?x5x48x$T>
  return %b, %h, %pb, %ph : tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x48x$T>, tensor<?x5x48x$T>
})",
                 options);
  for (const char *value : {"65519.0", "65520.0", "-65520.0", "3.0e-6", "2.98023223876953125e-8",
                            "2.980232594040899e-8", "-4.4703483581542969e-8", "1.0e-40",
                            "1.00390625", "1.01171875", "0.0", "-0.0", "3.3e38", "3.4028e38"}) {
    SCOPED_TRACE(value);
    options.rows = {1};
    checkFunctions(
        std::string("func.func @f(%x: tensor<?x3x$T> {@@boundary_in0, test.value = ") + value +
            R"( : f64}) -> (tensor<?x3x$T> {@@boundary_out0}, tensor<?x3x$T> {@@boundary_out1}) {
  %b = zorse.round %x to bf16 : tensor<?x3x$T>
  %h = zorse.round %x to f16 : tensor<?x3x$T>
  return %b, %h : tensor<?x3x$T>, tensor<?x3x$T>
})",
        options);
  }
}

// A rounding between two operations of one kernel is performed although its result is not stored. A
// value stored in two bytes is read unchanged.
TEST(CodegenOps, RoundingInsideACluster) {
  RunOptions options;
  options.types = {"f32"};
  options.tolerance32 = 0; // sums and differences of numbers with few bits are exact
  checkFunctions(R"(
func.func @f(%x: tensor<?x5x48xf32> {@@boundary_in0}) -> (tensor<?x5x48xf32> {@@boundary_out0}, tensor<?x5x48xbf16> {@@boundary_out1}, tensor<?x5x48xf32> {@@boundary_out2}) {
  %n = arith.truncf %x : tensor<?x5x48xf32> to tensor<?x5x48xbf16>
  %w = arith.extf %n : tensor<?x5x48xbf16> to tensor<?x5x48xf32>
  %rest = arith.subf %x, %w : tensor<?x5x48xf32>
  %h = arith.truncf %rest : tensor<?x5x48xf32> to tensor<?x5x48xf16>
  %u = arith.extf %h : tensor<?x5x48xf16> to tensor<?x5x48xf32>
  %gone = arith.subf %rest, %u : tensor<?x5x48xf32>
  return %rest, %n, %gone : tensor<?x5x48xf32>, tensor<?x5x48xbf16>, tensor<?x5x48xf32>
})",
                 options);
}
