#include "CodegenHarness.h"

#include "../../../lib/Codegen/Common/ArgumentLayout.h"

#include "EmulatedFunction.h"
#include "TensorBytes.h"

#include "bundle.pb.h"
#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Support/ReferenceEvaluator.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <unistd.h>

using namespace mlir;
using namespace zorse;
using namespace zorse::test;

namespace {

struct Runner {
  func::FuncOp function;
  const bundle::CompiledFunction &compiled;
  int64_t rows;
  const test::RunOptions &options;
  std::vector<reference::Tensor> arguments;
  std::vector<int64_t> savedPerRow, deferredPerRow;

  Runner(func::FuncOp function, const bundle::CompiledFunction &compiled, int64_t rows,
         const test::RunOptions &options)
      : function(function), compiled(compiled), rows(rows), options(options) {
    savedPerRow = layOut(ArgumentKind::Saved);
    deferredPerRow = layOut(ArgumentKind::SavedForWeightGrad);
    std::mt19937 random(1234 + rows);
    std::normal_distribution<double> normal;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto type = cast<RankedTensorType>(function.getArgumentTypes()[i]);
      reference::Tensor tensor;
      int64_t count = 1;
      for (int64_t size : type.getShape()) {
        tensor.shape.push_back(ShapedType::isDynamic(size) ? rows : size);
        count *= tensor.shape.back();
      }
      auto number = [&](StringRef name, int64_t otherwise) {
        auto attribute = function.getArgAttrOfType<IntegerAttr>(i, name);
        return attribute ? attribute.getInt() : otherwise;
      };
      int64_t low = number("test.low", 0), high = number("test.high", 2);
      bool positive = function.getArgAttr(i, "test.positive") != nullptr;
      for (int64_t j = 0; j < count; ++j) {
        double value =
            isa<FloatType>(type.getElementType())
                ? normal(random)
                : static_cast<double>(low + static_cast<int64_t>(random() % (high - low)));
        if (positive)
          value = std::fabs(value) + 0.1;
        if (type.getElementType().isF32())
          value = static_cast<float>(value);
        if (isHalf(type.getElementType()))
          value = numberOf(halfOf(value, type.getElementType()), type.getElementType());
        tensor.values.push_back(value);
      }
      if (auto fixed = function.getArgAttrOfType<FloatAttr>(i, "test.value"))
        for (double &value : tensor.values)
          value = fixed.getValueAsDouble();
      arguments.push_back(tensor);
    }
  }

  /// Offsets, in bytes per row, of the tensors of a packed argument in the layout of its writer.
  std::vector<int64_t> layOut(ArgumentKind kind) {
    func::FuncOp owner = function;
    if (auto unitClass = dyn_cast<ClassOp>(function->getParentOp()))
      if (func::FuncOp writer = unitClass.writerOf(kind))
        owner = writer;
    std::vector<int64_t> places;
    int64_t perRow = 0;
    for (bool result : {true, false})
      for (unsigned i = 0; i < (result ? owner.getNumResults() : owner.getNumArguments()); ++i) {
        if (!isOfKind(result ? attributeOfResult(owner, i) : attributeOfArgument(owner, i), kind))
          continue;
        auto type = cast<RankedTensorType>(result ? owner.getResultTypes()[i]
                                                  : owner.getArgumentTypes()[i]);
        int64_t count = 1;
        for (int64_t size : type.getShape().drop_front())
          count *= size;
        places.push_back(perRow); // functions list saved tensors in index order
        perRow += roundUp64(count * bytesOf(type.getElementType()));
      }
    return places;
  }

  /// Address of an argument or a result.
  char *address(std::vector<Buffer> &buffers, ArgumentAttr attribute) {
    const ArgumentKind kind = attribute.getKind();
    const uint32_t index = attribute.getIndex();
    bool single = kind == ArgumentKind::Saved || kind == ArgumentKind::SavedForWeightGrad ||
                  kind == ArgumentKind::Scalars;
    for (int i = 0; i < compiled.arguments_size(); ++i)
      if (int(compiled.arguments(i).kind()) == int(kind) &&
          (single || compiled.arguments(i).index() == index)) {
        char *base = buffers[i].data.get();
        if (kind == ArgumentKind::Saved || kind == ArgumentKind::SavedForWeightGrad)
          return base + (kind == ArgumentKind::Saved ? savedPerRow : deferredPerRow)[index] * rows;
        return kind == ArgumentKind::Scalars ? base + codegen::offsetOfScalar(attribute) : base;
      }
    ADD_FAILURE() << "no argument for " << stringifyArgumentKind(kind).str() << " " << index;
    return nullptr;
  }

