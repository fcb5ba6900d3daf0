// Compiles the functions of the devices of a group, runs their segments and exchanges on the CPU
// device, and compares results and gradients with those of the undivided functions in the reference
// evaluator.
#include "../autodiff/UnitFunctions.h"
#include "../units/Models.h"
#include "TensorBytes.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/Sharding/DivideUnits.h"
#include "zorse/Units/Units.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/abi/StepScalars.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <unistd.h>

using namespace mlir;
using namespace zorse;
using namespace zorse::testing;

namespace {

constexpr int64_t kRows = 3;
using Key = std::pair<uint32_t, uint32_t>; ///< kind and index of an argument of a compiled function

Key keyOfArgument(const bundle::FunctionArgument &argument) {
  return {argument.kind(), argument.index()};
}

/// Points of a parameter that a device has.
std::vector<int64_t> pointsOf(DictionaryAttr shard) {
  std::vector<int64_t> points;
  const int64_t first = cast<IntegerAttr>(shard.get("first")).getInt(),
                count = cast<IntegerAttr>(shard.get("count")).getInt();
  for (auto [begin, width] : llvm::zip(cast<DenseI64ArrayAttr>(shard.get("begins")).asArrayRef(),
                                       cast<DenseI64ArrayAttr>(shard.get("widths")).asArrayRef()))
    for (int64_t i = first * width; i < (first + count) * width; ++i)
      points.push_back(begin + i);
  return points;
}

/// Returns a device's part, with the divided dimension first.
Tensor partOf(const Tensor &whole, DictionaryAttr shard) {
  if (!shard)
    return whole;
  const auto dim = static_cast<size_t>(cast<IntegerAttr>(shard.get("dim")).getInt());
  const std::vector<int64_t> points = pointsOf(shard);
  Tensor part;
  part.shape = {static_cast<int64_t>(points.size())};
  for (size_t i = 0; i < whole.shape.size(); ++i)
    if (i != dim)
      part.shape.push_back(whole.shape[i]);
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < whole.shape.size(); ++i)
    (i < dim ? outer : inner) *= i == dim ? 1 : whole.shape[i];
  for (int64_t point : points)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i)
        part.values.push_back(
            whole.values[static_cast<size_t>((o * whole.shape[dim] + point) * inner + i)]);
  return part;
}

/// A device of a group: its class and the memory of its arguments.
struct Member {
  ClassOp unitClass;
  std::map<Key, zorse::test::Buffer> memory;

  zorse::test::Buffer &argument(const bundle::FunctionArgument &argument) {
    const size_t bytes =
        static_cast<size_t>(argument.bytes().fixed() + argument.bytes().per_row() * kRows);
    const Key key = keyOfArgument(argument);
    if (auto found = memory.find(key); found != memory.end() && found->second.size < bytes)
      memory.erase(found); // the workspace of another function
    return memory.try_emplace(key, bytes).first->second;
  }
};

class Group {
public:
  Group(runtime::CpuDevice &device, const bundle::FunctionLibrary &library,
        const bundle::ModelSummary &summary, std::vector<Member> members)
      : device(device), library(library), summary(summary), members(std::move(members)) {}

  /// Runs a task of all devices. \param inputs  of the undivided function, by argument
  void run(Task task, const Arguments &inputs) {
    std::vector<const bundle::CompiledFunction *> functions;
    for (Member &member : members) {
      functions.push_back(compiled(member.unitClass.function(task)));
      fill(member, member.unitClass.function(task), *functions.back(), inputs);
    }
    int exchanges = 0;
    for (const bundle::Launch &launch : functions[0]->launches())
      exchanges += launch.has_exchange();
    for (int segment = 0; segment <= exchanges; ++segment) {
      for (size_t m = 0; m < members.size(); ++m)
        call(members[m], *functions[m], segment);
      if (segment < exchanges)
        exchange(functions, segment);
    }
  }

  /// Returns a result of a device.
  Tensor result(size_t m, func::FuncOp function, unsigned i) {
    ArgumentAttr attribute = attributeOfResult(function, i);
    Tensor tensor;
    tensor.shape = shapeWithRows(function.getResultTypes()[i], kRows);
    int64_t count = 1;
    for (int64_t size : tensor.shape)
      count *= size;
    const auto &buffer =
        members[m].memory.at({uint32_t(attribute.getKind()), attribute.getIndex()});
    tensor.values = zorse::test::read(buffer.data.get(),
                                      getElementTypeOrSelf(function.getResultTypes()[i]),
                                      static_cast<size_t>(count));
    return tensor;
  }

