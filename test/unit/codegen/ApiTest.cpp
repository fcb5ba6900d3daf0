// Tests compilation: equal input gives equal bytes, equal kernels are shared, the cache is used,
// errors name the op.
#include "CodegenHarness.h"

#include "mlir/IR/Diagnostics.h"

#include "llvm/Support/Program.h"
#include "llvm/Support/SHA256.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse;

static const char *const kTwoClasses = R"(
func.func @a(%x: tensor<?x5x48xf32> {@@boundary_in0}, %g: tensor<48xf32> {@@parameter0}) -> (tensor<?x5x48xf32> {@@boundary_out0}) {
  %y = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : (tensor<?x5x48xf32>, tensor<48xf32>) -> tensor<?x5x48xf32>
  return %y : tensor<?x5x48xf32>
}
func.func @b(%x: tensor<?x5x48xf32> {@@boundary_in0}, %g: tensor<48xf32> {@@parameter0}) -> (tensor<?x5x48xf32> {@@boundary_out0}) {
  %y = zorse.rms_norm %x weight %g {epsilon = 1.0e-6 : f64} : (tensor<?x5x48xf32>, tensor<48xf32>) -> tensor<?x5x48xf32>
  %z = zorse.matmul %y, %w {transpose_b} : tensor<?x5x48xf32>, tensor<48x48xf32> -> tensor<?x5x48xf32>
  %s = zorse.silu %z : tensor<?x5x48xf32>
  return %s : tensor<?x5x48xf32>
}
)";

static std::string twoClasses() {
  std::string text = kTwoClasses;
  size_t at = text.rfind("%g: tensor<48xf32>");
  return text.insert(at, "%w: tensor<48x48xf32> {@@parameter1}, ");
}

static codegen::CompiledFunctions compile(const codegen::CodegenOptions &options) {
  auto context = test::makeContext();
  auto module = test::parse(*context, twoClasses(), "f32");
  auto compiled = codegen::compileFunctions(*module, options);
  EXPECT_TRUE(succeeded(compiled));
  return std::move(*compiled);
}

TEST(CodegenApi, BytesDoNotDependOnThreadsAndEqualKernelsAreOne) {
  codegen::CodegenOptions options;
  options.useCache = false;
  options.threads = 1;
  codegen::CompiledFunctions one = compile(options);
  options.threads = 2;
  codegen::CompiledFunctions two = compile(options);
  EXPECT_EQ(one.object, two.object);
  EXPECT_EQ(one.library.SerializeAsString(), two.library.SerializeAsString());
  EXPECT_EQ(one.kernels, 2u);
  EXPECT_EQ(one.library.functions(0).launches(0).kernel().symbol(),
            one.library.functions(1).launches(0).kernel().symbol());
}

TEST(CodegenApi, CacheHoldsKernelsAndSurvivesRubbish) {
  auto directory = std::filesystem::temp_directory_path() /
                   ("zorse-codegen-cache-" + std::to_string(getpid()));
  codegen::CodegenOptions options;
  options.cacheDir = directory.string();
  codegen::CompiledFunctions first = compile(options), second = compile(options);
  EXPECT_EQ(first.compiled, 2u);
  EXPECT_EQ(second.compiled, 0u);
  EXPECT_EQ(first.object, second.object);
  for (const auto &entry : std::filesystem::directory_iterator(directory))
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << "half a fi";
  codegen::CompiledFunctions third = compile(options);
  EXPECT_EQ(third.compiled, 2u);
  EXPECT_EQ(first.object, third.object);
  std::filesystem::remove_all(directory);
}

// Objects from the cache are linked and run, so objects that other users could have written are not
// used, even if they look valid.
TEST(CodegenApi, CacheTakesNothingFromOthers) {
  namespace fs = std::filesystem;
  auto directory = fs::temp_directory_path() / ("zorse-codegen-shared-" + std::to_string(getpid()));
  codegen::CodegenOptions options;
  options.cacheDir = directory.string();
  codegen::CompiledFunctions first = compile(options);
  EXPECT_EQ(compile(options).compiled, 0u);
  std::vector<fs::path> files;
  for (const auto &entry : fs::directory_iterator(directory))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(fs::status(files[0]).permissions() & (fs::perms::group_all | fs::perms::others_all),
            fs::perms::none);

  // A file that other users can write, a link, an object under the name of another one, a checksum
  // without a key.
  fs::permissions(files[0], fs::perms::group_write, fs::perm_options::add);
  EXPECT_EQ(compile(options).compiled, 1u);
  fs::rename(files[0], directory / "elsewhere");
  fs::create_symlink("elsewhere", files[0]);
  EXPECT_EQ(compile(options).compiled, 1u);
  fs::remove(files[0]);
  fs::copy_file(files[1], files[0]);
  EXPECT_EQ(compile(options).compiled, 1u);
  std::string bytes(100, 'x');
  llvm::SHA256 unkeyed;
  unkeyed.update(files[0].stem().string());
  unkeyed.update(bytes);
  auto digest = unkeyed.final();
  std::ofstream(files[0], std::ios::binary | std::ios::trunc)
      << bytes << std::string(reinterpret_cast<const char *>(digest.data()), digest.size());
  EXPECT_EQ(compile(options).compiled, 1u);
  EXPECT_EQ(compile(options).compiled, 0u);
  EXPECT_EQ(compile(options).object, first.object);

  // A directory that other users can write is not used.
  fs::permissions(directory, fs::perms::others_write, fs::perm_options::add);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(compile(options).compiled, 2u);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "the cache of kernels is not used, because other users can write to it"),
            std::string::npos);
  fs::remove_all(directory);
}

