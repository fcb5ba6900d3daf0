// Compares every vector-Jacobian product with central differences in f64, for every saved set.
#include "UnitFunctions.h"

#include "mlir/IR/Verifier.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace zorse;
using namespace zorse::testing;
using autodiff::RecomputePolicy;

namespace {

struct Argument {
  const char *name;
  const char *type;
  bool gradient = true;
};

struct Case {
  const char *name;
  std::vector<Argument> arguments;
  const char *body; ///< defines %y
  const char *type; ///< type of %y
  double low = -1.0, high = 1.0;
};

void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

/// Batched floats become boundary values, unbatched floats parameters, integers and booleans
/// inputs.
std::string functionText(const Case &c) {
  std::string arguments;
  int parameters = 0, inputs = 0, boundaries = 0;
  for (const Argument &a : c.arguments) {
    std::string type = a.type;
    bool integer = type.find("xi") != std::string::npos,
         sampled = type.find('?') != std::string::npos;
    std::string argument = integer ? "input" : sampled ? "boundary_in" : "parameter";
    int index = integer ? inputs++ : sampled ? boundaries++ : parameters++;
    arguments += (arguments.empty() ? "%" : ", %") + std::string(a.name) + ": " + type +
                 " {zorse.argument = #zorse.argument<" + argument + ", " + std::to_string(index) +
                 ">" + (integer || !a.gradient ? "" : ", zorse.gradient") + "}";
  }
  return "func.func @forward(" + arguments + ") -> (" + c.type +
         " {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {\n" + c.body +
         "\nreturn %y : " + c.type + "\n}";
}

std::string argumentOf(mlir::func::FuncOp f, unsigned i) {
  return stringifyArgumentKind(attributeOfArgument(f, i).getKind()).str();
}
int64_t indexOf(mlir::func::FuncOp f, unsigned i) { return attributeOfArgument(f, i).getIndex(); }

/// Multiplies every differentiable value by a parameter, so that there are gradients of both kinds:
/// `%x0` and `%xp` for `%x`.
Case behindParameters(Case c, std::vector<std::string> &kept) {
  std::string body;
  std::vector<Argument> arguments;
  for (const Argument &a : c.arguments) {
    std::string type = a.type, name = a.name;
    if (type.find('?') == std::string::npos || type.find("xi") != std::string::npos ||
        !a.gradient) {
      arguments.push_back(a);
      continue;
    }
    kept.push_back(name + "0");
    arguments.push_back({kept.back().c_str(), a.type});
    kept.push_back(name + "p");
    arguments.push_back({kept.back().c_str(), "tensor<f64>"});
    body += "%" + name + "b = zorse.broadcast %" + name + "p dims [] : tensor<f64> -> " + type +
            "\n%" + name + " = arith.mulf %" + name + "0, %" + name + "b : " + type + "\n";
  }
  kept.push_back(body + c.body);
  c.arguments = arguments;
  c.body = kept.back().c_str();
  return c;
}

/// Makes random values for all arguments.
Arguments randomArguments(mlir::func::FuncOp function, const Case &c, int64_t rows,
                          std::mt19937 &rng) {
  Arguments arguments;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    mlir::Type type = function.getArgumentTypes()[i], element = mlir::getElementTypeOrSelf(type);
    Tensor value = randomTensor(type, rows, rng, c.low, c.high);
    if (!mlir::isa<mlir::FloatType>(element))
      for (double &v : value.values)
        v = double(rng() % (element.isInteger(1) ? 2 : 3));
    arguments[{argumentOf(function, i), indexOf(function, i)}] = value;
  }
  return arguments;
}

class Vjp : public ::testing::TestWithParam<Case> {};