  size_t exchangesRun = 0;

private:
  const bundle::CompiledFunction *compiled(func::FuncOp function) {
    for (const bundle::CompiledFunction &one : library.functions())
      if (one.name() == compiledFunctionName(function))
        return &one;
    ADD_FAILURE() << "no code for " << compiledFunctionName(function);
    return nullptr;
  }

  void fill(Member &member, func::FuncOp function, const bundle::CompiledFunction &code,
            const Arguments &inputs) {
    for (const bundle::FunctionArgument &argument : code.arguments()) {
      auto &buffer = member.argument(argument);
      if (argument.kind() == bundle::SCALARS) {
        zorse::abi::StepScalars scalars{};
        scalars.step = reference::Options().step; // dropout
        for (double &seed : scalars.lossGradient)
          seed = 0.5;
        std::memcpy(buffer.data.get(), &scalars, offsetof(zorse::abi::StepScalars, sums));
      }
    }
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      ArgumentAttr attribute = attributeOfArgument(function, i);
      if (isOfKind(attribute, ArgumentKind::Saved) || isOfKind(attribute, ArgumentKind::Scalars))
        continue;
      DictionaryAttr shard;
      if (isOfKind(attribute, ArgumentKind::Parameter))
        shard = shardOf(member, attribute.getIndex());
      auto found = member.memory.find({uint32_t(attribute.getKind()), attribute.getIndex()});
      if (found != member.memory.end())
        zorse::test::write(found->second.data.get(),
                           getElementTypeOrSelf(function.getArgumentTypes()[i]),
                           partOf(inputs.at(keyOf(attribute)), shard).values);
    }
  }

  static DictionaryAttr shardOf(Member &member, uint32_t parameter) {
    func::FuncOp forward = member.unitClass.definer();
    for (unsigned i = 0; i < forward.getNumArguments(); ++i)
      if (ArgumentAttr attribute = attributeOfArgument(forward, i);
          isOfKind(attribute, ArgumentKind::Parameter) && attribute.getIndex() == parameter)
        return forward.getArgAttrOfType<DictionaryAttr>(i, sharding::kShardAttr);
    return {};
  }

  void call(Member &member, const bundle::CompiledFunction &code, int segment) {
    std::vector<runtime::DeviceAddress> addresses;
    for (const bundle::FunctionArgument &argument : code.arguments())
      addresses.push_back(runtime::DeviceAddress::ofHost(member.argument(argument).data.get()));
    const std::vector<uint8_t> overwrite(addresses.size(), 1);
    runtime::FunctionArguments arguments{{kRows, 0, 0}, addresses.data(), overwrite.data()};
    arguments.segment = static_cast<uint32_t>(segment);
    const runtime::Status status = device.runFunction(code, arguments);
    ASSERT_FALSE(status.failed()) << status.message();
  }

  /// Does what the summary says about an exchange.
  void exchange(const std::vector<const bundle::CompiledFunction *> &functions, int segment) {
    ++exchangesRun;
    const bundle::UnitFunction::Exchange *described = nullptr;
    std::vector<char *> buffers;
    for (size_t m = 0; m < members.size(); ++m) {
      int left = segment;
      for (const bundle::Launch &launch : functions[m]->launches())
        if (launch.has_exchange() && left-- == 0) {
          const bundle::FunctionArgument &argument =
              functions[m]->arguments(int(launch.exchange().argument()));
          ASSERT_EQ(argument.kind(), bundle::EXCHANGE);
          buffers.push_back(members[m].argument(argument).data.get());
          described = find(argument.index());
        }
    }
    ASSERT_TRUE(described);
    ASSERT_EQ(described->type(), bundle::F64);
    std::vector<size_t> begins{0};
    for (const bundle::AffineSize &part : described->parts())
      begins.push_back(begins.back() + static_cast<size_t>(part.fixed() + part.per_row() * kRows));
    if (described->kind() == bundle::UnitFunction::Exchange::ALL_REDUCE) {
      ASSERT_EQ(described->parts_size(), 1);
      std::vector<double> sum(begins[1] / sizeof(double), 0);
      for (const char *buffer : buffers)
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += reinterpret_cast<const double *>(buffer)[i];
      for (char *buffer : buffers)
        std::memcpy(buffer, sum.data(), begins[1]);
      return;
    }
    ASSERT_EQ(described->parts_size(), int(members.size()));
    for (size_t from = 0; from < buffers.size(); ++from)
      for (size_t to = 0; to < buffers.size(); ++to)
        if (from != to)
          std::memcpy(buffers[to] + begins[from], buffers[from] + begins[from],
                      begins[from + 1] - begins[from]);
  }

  const bundle::UnitFunction::Exchange *find(uint32_t number) {
    for (const bundle::UnitClass &unitClass : summary.classes())
      if (unitClass.name() == members[0].unitClass.getSymName().str())
        for (const bundle::UnitFunction &function : unitClass.functions())
          for (const bundle::UnitFunction::Exchange &exchange : function.exchanges())
            if (exchange.number() == number)
              return &exchange;
    return nullptr;
  }

  runtime::CpuDevice &device;
  const bundle::FunctionLibrary &library;
  const bundle::ModelSummary &summary;

