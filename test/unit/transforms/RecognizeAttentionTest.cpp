// Tests that recognizing attention keeps the values, also for queries without visible keys.
#include "UnitFunctions.h"

#include "zorse/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::testing;

namespace {

constexpr int64_t kRows = 3;

/// A form of masking: lines that make %masked [?, 4, 4, 5] from the scores %s, booleans %m and
/// floats %a.
struct Masking {
  const char *name, *conditions, *floats; ///< types of %m and %a
  const char *lines;
  bool isRecognized = true;
};

const Masking kMaskings[] = {
    {"replaced, of each sample's keys", "tensor<?x5xi1>", "tensor<f32>",
     "%mb = zorse.broadcast %m dims [0, 3] : tensor<?x5xi1> -> tensor<?x4x4x5xi1>\n"
     "%masked = arith.select %mb, %s, %low : tensor<?x4x4x5xi1>, tensor<?x4x4x5xf32>"},
    {"replaced, of each sample's queries and keys", "tensor<?x4x5xi1>", "tensor<f32>",
     "%mb = zorse.broadcast %m dims [0, 2, 3] : tensor<?x4x5xi1> -> tensor<?x4x4x5xi1>\n"
     "%masked = arith.select %mb, %s, %low : tensor<?x4x4x5xi1>, tensor<?x4x4x5xf32>"},
    {"replaced, of every head", "tensor<?x4x4x5xi1>", "tensor<f32>",
     "%masked = arith.select %m, %s, %low : tensor<?x4x4x5xi1>, tensor<?x4x4x5xf32>"},
    {"replaced, the same for all samples", "tensor<4x5xi1>", "tensor<f32>",
     "%mb = zorse.broadcast %m dims [2, 3] : tensor<4x5xi1> -> tensor<?x4x4x5xi1>\n"
     "%masked = arith.select %mb, %s, %low : tensor<?x4x4x5xi1>, tensor<?x4x4x5xf32>"},
    {"added as a selection", "tensor<?x5xi1>", "tensor<f32>",
     "%mb = zorse.broadcast %m dims [0, 3] : tensor<?x5xi1> -> tensor<?x4x4x5xi1>\n"
     "%f = arith.select %mb, %zero, %low : tensor<?x4x4x5xi1>, tensor<?x4x4x5xf32>\n"
     "%masked = arith.addf %s, %f : tensor<?x4x4x5xf32>"},
    {"replaced and added", "tensor<?x5xi1>", "tensor<?x4x4x5xf32>",
     "%mb = zorse.broadcast %m dims [0, 3] : tensor<?x5xi1> -> tensor<?x4x4x5xi1>\n"
     "%r = arith.select %mb, %s, %low : tensor<?x4x4x5xi1>, tensor<?x4x4x5xf32>\n"
     "%masked = arith.addf %r, %a : tensor<?x4x4x5xf32>",
     false},
};

/// Four query heads share two key heads.
std::string functionOf(const Masking &masking) {
  return std::string("func.func @f(%q: tensor<?x4x4x8xf32>, %k2: tensor<?x2x5x8xf32>, %v2: "
                     "tensor<?x2x5x6xf32>, %m: ") +
         masking.conditions + ", %a: " + masking.floats + R"() -> tensor<?x4x4x6xf32> {
  %kb = zorse.broadcast %k2 dims [0, 1, 3, 4] : tensor<?x2x5x8xf32> -> tensor<?x2x2x5x8xf32>
  %k = zorse.reshape %kb : tensor<?x2x2x5x8xf32> -> tensor<?x4x5x8xf32>
  %vb = zorse.broadcast %v2 dims [0, 1, 3, 4] : tensor<?x2x5x6xf32> -> tensor<?x2x2x5x6xf32>
  %v = zorse.reshape %vb : tensor<?x2x2x5x6xf32> -> tensor<?x4x5x6xf32>
  %l = arith.constant dense<-3.40282347E+38> : tensor<f32>
  %low = zorse.broadcast %l dims [] : tensor<f32> -> tensor<?x4x4x5xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %zero = zorse.broadcast %z dims [] : tensor<f32> -> tensor<?x4x4x5xf32>
  %s = zorse.matmul %q, %k {transpose_b} : tensor<?x4x4x8xf32>, tensor<?x4x5x8xf32> -> tensor<?x4x4x5xf32>
)" + masking.lines +
         R"(
  %p = zorse.softmax %masked : tensor<?x4x4x5xf32>
  %o = zorse.matmul %p, %v : tensor<?x4x4x5xf32>, tensor<?x4x5x6xf32> -> tensor<?x4x4x6xf32>
  return %o : tensor<?x4x4x6xf32>
})";
}

/// Random arguments. Two thirds of the booleans are false, and all of the second sample.
std::vector<Tensor> argumentsOf(mlir::func::FuncOp function) {
  std::mt19937 rng(3);
  std::vector<Tensor> arguments;
  for (mlir::Type type : function.getArgumentTypes()) {
    arguments.push_back(randomTensor(type, kRows, rng, -1, 1));
    Tensor &made = arguments.back();
    if (!mlir::getElementTypeOrSelf(type).isInteger(1))
      continue;
    const int64_t each = made.shape[0] == kRows ? made.size() / kRows : made.size();
    for (int64_t i = 0; i < made.size(); ++i)
      made.values[size_t(i)] = made.values[size_t(i)] > 0.3 && i / each != 1;
  }
  return arguments;
}

TEST(RecognizeAttention, KeepsValuesOfQueriesThatSeeNoKey) {
  auto context = makeContext();
  for (const Masking &masking : kMaskings) {
    SCOPED_TRACE(masking.name);
    auto module = mlir::parseSourceString<mlir::ModuleOp>(functionOf(masking), context.get());
    ASSERT_TRUE(module);
    auto function = *module->getOps<mlir::func::FuncOp>().begin();
    const std::vector<Tensor> arguments = argumentsOf(function);
    reference::Options options;
    options.rows = kRows;
    auto before = reference::evaluate(function, arguments, options);
    mlir::PassManager passes(context.get());
    passes.addNestedPass<mlir::func::FuncOp>(createRecognizeAttention());
    ASSERT_TRUE(mlir::succeeded(passes.run(*module)));
    EXPECT_EQ(!function.getOps<AttentionOp>().empty(), masking.isRecognized);
    auto after = reference::evaluate(function, arguments, options);
    ASSERT_TRUE(mlir::succeeded(before) && mlir::succeeded(after));
    for (size_t i = 0; i < (*before)[0].values.size(); ++i)
      ASSERT_NEAR((*before)[0].values[i], (*after)[0].values[i], 1e-12) << i;
  }
}

} // namespace