TEST_P(Vjp, EqualsCentralDifferences) {
  const Case &c = GetParam();
  auto context = makeContext();
  for (RecomputePolicy policy :
       {RecomputePolicy::MinCut, RecomputePolicy::None, RecomputePolicy::Full}) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(functionText(c), context.get());
    ASSERT_TRUE(module) << functionText(c);
    auto original = mlir::cast<mlir::func::FuncOp>(module->lookupSymbol("forward")).clone();
    auto joint =
        autodiff::joinBackward(mlir::cast<mlir::func::FuncOp>(module->lookupSymbol("forward")));
    ASSERT_TRUE(mlir::succeeded(joint));
    autodiff::chooseSaved(*joint, policy);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));

    constexpr int64_t rows = 3;
    reference::Options options;
    options.rows = rows, options.seed = 7, options.sampleBase = 5;
    std::mt19937 rng(1);
    Arguments arguments = randomArguments(original, c, rows, rng);
    Tensor seed = randomTensor(original.getResultTypes()[0], rows, rng, -1.0, 1.0);
    auto objective = [&](const Arguments &at) {
      Arguments out = run(original, at, options);
      double sum = 0;
      for (int64_t i = 0; i < seed.size(); ++i)
        sum += out.at({"boundary_out", 0}).values[i] * seed.values[i];
      return sum;
    };

    Arguments all = arguments;
    all[{"boundary_out_gradient", 0}] = seed;
    Arguments jointly = run(*joint, all, options);
    autodiff::DifferentiatedFunctions pair = autodiff::sliceJoint(*joint);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
    Arguments forward = run(pair.forward, arguments, options);
    ASSERT_FALSE(forward.empty());
    for (auto &[key, value] : forward)
      if (key.first == "saved")
        all[key] = value;
    Arguments gradients = run(pair.backward, all, options);
    ASSERT_FALSE(gradients.empty());
    // Both slices together have the results of the joint function.
    EXPECT_EQ(jointly.size(), forward.size() + gradients.size());
    for (const Arguments *part : {&forward, &gradients})
      for (auto &[key, value] : *part)
        EXPECT_EQ(value.values, jointly.at(key).values) << key.first << ' ' << key.second;

    for (unsigned i = 0; i < original.getNumArguments(); ++i) {
      if (!original.getArgAttr(i, autodiff::kGradientAttr))
        continue;
      auto key = std::make_pair(argumentOf(original, i), indexOf(original, i));
      const Tensor &gradient = gradients.at({key.first + "_gradient", key.second});
      for (int64_t e = 0; e < gradient.size(); ++e) {
        Arguments moved = arguments;
        constexpr double h = 1e-5;
        moved[key].values[e] = arguments[key].values[e] + h;
        double up = objective(moved);
        moved[key].values[e] = arguments[key].values[e] - h;
        double numeric = (up - objective(moved)) / (2 * h);
        EXPECT_NEAR(gradient.values[e], numeric, 1e-7 * (1 + std::abs(numeric)))
            << c.arguments[i].name << " element " << e << " policy " << int(policy);
      }
    }
    original.erase();
  }
}

/// B and W together are the backward, and B saves values instead of W computing them again.
TEST_P(Vjp, PartsMakeTheWhole) {
  std::vector<std::string> kept;
  kept.reserve(32);
  Case c = behindParameters(GetParam(), kept);
  auto context = makeContext();
  for (RecomputePolicy policy :
       {RecomputePolicy::MinCut, RecomputePolicy::None, RecomputePolicy::Full}) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(functionText(c), context.get());
    ASSERT_TRUE(module) << functionText(c);
    auto pair = autodiff::differentiate(
        mlir::cast<mlir::func::FuncOp>(module->lookupSymbol("forward")), policy);
    ASSERT_TRUE(mlir::succeeded(pair));
    autodiff::SplitBackward split = autodiff::splitBackward(pair->backward);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
    if (!split.inputs)
      continue; // only parameters or no parameters

    reference::Options options;
    options.rows = 3, options.seed = 7, options.sampleBase = 5;
    std::mt19937 rng(2);
    Arguments arguments = randomArguments(pair->forward, c, options.rows, rng);
    for (auto &[key, value] : arguments)
      if (key.first == "parameter" && value.size() == 1)
        value.values[0] = 0.9 + 0.05 * double(rng() % 4); // inside the domain of the op
    for (auto &[key, value] : run(pair->forward, arguments, options)) {
      if (key.first == "saved")
        arguments[key] = value;
      if (key.first == "boundary_out")
        arguments[{"boundary_out_gradient", key.second}] = value;
    }
    Arguments whole = run(pair->backward, arguments, options),
              parts = run(split.inputs, arguments, options);
    arguments.insert(parts.begin(), parts.end()); // tensors saved for W
    for (auto &[key, value] : run(split.weights, arguments, options))
      EXPECT_TRUE(parts.emplace(key, value).second) << key.first << " in both parts";
    for (auto &[key, value] : whole) {
      ASSERT_TRUE(parts.count(key)) << key.first << " " << key.second;
      for (int64_t e = 0; e < value.size(); ++e)
        EXPECT_NEAR(parts.at(key).values[e], value.values[e],
                    1e-12 * (1 + std::abs(value.values[e])))
            << key.first << " " << key.second << " element " << e << " policy " << int(policy);
    }
    auto countProducts = [](mlir::func::FuncOp f) {
      int count = 0;
      f.walk([&](mlir::Operation *op) {
        count += mlir::isa<MatmulOp, MatmulGradWeightOp, AttentionOp, AttentionGradOp>(op) &&
                 carriesSamples(op->getOperand(0).getType());
      });
      return count;
    };
    EXPECT_EQ(countProducts(split.inputs) + countProducts(split.weights),
              countProducts(pair->backward));
  }
}