// The linker's files become machine code. Other users can neither enter their directory, with any
// umask, nor replace it if TMPDIR is shared.
TEST(CodegenApi, LinkerFilesAreOutOfReach) {
  namespace fs = std::filesystem;
  const fs::path shared = fs::temp_directory_path() /
                          ("zorse-codegen-link-" + std::to_string(getpid()));
  fs::create_directories(shared / "bin");
  fs::create_directories(shared / "tmp");
  fs::permissions(shared / "tmp", fs::perms::all);
  codegen::CodegenOptions options;
  options.useCache = false;
  const codegen::CompiledFunctions expected = compile(options);

  // A linker that records the mode of the directory and replaces the directory before it starts.
  llvm::ErrorOr<std::string> linker = std::error_code();
  for (const char *name : {"ld.lld-22", "ld.lld", "ld", "cc"})
    if (linker = llvm::sys::findProgramByName(name); linker) {
      std::ofstream(shared / "bin" / name)
          << "#!/bin/sh\nfor word; do [ \"$before\" = -o ] && out=$word; before=$word; done\n"
          << "folder=$(readlink -f \"$(dirname \"$out\")\"); stat -c %a \"$folder\" >>"
          << shared / "modes" << "\n"
          << "mv \"$folder\" \"$folder.moved\" && mkdir -m 777 \"$folder\" && echo other "
             ">\"$folder/kernels.so\"\n"
          << "exec " << *linker << " \"$@\"\n";
      fs::permissions(shared / "bin" / name, fs::perms::owner_all);
      break;
    }
  const std::string path = std::getenv("PATH");
  setenv("PATH", ((shared / "bin").string() + ":" + path).c_str(), 1);
  setenv("TMPDIR", (shared / "tmp").c_str(), 1);
  const mode_t before = umask(0002);
  const codegen::CompiledFunctions found = compile(options);
  umask(before);
  unsetenv("TMPDIR");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(found.object, expected.object);
  std::string mode;
  std::ifstream(shared / "modes") >> mode;
  EXPECT_EQ(mode, "700");
  fs::remove_all(shared);
}

TEST(CodegenApi, PortableBaseline) {
  codegen::CodegenOptions options;
  options.useCache = false;
  options.arch = "x86-64-v3";
  EXPECT_EQ(compile(options).library.arch(), "x86-64-v3");
}

static std::string errorsOf(const std::string &text) {
  auto context = test::makeContext();
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      context.get(), [&](mlir::Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; });
  auto module = test::parse(*context, text, "f32");
  EXPECT_TRUE(module) << messages;
  codegen::CodegenOptions options;
  options.useCache = false;
  EXPECT_TRUE(failed(codegen::compileFunctions(*module, options)));
  return messages;
}

TEST(CodegenApi, ErrorsNameWhatIsWrong) {
  EXPECT_NE(errorsOf(R"(
func.func @f(%x: tensor<?x4xf32> {@@boundary_in0}) -> (tensor<?x4xf32> {@@boundary_out0}) {
  %y = "test.unknown"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
})")
                .find("'test.unknown' op has no CPU code"),
            std::string::npos);
  EXPECT_NE(errorsOf(R"(
func.func @f(%x: tensor<?x4xf32>) -> (tensor<?x4xf32> {@@boundary_out0}) {
  return %x : tensor<?x4xf32>
})")
                .find("argument 0 of @f expects zorse.argument, got none"),
            std::string::npos);
  EXPECT_NE(errorsOf(R"(
func.func @f(%x: tensor<f64> {@@known64}) -> (tensor<4xf32> {@@parameter_gradient0}) {
  %y = arith.constant dense<0.0> : tensor<4xf32>
  return %y : tensor<4xf32>
})")
                .find("expects an index from 0 to 63, got #zorse.argument<scalars, 64, known>"),
            std::string::npos);
}

// cuBLASLt refuses a matrix with overlapping rows even if it has only one row, as in the weight
// gradient of one feature.
TEST(CodegenApi, RowsOfOperandsDoNotOverlap) {
  auto context = test::makeContext();
  auto module = test::parse(*context, R"(
func.func @f(%x: tensor<?x3x1xf32> {@@boundary_in0}, %d: tensor<?x3x8xf32> {@@boundary_out_gradient0})
    -> (tensor<1x8xf32> {@@parameter_gradient0}, tensor<8x1xf32> {@@parameter_gradient1}) {
  %a = zorse.matmul_grad_weight %x, %d : tensor<?x3x1xf32>, tensor<?x3x8xf32> -> tensor<1x8xf32>
  %b = zorse.matmul_grad_weight %d, %x : tensor<?x3x8xf32>, tensor<?x3x1xf32> -> tensor<8x1xf32>
  return %a, %b : tensor<1x8xf32>, tensor<8x1xf32>
})",
                            "f32");
  ASSERT_TRUE(module);
  codegen::CodegenOptions options;
  options.useCache = false;
  auto compiled = codegen::lowerFunctions(*module, options);
  ASSERT_TRUE(succeeded(compiled));
  int products = 0;
  for (const bundle::Launch &launch : compiled->library.functions(0).launches()) {
    if (!launch.has_matmul())
      continue;
    const bundle::Matmul &p = launch.matmul();
    auto at = [](const bundle::AffineSize &extent) {
      return extent.fixed() + 5 * extent.per_row();
    };
    EXPECT_GE(p.lda(), at(p.transpose_a() ? p.m() : p.k()));
    EXPECT_GE(p.ldb(), at(p.transpose_b() ? p.k() : p.n()));
    EXPECT_GE(p.ldc(), at(p.n()));
    ++products;
  }
  EXPECT_EQ(products, 2);
}