public:
  std::vector<Member> members;
};

bool isInteger(Type type) { return !isa<FloatType>(getElementTypeOrSelf(type)); }

class DividedFunctions : public ::testing::Test {
protected:
  /// Compares all divided units of a model.
  void compare(const std::string &text, const std::vector<double> &shares) {
    auto context = makeContext();
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, context.get());
    ASSERT_TRUE(module);
    divide(*module, shares);
    FailureOr<bundle::ModelSummary> summary = units::summarize(*module);
    ASSERT_TRUE(succeeded(summary));
    codegen::CodegenOptions options;
    options.useCache = false;
    auto compiled = codegen::compileFunctions(*module, options);
    ASSERT_TRUE(succeeded(compiled));
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("zorse-divided-" + std::to_string(getpid()) + ".so"))
                                 .string();
    std::ofstream(path, std::ios::binary) << compiled->object;
    auto device = runtime::CpuDevice::create({});
    ASSERT_FALSE(device.failed()) << device.message();
    ASSERT_FALSE((*device)->loadObject(path).failed());
    std::filesystem::remove(path);
    auto model = module->lookupSymbol<func::FuncOp>("model");
    std::set<std::string> done;
    for (auto unit : model.getOps<UnitOp>()) {
      auto groups = unit->getAttrOfType<DictionaryAttr>(sharding::kGroupsAttr);
      ASSERT_TRUE(groups);
      if (!done.insert(unit.getCallee().str()).second)
        continue;
      SCOPED_TRACE(unit.getCallee().str());
      std::vector<Member> members;
      for (Attribute symbol : cast<ArrayAttr>(groups.begin()->getValue()))
        members.push_back({module->lookupSymbol<ClassOp>(cast<FlatSymbolRefAttr>(symbol)), {}});
      Group group(**device, compiled->library, *summary, std::move(members));
      compareUnit(unit.unitClass(), group);
      exchanges += group.exchangesRun;
    }
  }

  static void divide(ModuleOp module, const std::vector<double> &shares) {
    bundle::ModelSummary settings;
    settings.mutable_training()->set_optimizer(bundle::TrainingOptions::SGD);
    PassManager first(module.getContext());
    first.addPass(units::createHashModel());
    first.addPass(units::createConfigure({units::settingsText(settings), "rank", 1}));
    first.addPass(units::createFindUnits());
    first.addPass(autodiff::createJoinBackward());
    ASSERT_TRUE(succeeded(first.run(module)));
    const auto units =
        std::distance(module.lookupSymbol<func::FuncOp>("model").getOps<UnitOp>().begin(),
                      module.lookupSymbol<func::FuncOp>("model").getOps<UnitOp>().end());
    PassManager second(module.getContext());
    std::vector<int64_t> all(static_cast<size_t>(units));
    std::iota(all.begin(), all.end(), 0);
    second.addPass(sharding::createDivideUnits({{"g", all, shares}}, /*flopsPerByte=*/0));
    second.addPass(autodiff::createChooseSaved(autodiff::RecomputePolicy::MinCut));
    second.addPass(autodiff::createSliceJoint());
    ASSERT_TRUE(succeeded(second.run(module)));
  }

  void compareUnit(ClassOp whole, Group &group) {
    reference::Options options;
    options.rows = kRows;
    std::mt19937 random(17); // NOLINT(bugprone-random-generator-seed): the same numbers in every
                             // run
    Arguments arguments;
    auto add = [&](func::FuncOp function) {
      for (unsigned i = 0; i < function.getNumArguments(); ++i) {
        const auto key = keyOf(attributeOfArgument(function, i));
        if (arguments.count(key))
          continue;
        Type type = function.getArgumentTypes()[i];
        Tensor tensor = randomTensor(type, kRows, random, 0.1, 1);
        for (double &value : tensor.values)
          value = isInteger(type)          ? static_cast<double>(random() % 8)
                  : key.first == "scalars" ? 0.5
                                           : value;
        arguments[key] = tensor;
      }
    };
    for (Task task : {Task::Forward, Task::Backward}) {
      func::FuncOp function = whole.function(task);
      add(function);
      Arguments expected = run(function, arguments, options);
      ASSERT_FALSE(expected.empty() && function.getNumResults());
      group.run(task, arguments);
      if (::testing::Test::HasFatalFailure())
        return;
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        if (!isOfKind(attributeOfResult(function, i), ArgumentKind::Saved))
          compareResult(attributeOfResult(function, i),
                        expected.at(keyOf(attributeOfResult(function, i))), group, task);
      for (auto &[key, value] : expected)
        arguments.insert({key, value}); // saved tensors
    }
  }

  /// Adds up summands, and compares parts and whole values.
  void compareResult(ArgumentAttr attribute, const Tensor &expected, Group &group, Task task) {
    Tensor sum;
    size_t found = 0;
    for (size_t m = 0; m < group.members.size(); ++m) {
      func::FuncOp function = group.members[m].unitClass.function(task);
      for (unsigned i = 0; i < function.getNumResults(); ++i) {
        if (attributeOfResult(function, i) != attribute)
          continue;
        const Tensor got = group.result(m, function, i);
        const auto [shard, partial] = storage(group.members[m].unitClass, attribute);
        ++found;
        if (!partial)
          expectEqual(got, partOf(expected, shard), "device " + std::to_string(m));
        else if (sum.values.empty())
          sum = got;
        else
          for (size_t k = 0; k < sum.values.size(); ++k)
            sum.values[k] += got.values[k];
      }
    }
    EXPECT_GT(found, 0U) << "no device computes it";
    if (!sum.values.empty())
      expectEqual(sum, expected, "sum");
  }

  static std::pair<DictionaryAttr, bool> storage(ClassOp unitClass, ArgumentAttr gradient) {
    func::FuncOp forward = unitClass.definer();
    for (unsigned i = 0;
         i < forward.getNumArguments() && isOfKind(gradient, ArgumentKind::ParameterGradient); ++i)
      if (ArgumentAttr attribute = attributeOfArgument(forward, i);
          isOfKind(attribute, ArgumentKind::Parameter) &&
          attribute.getIndex() == gradient.getIndex())
        return {forward.getArgAttrOfType<DictionaryAttr>(i, sharding::kShardAttr),
                bool(forward.getArgAttr(i, sharding::kPartialGradientAttr))};
    return {{}, false};
  }

  void expectEqual(const Tensor &got, const Tensor &expected, const std::string &where) {
    ASSERT_EQ(got.shape, expected.shape) << where;
    double scale = 1e-6;
    for (double value : expected.values)
      scale = std::max(scale, std::abs(value));
    for (size_t i = 0; i < got.values.size(); ++i)
      ASSERT_LE(std::abs(got.values[i] - expected.values[i]), 1e-9 * scale)
          << where << ", element " << i;
  }

  size_t exchanges = 0;
};

TEST_F(DividedFunctions, Gpt) {
  compare(readModel("gpt.mlir"), {1, 1});
  EXPECT_GE(exchanges, 4U);
}
TEST_F(DividedFunctions, Llama) { compare(readModel("llama.mlir"), {1, 1}); }
TEST_F(DividedFunctions, PostNorm) { compare(postNormModel(2), {2, 1}); }
TEST_F(DividedFunctions, ParallelLayers) { compare(parallelModel(2), {1, 1}); }
TEST_F(DividedFunctions, EncoderDecoder) { compare(encoderDecoderModel(2), {1, 1}); }

} // namespace
