// Tests the launches of compiled functions that the summary lists.
#include "GpuWork.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::pipelines;

namespace {

void addProduct(bundle::CompiledFunction &function, int64_t mPerRow, int64_t n, int64_t k) {
  bundle::Matmul &product = *function.add_launches()->mutable_matmul();
  product.mutable_m()->set_per_row(mPerRow);
  product.mutable_n()->set_fixed(n);
  product.mutable_k()->set_fixed(k);
  product.mutable_batch()->set_fixed(1);
  product.set_type(bundle::F32);
  product.set_operand_type(bundle::BF16);
}

void addKernel(bundle::CompiledFunction &function, const char *symbol, int64_t fixed,
               int64_t perRow, int64_t productFlops = 0) {
  bundle::KernelLaunch &kernel = *function.add_launches()->mutable_kernel();
  kernel.set_symbol(symbol);
  kernel.mutable_cost()->set_fixed(fixed);
  kernel.mutable_cost()->set_per_row(perRow);
  kernel.mutable_matmul_flops()->set_per_row(productFlops);
}

TEST(GpuWork, AddsUpWhatABodyLaunches) {
  bundle::CompiledFunction function;
  addProduct(function, 128, 64, 64);
  addKernel(function, "addf_1234", 10, 1000);
  addProduct(function, 128, 64, 64);
  addProduct(function, 128, 256, 64);
  addKernel(function, "attention_rows_1234", 1, 100); // counts as bytes, like all other kernels
  bundle::FunctionCost work = workOf(function);
  EXPECT_EQ(work.launches(), 5u);
  ASSERT_EQ(work.matmuls_size(), 2);
  EXPECT_EQ(work.matmuls(0).count(), 2u);
  EXPECT_EQ(work.matmuls(1).count(), 1u);
  EXPECT_EQ(work.matmuls(0).m().per_row(), 128);
  EXPECT_EQ(work.matmuls(0).operands(), bundle::BF16);
  EXPECT_EQ(work.matmuls(0).result(), bundle::F32);
  EXPECT_EQ(work.bytes().fixed(), 11);
  EXPECT_EQ(work.bytes().per_row(), 1100);
  EXPECT_EQ(work.attention_flops_per_row(), 0);
}

TEST(GpuWork, FlopsOfAttentionAreTheFunctions) {
  mlir::MLIRContext context;
  context.loadDialect<ZorseDialect, mlir::func::FuncDialect>();
  bundle::ModelSummary summary;
  mlir::OwningOpRef<mlir::ModuleOp> functions = mlir::parseSourceString<mlir::ModuleOp>(R"(
    zorse.class @attention {
      func.func @forward(%q: tensor<?x128x2x64xf32> {zorse.argument = #zorse.argument<boundary_in, 0>},
                         %k: tensor<?x128x2x64xf32> {zorse.argument = #zorse.argument<boundary_in, 1>},
                         %v: tensor<?x128x2x64xf32> {zorse.argument = #zorse.argument<boundary_in, 2>})
          -> (tensor<?x128x2x64xf32> {zorse.argument = #zorse.argument<boundary_out, 0>}) {
        %o = zorse.attention %q, %k, %v {scale = 0.1 : f64} : (tensor<?x128x2x64xf32>, tensor<?x128x2x64xf32>, tensor<?x128x2x64xf32>) -> tensor<?x128x2x64xf32>
        return %o : tensor<?x128x2x64xf32>
      }
    })",
                                                                                        &context);
  ASSERT_TRUE(functions);
  bundle::UnitClass &attention = *summary.add_classes();
  attention.set_name("attention");
  bundle::UnitFunction &forward = *attention.add_functions(),
                       &backward = *attention.add_functions();
  forward.set_task(bundle::UnitFunction::FORWARD);
  backward.set_task(bundle::UnitFunction::BACKWARD);
  codegen::CompiledFunctions compiled;
  compiled.library.set_arch("sm_80");
  bundle::CompiledFunction &function = *compiled.library.add_functions();
  function.set_name("attention.forward");
  addKernel(function, "attention_forward_1234", 0, 1 << 20, 1 << 24);
  addGpuWork(*functions, summary, compiled);

  // If attention consists of matmuls and a softmax, its FLOPs are those of the matmuls.
  function.mutable_launches(0)->mutable_kernel()->clear_matmul_flops();
  compiled.library.set_arch("sm_70");
  addGpuWork(*functions, summary, compiled);

  ASSERT_EQ(summary.gpu_targets_size(), 2);
  EXPECT_EQ(summary.gpu_targets(0), "sm_80");
  ASSERT_EQ(forward.costs_size(), 2);
  const bundle::FunctionCost &tensors = forward.costs(0), &expanded = forward.costs(1);
  const double products = 2.0 * 2 * 128 * 128 * 2 * 64; // two matmuls with 2 FLOPs per pair and
                                                        // channel
  EXPECT_GE(tensors.attention_flops_per_row(), products);
  EXPECT_LE(tensors.attention_flops_per_row(), 1.1 * products); // exponentials in addition
  EXPECT_EQ(tensors.bytes().per_row(), 0);
  EXPECT_EQ(backward.costs(0).launches(), 0u); // has no compiled function
  EXPECT_EQ(expanded.attention_flops_per_row(), 0);
  EXPECT_EQ(expanded.bytes().per_row(), 1 << 20);
}

} // namespace