#define X {"x", "tensor<?x2x4xf64>"}
#define Z {"z", "tensor<?x2x4xf64>"}
#define T "tensor<?x2x4xf64>"

Case unary(const char *name, const char *op, double low = -0.9, double high = 0.9) {
  static std::vector<std::string> kept;
  kept.reserve(256);
  kept.push_back(std::string("%y = ") + op + " %x : " T);
  return {name, {X}, kept.back().c_str(), T, low, high};
}

std::vector<Case> cases() {
  return {
      {"addf", {X, Z}, "%y = arith.addf %x, %z : " T, T},
      {"addf_same", {X}, "%y = arith.addf %x, %x : " T, T},
      {"subf", {X, Z}, "%y = arith.subf %x, %z : " T, T},
      {"mulf", {X, Z}, "%y = arith.mulf %x, %z : " T, T},
      {"mulf_square", {X}, "%y = arith.mulf %x, %x : " T, T},
      {"divf", {X, Z}, "%y = arith.divf %x, %z : " T, T, 0.3, 1.5},
      {"remf",
       {X, Z},
       "%c = arith.constant dense<5.0> : tensor<f64>\n%b = zorse.broadcast %c dims [] : "
       "tensor<f64> -> " T "\n%w = arith.mulf %x, %b : " T "\n%y = arith.remf %w, %z : " T,
       T,
       0.3,
       1.5},
      {"maximumf", {X, Z}, "%y = arith.maximumf %x, %z : " T, T},
      {"minimumf", {X, Z}, "%y = arith.minimumf %x, %z : " T, T},
      {"maxnumf", {X, Z}, "%y = arith.maxnumf %x, %z : " T, T},
      {"minnumf", {X, Z}, "%y = arith.minnumf %x, %z : " T, T},
      {"relu",
       {X},
       "%c = arith.constant dense<0.0> : tensor<f64>\n%b = zorse.broadcast %c dims [] : "
       "tensor<f64> -> " T "\n%y = arith.maximumf %x, %b : " T,
       T},
      {"select",
       {{"c", "tensor<?x2x4xi1>"}, X, Z},
       "%y = arith.select %c, %x, %z : tensor<?x2x4xi1>, " T,
       T},
      {"compare_select",
       {X, Z},
       "%c = arith.cmpf olt, %x, %z : " T "\n%m = arith.mulf %x, %z : " T
       "\n%y = arith.select %c, %m, %z : tensor<?x2x4xi1>, " T,
       T},
      unary("negf", "arith.negf"),
      unary("exp", "math.exp"),
      unary("exp2", "math.exp2"),
      unary("expm1", "math.expm1"),
      unary("log", "math.log", 0.3, 2.0),
      unary("log2", "math.log2", 0.3, 2.0),
      unary("log10", "math.log10", 0.3, 2.0),
      unary("log1p", "math.log1p", 0.3, 2.0),
      unary("sqrt", "math.sqrt", 0.3, 2.0),
      unary("rsqrt", "math.rsqrt", 0.3, 2.0),
      unary("cbrt", "math.cbrt", 0.3, 2.0),
      unary("tanh", "math.tanh"),
      unary("erf", "math.erf"),
      unary("erfc", "math.erfc"),
      unary("sin", "math.sin"),
      unary("cos", "math.cos"),
      unary("tan", "math.tan"),
      unary("asin", "math.asin"),
      unary("acos", "math.acos"),
      unary("atan", "math.atan"),
      unary("sinh", "math.sinh"),
      unary("cosh", "math.cosh"),
      unary("asinh", "math.asinh"),
      unary("acosh", "math.acosh", 1.2, 2.0),
      unary("atanh", "math.atanh"),
      unary("absf", "math.absf"),
      unary("floor", "math.floor", 0.1, 0.9),
      {"powf", {X, Z}, "%y = math.powf %x, %z : " T, T, 0.3, 2.0},
      {"square",
       {X},
       "%c = arith.constant dense<2.0> : tensor<f64>\n%b = zorse.broadcast %c dims [] : "
       "tensor<f64> -> " T "\n%y = math.powf %x, %b : " T,
       T},
      {"cube",
       {X},
       "%c = arith.constant dense<3.0> : tensor<f64>\n%b = zorse.broadcast %c dims [] : "
       "tensor<f64> -> " T "\n%y = math.powf %x, %b : " T,
       T},
      {"fpowi",
       {{"n", "tensor<?x2x4xi32>"}, X},
       "%y = math.fpowi %x, %n : " T ", tensor<?x2x4xi32>",
       T,
       0.3,
       1.5},
      {"atan2", {X, Z}, "%y = math.atan2 %x, %z : " T, T, 0.3, 1.5},
      {"copysign", {X, {"z", T, false}}, "%y = math.copysign %x, %z : " T, T},
      {"fma", {X, Z, {"w", T}}, "%y = math.fma %x, %z, %w : " T, T},
      {"reshape", {X}, "%y = zorse.reshape %x : " T " -> tensor<?x8xf64>", "tensor<?x8xf64>"},
      {"transpose",
       {{"x", "tensor<?x2x3x4xf64>"}},
       "%y = zorse.transpose %x [0, 2, 3, 1] : tensor<?x2x3x4xf64> -> tensor<?x3x4x2xf64>",
       "tensor<?x3x4x2xf64>"},
      {"slice",
       {X},
       "%y = zorse.slice %x [0, 1, 1] [?, 1, 2] [1, 1, 1] : " T " -> tensor<?x1x2xf64>",
       "tensor<?x1x2xf64>"},
      {"slice_strided",
       {{"x", "tensor<?x9xf64>"}},
       "%y = zorse.slice %x [0, 1] [?, 3] [1, 3] : tensor<?x9xf64> -> tensor<?x3xf64>",
       "tensor<?x3xf64>"},
      {"slice_strided_short",
       {{"x", "tensor<?x10xf64>"}},
       "%y = zorse.slice %x [0, 0] [?, 3] [1, 3] : tensor<?x10xf64> -> tensor<?x3xf64>",
       "tensor<?x3xf64>"},
      {"slices_tile",
       {X},
       "%a = zorse.slice %x [0, 0, 2] [?, 2, 2] [1, 1, 1] : " T
       " -> tensor<?x2x2xf64>\n%b = zorse.slice %x [0, 0, 0] [?, 2, 2] [1, 1, 1] : " T
       " -> tensor<?x2x2xf64>\n%y = arith.mulf %a, %b : tensor<?x2x2xf64>",
       "tensor<?x2x2xf64>"},
      {"slices_gap",
       {X},
       "%a = zorse.slice %x [0, 0, 3] [?, 2, 1] [1, 1, 1] : " T
       " -> tensor<?x2x1xf64>\n%b = zorse.slice %x [0, 0, 1] [?, 2, 1] [1, 1, 1] : " T
       " -> tensor<?x2x1xf64>\n%y = arith.mulf %a, %b : tensor<?x2x1xf64>",
       "tensor<?x2x1xf64>"},
      {"slices_overlap",
       {X},
       "%a = zorse.slice %x [0, 0, 1] [?, 2, 2] [1, 1, 1] : " T
       " -> tensor<?x2x2xf64>\n%b = zorse.slice %x [0, 0, 0] [?, 2, 2] [1, 1, 1] : " T
       " -> tensor<?x2x2xf64>\n%y = arith.mulf %a, %b : tensor<?x2x2xf64>",
       "tensor<?x2x2xf64>"},
      {"slices_and_more",
       {X},
       "%a = zorse.slice %x [0, 0, 2] [?, 2, 2] [1, 1, 1] : " T
       " -> tensor<?x2x2xf64>\n%b = zorse.slice %x [0, 0, 0] [?, 2, 2] [1, 1, 1] : " T
       " -> tensor<?x2x2xf64>\n%p = arith.mulf %a, %b : tensor<?x2x2xf64>\n%q = zorse.concat %p, "
       "%a {dim = 2 : i64} : (tensor<?x2x2xf64>, "
       "tensor<?x2x2xf64>) -> " T "\n%y = arith.mulf %q, %x : " T,
       T},
      {"concat",
       {X, {"z", "tensor<?x2x3xf64>"}},
       "%y = zorse.concat %x, %z {dim = 2 : i64} : (" T ", tensor<?x2x3xf64>) -> tensor<?x2x7xf64>",
       "tensor<?x2x7xf64>"},
      {"broadcast",
       {{"x", "tensor<?x4xf64>"}},
       "%y = zorse.broadcast %x dims [0, 2] : tensor<?x4xf64> -> " T,
       T},
      {"broadcast_over_rows",
       {{"b", "tensor<4xf64>"}, X},
       "%w = zorse.broadcast %b dims [2] : tensor<4xf64> -> " T "\n%y = arith.mulf %x, %w : " T,
       T},
      {"broadcast_scalar",
       {{"b", "tensor<f64>"}, X},
       "%w = zorse.broadcast %b dims [] : tensor<f64> -> " T "\n%y = arith.mulf %x, %w : " T,
       T},
      {"reduce_sum",
       {X},
       "%y = zorse.reduce sum %x dims [1] : " T " -> tensor<?x4xf64>",
       "tensor<?x4xf64>"},
      {"reduce_max",
       {X},
       "%y = zorse.reduce max %x dims [1, 2] : " T " -> tensor<?xf64>",
       "tensor<?xf64>"},
      {"reduce_min",
       {X},
       "%y = zorse.reduce min %x dims [2] : " T " -> tensor<?x2xf64>",
       "tensor<?x2xf64>"},
      {"reduce_prod",
       {X},
       "%y = zorse.reduce prod %x dims [1, 2] : " T " -> tensor<?xf64>",
       "tensor<?xf64>"},
      {"reduce_prod_one",
       {{"x", "tensor<?x3x1xf64>"}},
       "%y = zorse.reduce prod %x dims [2] : tensor<?x3x1xf64> -> tensor<?x3xf64>",
       "tensor<?x3xf64>"},
      {"matmul_weight",
       {X, {"w", "tensor<4x3xf64>"}},
       "%y = zorse.matmul %x, %w : " T ", tensor<4x3xf64> -> tensor<?x2x3xf64>",
       "tensor<?x2x3xf64>"},
      {"matmul_weight_tb",
       {X, {"w", "tensor<3x4xf64>"}},
       "%y = zorse.matmul %x, %w {transpose_b} : " T ", tensor<3x4xf64> -> tensor<?x2x3xf64>",
       "tensor<?x2x3xf64>"},
      {"matmul_weight_ta",
       {X, {"w", "tensor<2x3xf64>"}},
       "%y = zorse.matmul %x, %w {transpose_a} : " T ", tensor<2x3xf64> -> tensor<?x4x3xf64>",
       "tensor<?x4x3xf64>"},
      {"matmul_weight_ta_tb",
       {X, {"w", "tensor<3x2xf64>"}},
       "%y = zorse.matmul %x, %w {transpose_a, transpose_b} : " T
       ", tensor<3x2xf64> -> tensor<?x4x3xf64>",
       "tensor<?x4x3xf64>"},
      {"matmul_rows",
       {{"x", "tensor<?x4xf64>"}, {"w", "tensor<4x3xf64>"}},
       "%y = zorse.matmul %x, %w : tensor<?x4xf64>, tensor<4x3xf64> -> tensor<?x3xf64>",
       "tensor<?x3xf64>"},
      {"matmul_batched",
       {X, {"z", "tensor<?x4x3xf64>"}},
       "%y = zorse.matmul %x, %z : " T ", tensor<?x4x3xf64> -> tensor<?x2x3xf64>",
       "tensor<?x2x3xf64>"},
      {"matmul_batched_tb",
       {X, {"z", "tensor<?x3x4xf64>"}},
       "%y = zorse.matmul %x, %z {transpose_b} : " T ", tensor<?x3x4xf64> -> tensor<?x2x3xf64>",
       "tensor<?x2x3xf64>"},
      {"matmul_batched_ta",
       {X, {"z", "tensor<?x2x3xf64>"}},
       "%y = zorse.matmul %x, %z {transpose_a} : " T ", tensor<?x2x3xf64> -> tensor<?x4x3xf64>",
       "tensor<?x4x3xf64>"},
      {"matmul_batched_ta_tb",
       {X, {"z", "tensor<?x3x2xf64>"}},
       "%y = zorse.matmul %x, %z {transpose_a, transpose_b} : " T
       ", tensor<?x3x2xf64> -> tensor<?x4x3xf64>",
       "tensor<?x4x3xf64>"},
      {"matmul_parameters",
       {{"a", "tensor<3x2xf64>"}, {"w", "tensor<2x4xf64>"}, X},
       "%p = zorse.matmul %a, %w : tensor<3x2xf64>, tensor<2x4xf64> -> tensor<3x4xf64>\n%y = "
       "zorse.matmul %x, %p {transpose_b} : " T ", tensor<3x4xf64> -> tensor<?x2x3xf64>",
       "tensor<?x2x3xf64>"},
      {"matmul_grad_weight",
       {X, {"z", "tensor<?x2x3xf64>"}},
       "%p = zorse.matmul_grad_weight %x, %z : " T
       ", tensor<?x2x3xf64> -> tensor<4x3xf64>\n%y = zorse.broadcast %p dims [1, 2] : "
       "tensor<4x3xf64> -> tensor<?x4x3xf64>",
       "tensor<?x4x3xf64>"},
      {"gather",
       {{"w", "tensor<5x4xf64>"}, {"ids", "tensor<?x2xi64>"}},
       "%y = zorse.gather %w, %ids : tensor<5x4xf64>, tensor<?x2xi64> -> " T,
       T},
      {"scatter_add",
       {X, {"ids", "tensor<?x2xi64>"}},
       "%p = zorse.scatter_add %ids, %x : tensor<?x2xi64>, " T
       " -> tensor<5x4xf64>\n%y = zorse.broadcast %p dims [1, 2] : tensor<5x4xf64> -> "
       "tensor<?x5x4xf64>",
       "tensor<?x5x4xf64>"},
      {"take_along_dim",
       {X, {"ids", "tensor<?x2xi64>"}},
       "%y = zorse.take_along_dim %x, %ids : " T ", tensor<?x2xi64> -> tensor<?x2xf64>",
       "tensor<?x2xf64>"},
      {"take_along_dim_grad",
       {{"x", "tensor<?x2xf64>"}, {"ids", "tensor<?x2xi64>"}},
       "%y = zorse.take_along_dim_grad %x, %ids : tensor<?x2xf64>, tensor<?x2xi64> -> " T,
       T},
      unary("softmax", "zorse.softmax"),
      unary("log_softmax", "zorse.log_softmax"),
      unary("gelu", "zorse.gelu"),
      {"gelu_tanh", {X}, "%y = zorse.gelu %x {approximate} : " T, T},
      unary("silu", "zorse.silu"),
      {"dropout", {X}, "%y = zorse.dropout %x {probability = 0.4 : f64, rng_id = 2 : i64} : " T, T},
      {"running_stat",
       {X, {"r", "tensor<2x4xf64>", false}},
       "%y = zorse.running_stat %x, %r {momentum = 0.25 : f64, correction = 1.5 : f64} : " T
       ", tensor<2x4xf64>",
       T},
      {"dropout_then_square",
       {X},
       "%d = zorse.dropout %x {probability = 0.4 : f64, rng_id = 2 : i64} : " T
       "\n%y = arith.mulf %d, %d : " T,
       T},
      {"layer_norm", {X}, "%y = zorse.layer_norm %x {epsilon = 0.01 : f64} : (" T ") -> " T, T},
      {"layer_norm_weight",
       {X, {"g", "tensor<4xf64>"}},
       "%y = zorse.layer_norm %x weight %g {epsilon = 0.01 : f64} : (" T ", tensor<4xf64>) -> " T,
       T},
      {"layer_norm_bias",
       {X, {"b", "tensor<4xf64>"}},
       "%y = zorse.layer_norm %x bias %b {epsilon = 0.01 : f64} : (" T ", tensor<4xf64>) -> " T,
       T},
      {"layer_norm_both",
       {X, {"g", "tensor<4xf64>"}, {"b", "tensor<4xf64>"}},
       "%y = zorse.layer_norm %x weight %g bias %b {epsilon = 0.01 : f64} : (" T
       ", tensor<4xf64>, tensor<4xf64>) -> " T,
       T},
      {"rms_norm", {X}, "%y = zorse.rms_norm %x {epsilon = 0.01 : f64} : (" T ") -> " T, T},
      {"rms_norm_weight",
       {X, {"g", "tensor<4xf64>"}},
       "%y = zorse.rms_norm %x weight %g {epsilon = 0.01 : f64} : (" T ", tensor<4xf64>) -> " T,
       T},
      {"rms_norm_one_plus_weight",
       {X, {"g", "tensor<4xf64>"}},
       "%c = arith.constant dense<1.0> : tensor<4xf64>\n%h = arith.addf %g, %c : tensor<4xf64>\n%y "
       "= zorse.rms_norm %x weight %h {epsilon = 0.01 : "
       "f64} : (" T ", tensor<4xf64>) -> " T,
       T},
      {"rope",
       {{"x", "tensor<?x3x2x4xf64>"},
        {"c", "tensor<3x2xf64>", false},
        {"s", "tensor<3x2xf64>", false}},
       "%y = zorse.rope %x, %c, %s : (tensor<?x3x2x4xf64>, tensor<3x2xf64>, tensor<3x2xf64>) -> "
       "tensor<?x3x2x4xf64>",
       "tensor<?x3x2x4xf64>"},
      {"rope_interleaved",
       {{"x", "tensor<?x3x2x4xf64>"},
        {"c", "tensor<?x3x2xf64>", false},
        {"s", "tensor<?x3x2xf64>", false}},
       "%y = zorse.rope %x, %c, %s {interleaved} : (tensor<?x3x2x4xf64>, tensor<?x3x2xf64>, "
       "tensor<?x3x2xf64>) -> tensor<?x3x2x4xf64>",
       "tensor<?x3x2x4xf64>"},
      {"attention_causal",
       {{"q", "tensor<?x3x4x2xf64>"}, {"k", "tensor<?x3x2x2xf64>"}, {"v", "tensor<?x3x2x2xf64>"}},
       "%y = zorse.attention %q, %k, %v {causal, scale = 0.7 : f64} : (tensor<?x3x4x2xf64>, "
       "tensor<?x3x2x2xf64>, tensor<?x3x2x2xf64>) -> "
       "tensor<?x3x4x2xf64>",
       "tensor<?x3x4x2xf64>"},
      {"attention_window_cap_dropout",
       {{"q", "tensor<?x4x2x2xf64>"}, {"k", "tensor<?x4x2x2xf64>"}, {"v", "tensor<?x4x2x2xf64>"}},
       "%y = zorse.attention %q, %k, %v {causal, window = 2 : i64, softcap = 1.5 : f64, dropout = "
       "0.3 : f64, rng_id = 1 : i64, scale = 0.7 : f64} "
       ": (tensor<?x4x2x2xf64>, tensor<?x4x2x2xf64>, tensor<?x4x2x2xf64>) -> tensor<?x4x2x2xf64>",
       "tensor<?x4x2x2xf64>"},
      {"attention_mask",
       {{"q", "tensor<?x2x2x2xf64>"},
        {"k", "tensor<?x3x2x2xf64>"},
        {"v", "tensor<?x3x2x4xf64>"},
        {"m", "tensor<?x1x2x3xf64>", false}},
       "%y = zorse.attention %q, %k, %v mask %m {scale = 0.7 : f64} : (tensor<?x2x2x2xf64>, "
       "tensor<?x3x2x2xf64>, tensor<?x3x2x4xf64>, "
       "tensor<?x1x2x3xf64>) -> tensor<?x2x2x4xf64>",
       "tensor<?x2x2x4xf64>"},
      {"attention_boolean_mask",
       {{"q", "tensor<?x2x2x2xf64>"},
        {"k", "tensor<?x3x2x2xf64>"},
        {"v", "tensor<?x3x2x2xf64>"},
        {"m", "tensor<?x2x2x3xi1>"}},
       "%y = zorse.attention %q, %k, %v mask %m {scale = 0.7 : f64} : (tensor<?x2x2x2xf64>, "
       "tensor<?x3x2x2xf64>, tensor<?x3x2x2xf64>, "
       "tensor<?x2x2x3xi1>) -> tensor<?x2x2x2xf64>",
       "tensor<?x2x2x2xf64>"},
      {"cross_entropy",
       {X, {"ids", "tensor<?x2xi64>"}},
       "%y = zorse.cross_entropy %x, %ids {ignore_index = 1 : i64} : (" T
       ", tensor<?x2xi64>) -> tensor<?x2xf64>",
       "tensor<?x2xf64>"},
      {"cross_entropy_weights",
       {X, {"ids", "tensor<?x2xi64>"}, {"w", "tensor<4xf64>", false}},
       "%y = zorse.cross_entropy %x, %ids weights %w : (" T
       ", tensor<?x2xi64>, tensor<4xf64>) -> tensor<?x2xf64>",
       "tensor<?x2xf64>"},
      {"residual",
       {X, {"w", "tensor<4x4xf64>"}},
       "%m = zorse.matmul %x, %w : " T ", tensor<4x4xf64> -> " T "\n%g = zorse.gelu %m : " T
       "\n%h = zorse.matmul %g, %w {transpose_b} : " T ", tensor<4x4xf64> -> " T
       "\n%y = arith.addf %x, %h : " T,
       T},
      {"vanishing",
       {X, {"w", "tensor<4xf64>"}},
       "%f = math.floor %w : tensor<4xf64>\n%b = zorse.broadcast %f dims [2] : tensor<4xf64> -> " T
       "\n%y = arith.addf %x, %b : " T,
       T,
       0.1,
       0.9},
  };
}

INSTANTIATE_TEST_SUITE_P(Ops, Vjp, ::testing::ValuesIn(cases()),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(Statistics, OfF64AreF64AndOfF32AreF32) {
  auto context = makeContext();
  for (const char *type : {"f32", "f64"}) {
    std::string t = std::string("tensor<?x4x") + type + ">",
                text = "func.func @forward(%x: " + t +
                       " {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient}) -> (" +
                       t +
                       " {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) "
                       "{\n%y = zorse.rms_norm %x {epsilon = 0.01 : f64} : (" +
                       t + ") -> " + t + "\nreturn %y : " + t + "\n}";
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
    auto pair = autodiff::differentiate(*module->getOps<mlir::func::FuncOp>().begin(),
                                        RecomputePolicy::MinCut);
    ASSERT_TRUE(mlir::succeeded(pair));
    ASSERT_EQ(pair->forward.getNumResults(), 2u);
    EXPECT_EQ(mlir::getElementTypeOrSelf(pair->forward.getResultTypes()[1]).isF64(),
              std::string(type) == "f64");
  }
}

} // namespace