  std::vector<Buffer> makeBuffers() {
    std::vector<Buffer> buffers;
    for (const bundle::FunctionArgument &argument : compiled.arguments())
      buffers.emplace_back(argument.bytes().fixed() + argument.bytes().per_row() * rows);
    for (int i = 0; i < compiled.arguments_size(); ++i)
      if (compiled.arguments(i).kind() == bundle::SCALARS) {
        zorse::abi::StepScalars scalars{};
        scalars.step = 3;
        scalars.seed = 42;
        scalars.evaluation = options.evaluation;
        std::memcpy(buffers[i].data.get(), &scalars, offsetof(zorse::abi::StepScalars, sums));
      }
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      write(address(buffers, attributeOfArgument(function, i)),
            getElementTypeOrSelf(function.getArgumentTypes()[i]), arguments[i].values);
    return buffers;
  }

  auto evaluate() {
    reference::Options reference;
    reference.rows = rows;
    reference.seed = 42;
    reference.step = 3;
    reference.sampleBase = options.sampleBase;
    reference.rngIdBase = options.rngIdBase;
    reference.training = !options.evaluation;
    return reference::evaluate(function, arguments, reference);
  }

  void check(runtime::CpuDevice &one, runtime::CpuDevice &two) {
    auto expected = evaluate();
    ASSERT_TRUE(succeeded(expected));
    for (bool accumulate : {false, true}) {
      std::vector<std::vector<char>> outputs;
      for (runtime::CpuDevice *device : {&one, &two}) {
        std::vector<Buffer> buffers = makeBuffers();
        std::vector<runtime::DeviceAddress> addresses;
        std::vector<uint8_t> overwrite;
        for (Buffer &buffer : buffers)
          addresses.push_back(runtime::DeviceAddress::ofHost(buffer.data.get()));
        overwrite.assign(addresses.size(), !accumulate);
        if (accumulate)
          for (unsigned i = 0; i < function.getNumResults(); ++i)
            if (accumulates(i)) {
              size_t count = (*expected)[i].values.size();
              write(address(buffers, attributeOfResult(function, i)), element(i),
                    std::vector<double>(count, 0.5));
            }
        runtime::Status status = device->runFunction(
            compiled,
            {{rows, options.sampleBase, options.rngIdBase}, addresses.data(), overwrite.data()});
        ASSERT_FALSE(status.failed()) << status.message();
        std::vector<char> bytes;
        for (unsigned i = 0; i < function.getNumResults(); ++i) {
          const char *from = address(buffers, attributeOfResult(function, i));
          size_t count = (*expected)[i].values.size();
          bytes.insert(bytes.end(), from, from + count * bytesOf(element(i)));
          if (device == &one)
            compare(i, read(from, element(i), count), (*expected)[i].values,
                    accumulate && accumulates(i) ? 0.5 : 0.0);
        }
        outputs.push_back(bytes);
      }
      EXPECT_EQ(outputs[0], outputs[1]) << "results depend on the number of threads";
    }
  }

  /// Checks that the emulated GPU gives the same results, without findings.
  void checkEmulated(const emulator::HostCode &code, runtime::CpuDevice &products) {
    auto expected = evaluate();
    ASSERT_TRUE(succeeded(expected));
    for (bool accumulate : {false, true}) {
      std::vector<Buffer> buffers = makeBuffers();
      emulator::EmulatedCall call{rows, options.sampleBase, options.rngIdBase, {}, {}};
      for (Buffer &buffer : buffers)
        call.arguments.push_back(buffer.data.get());
      call.overwrite.assign(buffers.size(), !accumulate);
      if (accumulate)
        for (unsigned i = 0; i < function.getNumResults(); ++i)
          if (accumulates(i))
            write(address(buffers, attributeOfResult(function, i)), element(i),
                  std::vector<double>((*expected)[i].values.size(), 0.5));
      std::vector<std::string> findings = emulator::runFunction(code, products, compiled, call);
      ASSERT_TRUE(findings.empty()) << findings.front();
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        compare(i,
                read(address(buffers, attributeOfResult(function, i)), element(i),
                     (*expected)[i].values.size()),
                (*expected)[i].values, accumulate && accumulates(i) ? 0.5 : 0.0);
    }
  }

  Type element(unsigned result) { return getElementTypeOrSelf(function.getResultTypes()[result]); }
  bool accumulates(unsigned result) {
    const ArgumentKind kind = attributeOfResult(function, result).getKind();
    return (kind == ArgumentKind::BoundaryInGradient && !isHalf(element(result))) ||
           kind == ArgumentKind::ParameterGradient;
  }

  void compare(unsigned result, const std::vector<double> &got, const std::vector<double> &expected,
               double base) {
    double scale = 0.1; // sums that cancel
    for (double value : expected)
      if (std::isfinite(value))
        scale = std::max(scale, std::fabs(value));
    double tolerance = (element(result).isF64() ? options.tolerance64 : options.tolerance32) *
                       scale;
    for (size_t i = 0; i < got.size(); ++i) {
      double want = expected[i] + base;
      bool same = got[i] == want || std::fabs(got[i] - want) <= tolerance ||
                  (std::isnan(want) && std::isnan(got[i]));
      ASSERT_TRUE(same) << "result " << result << " element " << i << ": expected " << want
                        << ", got " << got[i];
    }
  }
};

} // namespace

std::unique_ptr<MLIRContext> test::makeContext() {
  DialectRegistry registry;
  registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, func::FuncDialect>();
  auto context = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  context->allowUnregisteredDialects();
  return context;
}

OwningOpRef<ModuleOp> test::parse(MLIRContext &context, std::string text, const std::string &type) {
  for (size_t at; (at = text.find("$T")) != std::string::npos;)
    text.replace(at, 2, type);
  // The seed of a loss is f64.
  for (size_t at; (at = text.find("$CAST")) != std::string::npos;)
    text.replace(at, 5,
                 type == "f64" ? "%s = arith.addf %seed, %seed : tensor<f64>"
                               : "%s0 = arith.addf %seed, %seed : tensor<f64>\n  %s = arith.truncf "
                                 "%s0 : tensor<f64> to tensor<" +
                                     type + ">");
  // Expands the short forms of the argument attributes of arguments and results.
  for (size_t at = 0; (at = text.find("@@", at)) != std::string::npos;) {
    size_t end = at + 2;
    std::string kind, index;
    for (; end < text.size() && (std::isalpha(text[end]) || text[end] == '_'); ++end)
      kind += text[end];
    for (; end < text.size() && std::isdigit(text[end]); ++end)
      index += text[end];
    const bool field = symbolizeScalarField(kind).has_value();
    text.replace(at, end - at,
                 "zorse.argument = #zorse.argument<" +
                     (field ? "scalars, " + index + ", " + kind : kind + ", " + index) + ">");
  }
  return parseSourceString<ModuleOp>(text, &context);
}

void test::checkFunctions(const std::string &text, const RunOptions &options) {
  for (const std::string &type : options.types) {
    SCOPED_TRACE(type);
    auto context = makeContext();
    OwningOpRef<ModuleOp> module = parse(*context, text, type);
    ASSERT_TRUE(module);
    if (options.split)
      for (auto unitClass : module->getOps<ClassOp>())
        EXPECT_TRUE(autodiff::splitBackward(unitClass.function(Task::Backward)).inputs)
            << "nothing to split";
    codegen::CodegenOptions codegenOptions;
    codegenOptions.useCache = false;
    codegenOptions.optimizationLevel = 2;
    codegenOptions.dumpDir = options.dumpDir;
    auto compiled = codegen::compileFunctions(*module, codegenOptions);
    ASSERT_TRUE(succeeded(compiled));
    std::string path = (std::filesystem::temp_directory_path() /
                        ("zorse-codegen-test-" + std::to_string(getpid()) + ".so"))
                           .string();
    std::ofstream(path, std::ios::binary) << compiled->object;
    std::unique_ptr<runtime::CpuDevice> devices[2];
    for (int threads : {1, 2}) {
      runtime::CpuDeviceOptions deviceOptions;
      deviceOptions.threads = threads;
      auto device = runtime::CpuDevice::create(deviceOptions);
      ASSERT_FALSE(device.failed()) << device.message();
      devices[threads - 1] = std::move(*device);
      runtime::Status status = devices[threads - 1]->loadObject(path);
      ASSERT_FALSE(status.failed()) << status.message();
    }
    std::unique_ptr<emulator::HostCode> emulated;
    FailureOr<codegen::CompiledFunctions> cuda = failure();
    if (options.cuda && type != "f64") {
      codegenOptions.arch = "emu";
      cuda = codegen::compileFunctions(*module, codegenOptions);
      ASSERT_TRUE(succeeded(cuda));
      std::string error;
      emulated = emulator::HostCode::compile(cuda->object, error);
      ASSERT_TRUE(emulated) << error;
    }
    int index = 0;
    for (func::FuncOp function : functionsInOrder(*module)) {
      SCOPED_TRACE(compiledFunctionName(function));
      if (emulated)
        for (int64_t rows : options.rows) {
          SCOPED_TRACE("emulated, rows " + std::to_string(rows));
          Runner(function, cuda->library.functions(index), rows, options)
              .checkEmulated(*emulated, *devices[0]);
          if (::testing::Test::HasFatalFailure())
            return;
        }
      const bundle::CompiledFunction &code = compiled->library.functions(index++);
      for (int64_t rows : options.rows) {
        SCOPED_TRACE("rows " + std::to_string(rows));
        Runner(function, code, rows, options).check(*devices[0], *devices[1]);
        if (::testing::Test::HasFatalFailure())
          return;
      }
    }
    std::filesystem::remove(path);
  }
}
