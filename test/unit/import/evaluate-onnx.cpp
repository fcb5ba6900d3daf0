// Imports an ONNX file, optionally recognizes its ops, and evaluates @model with the file's own
// weights. Python tests compare the output with PyTorch.
//
//   evaluate-onnx model.onnx rows [--seq-length N] [--recognize] [--f64] [--print]
//                 [--loss cross_entropy] [--gradients] [--differences] [--infer-trainable]
//                 name=ids.bin ...
//
// Inputs are raw int64 of rows x shape, or float64 if the name ends in ':f'. Prints one line per
// result (role, number of the term or count, and the rows' values), then the loss. --gradients also
// prints one line per trained parameter: its name and the elements of its gradient. With
// --differences, each line ends in finite differences of the loss instead: pairs of an element and
// the slope of the loss, or nan if the loss is not smooth there. The importer's decisions are
// printed to stderr.
#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseDialect.h"
#include "zorse/Import/ONNX/Import.h"
#include "zorse/Support/ReferenceEvaluator.h"
#include "zorse/Transforms/Passes.h"
#include "zorse/runtime/Expression.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

using namespace llvm;
using namespace zorse;

static std::vector<double> decode(const WeightSource &weight) {
  int64_t count = 1;
  for (int64_t size : weight.shape)
    count *= size;
  std::vector<double> out(count);
  for (int64_t i = 0; i < count; ++i) {
    switch (weight.storedType) {
    case WeightSource::Type::F64: {
      double v;
      std::memcpy(&v, weight.data + 8 * i, 8);
      out[i] = v;
      break;
    }
    case WeightSource::Type::I64: {
      int64_t v;
      std::memcpy(&v, weight.data + 8 * i, 8);
      out[i] = static_cast<double>(v);
      break;
    }
    case WeightSource::Type::Bool:
      out[i] = weight.data[i];
      break;
    case WeightSource::Type::BF16: {
      uint16_t h;
      std::memcpy(&h, weight.data + 2 * i, 2);
      uint32_t w = uint32_t(h) << 16;
      float v;
      std::memcpy(&v, &w, 4);
      out[i] = v;
      break;
    }
    case WeightSource::Type::F16: {
      uint16_t h;
      std::memcpy(&h, weight.data + 2 * i, 2);
      llvm::APFloat half(llvm::APFloat::IEEEhalf(), llvm::APInt(16, h));
      bool exact;
      half.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &exact);
      out[i] = half.convertToDouble();
      break;
    }
    case WeightSource::Type::F32: {
      float v;
      std::memcpy(&v, weight.data + 4 * i, 4);
      out[i] = v;
      break;
    }
    default: // does not occur in ONNX's cases
      std::fprintf(stderr, "error: a parameter is stored in a type that this tool does not read\n");
      std::exit(1);
    }
  }
  return out;
}

/// Returns " : element difference ..." for some elements of argument `which`, by central
/// differences with two widths. If the two disagree, the loss is not smooth.
static std::string
differencesOf(std::vector<reference::Tensor> arguments, unsigned which,
              const std::function<double(const std::vector<reference::Tensor> &)> &loss) {
  constexpr int64_t kMax = 12;
  std::vector<double> &values = arguments[which].values;
  std::string text = " :";
  const auto size = static_cast<int64_t>(values.size()), step = std::max<int64_t>(1, size / kMax);
  for (int64_t i = 0; i < size; i += step) {
    const double before = values[i];
    auto slope = [&](double width) {
      values[i] = before + width;
      const double above = loss(arguments);
      values[i] = before - width;
      const double below = loss(arguments);
      values[i] = before;
      return (above - below) / (2 * width);
    };
    const double width = 1e-4 * std::max(1.0, std::abs(before)), wide = slope(width),
                 narrow = slope(width / 4);
    const double size = std::max({std::abs(wide), std::abs(narrow), 1e-3});
    const double here = loss(arguments);
    values[i] = before + width / 16;
    const double near = loss(arguments);
    values[i] = before;
    // If the second derivative jumps, as that of x / (1 + |x|) at 0, the difference of the slopes
    // is proportional to that of the widths.
    const bool smooth = std::abs(wide - narrow) <= 5e-6 * size &&
                        std::abs((near - here) / (width / 16) - narrow) <= 1e-2 * size;
    char line[80];
    // The error of a central difference grows with the square of its width.
    std::snprintf(line, sizeof line, " %lld %.17g", static_cast<long long>(i),
                  smooth ? narrow + (narrow - wide) / 15 : std::nan(""));
    text += line;
  }
  return text;
}

static double reduced(const std::vector<double> &values, StringRef reduce) {
  return reduce == "max"   ? *std::max_element(values.begin(), values.end())
         : reduce == "min" ? *std::min_element(values.begin(), values.end())
                           : std::accumulate(values.begin(), values.end(), 0.0);
}

/// Prints the gradient of the loss with respect to the trained parameters, computed with the
/// differentiation rules of units.
/// \param seeds  factor of every numerator
/// \param loss  loss as a function of the arguments; null: print only gradients
static bool
printGradients(mlir::func::FuncOp function, const std::vector<reference::Tensor> &arguments,
               const reference::Options &options, const std::map<int64_t, double> &seeds,
               const std::function<double(const std::vector<reference::Tensor> &)> &loss) {
  mlir::Block &body = function.getBody().front();
  mlir::Operation *end = body.getTerminator();
  std::map<std::pair<ArgumentKind, int64_t>, reference::Tensor> slots;
  std::vector<std::string> names;
  SmallVector<mlir::Value> results, trainable;
  SmallVector<mlir::Type> types;
  SmallVector<int64_t> terms;
  mlir::Builder builder(function.getContext());
  auto argument = [&](ArgumentKind kind, int64_t index) {
    return ArgumentAttr::get(builder.getContext(), kind, uint32_t(index));
  };
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (function.getResultAttrOfType<mlir::StringAttr>(i, attributes::kRole).getValue() ==
        "numerator") {
      results.push_back(end->getOperand(i));
      types.push_back(end->getOperand(i).getType());
      terms.push_back(
          function.getResultAttrOfType<mlir::IntegerAttr>(i, attributes::kTerm).getInt());
    }
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (auto attribute = function.getArgAttrOfType<mlir::BoolAttr>(i, attributes::kTrainable);
        attribute && attribute.getValue())
      trainable.push_back(function.getArgument(i));
  std::map<unsigned, std::string> differences;
  for (unsigned i = 0; loss && i < function.getNumArguments(); ++i)
    if (is_contained(trainable, function.getArgument(i)))
      differences[i] = differencesOf(arguments, i, loss);
  DenseSet<mlir::Value> active = autodiff::activeValues(body, trainable, results);
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto parameter = function.getArgAttrOfType<mlir::StringAttr>(i, attributes::kParameter);
    names.push_back(parameter ? parameter.str() : "");
    slots[{parameter ? ArgumentKind::Parameter : ArgumentKind::Input, i}] = arguments[i];
    function.setArgAttr(i, attributes::kArgument,
                        argument(parameter ? ArgumentKind::Parameter : ArgumentKind::Input, i));
    if (is_contained(trainable, function.getArgument(i)) &&
        active.contains(function.getArgument(i)))
      function.setArgAttr(i, autodiff::kGradientAttr, builder.getUnitAttr());
  }
  end->setOperands(results);
  function.removeResAttrsAttr();
  function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  for (auto [k, term] : llvm::enumerate(terms)) {
    function.setResultAttr(k, attributes::kArgument, argument(ArgumentKind::Loss, term));
    slots[{ArgumentKind::Scalars, term}] = reference::Tensor::filled({}, seeds.at(term));
  }
  auto pair = autodiff::differentiate(function, autodiff::RecomputePolicy::MinCut);
  if (mlir::failed(pair) || !pair->backward)
    return false;
  auto keyOf = [](ArgumentAttr slot) {
    return std::pair(slot.getKind(), int64_t(slot.getIndex()));
  };
  auto run = [&](mlir::func::FuncOp part) {
    std::vector<reference::Tensor> operands;
    for (unsigned i = 0; i < part.getNumArguments(); ++i)
      operands.push_back(slots.at(keyOf(attributeOfArgument(part, i))));
    auto values = reference::evaluate(part, operands, options);
    for (unsigned i = 0; mlir::succeeded(values) && i < part.getNumResults(); ++i)
      slots[keyOf(attributeOfResult(part, i))] = (*values)[i];
    return mlir::succeeded(values);
  };
  if (!run(pair->forward) || !run(pair->backward))
    return false;
  for (auto &[argument, value] : slots)
    if (argument.first == ArgumentKind::ParameterGradient) {
      std::printf("gradient %s", names[argument.second].c_str());
      for (double element : value.values)
        std::printf(" %.17g", element);
      std::printf("%s\n", differences[argument.second].c_str());
      differences.erase(argument.second);
    }
  for (auto &[i, text] : differences) // the loss does not depend on it, so it has no gradient
    std::printf("gradient %s%s\n", names[i].c_str(), text.c_str());
  return true;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    errs() << "usage: evaluate-onnx model.onnx rows [options] name=file ...\n";
    return 2;
  }
  ImportOptions options;
  options.inputsAlone = true;
  int64_t rows = std::atoll(argv[2]);
  bool recognize = false, print = false, gradients = false, differences = false;
  std::map<std::string, std::string> inputs;
  for (int i = 3; i < argc; ++i) {
    StringRef argument = argv[i];
    if (argument == "--recognize")
      recognize = true;
    else if (argument == "--print")
      print = true;
    else if (argument == "--gradients")
      gradients = true;
    else if (argument == "--differences")
      gradients = differences = true;
    else if (argument == "--infer-trainable")
      options.trustGuess = true;
    else if (argument == "--f64")
      options.compute = ComputeType::F64;
    else if (argument == "--seq-length")
      options.sequence = std::atoll(argv[++i]);
    else if (argument == "--loss")
      options.loss = argv[++i];
    else if (argument == "--shift")
      options.shiftLabels = true;
    else {
      auto [name, file] = argument.split('=');
      inputs[name.str()] = file.str();
    }
  }
  mlir::DialectRegistry registry;
  autodiff::registerDifferentiableModels(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  auto model = importOnnx(argv[1], options, context);
  if (mlir::failed(model))
    return 1;
  for (const std::string &warning : model->warnings)
    errs() << "warning: " << warning << "\n";
  for (const std::string &note : model->notes)
    errs() << "note: " << note << "\n";
  if (recognize) {
    mlir::PassManager passes(&context);
    addRecognitionPasses(passes);
    if (mlir::failed(passes.run(*model->module)))
      return 1;
  }
  if (print)
    model->module->print(outs());
  auto function = model->module->lookupSymbol<mlir::func::FuncOp>("model");
  std::map<std::string, const WeightSource *> weights;
  for (const WeightSource &weight : model->weights)
    weights[weight.parameter] = &weight;
  auto lifted = model->module.get()->getAttrOfType<mlir::DictionaryAttr>(kConstantValueAttr);
  std::vector<reference::Tensor> arguments;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto type = cast<mlir::RankedTensorType>(function.getArgument(i).getType());
    reference::Tensor tensor;
    tensor.shape = type.getShape().vec();
    if (auto name = function.getArgAttrOfType<mlir::StringAttr>(i, attributes::kInput)) {
      tensor.shape[0] = rows;
      tensor = reference::Tensor::filled(tensor.shape, 0);
      auto buffer = MemoryBuffer::getFile(inputs[name.str()]);
      if (!buffer || (*buffer)->getBufferSize() < tensor.values.size() * 8) {
        errs() << "no data for input '" << name.str() << "'\n";
        return 1;
      }
      for (size_t k = 0; k < tensor.values.size(); ++k) {
        if (isa<mlir::FloatType>(type.getElementType())) {
          std::memcpy(&tensor.values[k], (*buffer)->getBufferStart() + 8 * k, 8);
        } else {
          int64_t v;
          std::memcpy(&v, (*buffer)->getBufferStart() + 8 * k, 8);
          tensor.values[k] = static_cast<double>(v);
        }
      }
    } else {
      std::string parameter =
          function.getArgAttrOfType<mlir::StringAttr>(i, attributes::kParameter).str();
      if (weights.count(parameter)) {
        tensor.values = decode(*weights[parameter]);
      } else if (auto value = lifted
                                  ? dyn_cast_or_null<mlir::DenseElementsAttr>(lifted.get(parameter))
                                  : mlir::DenseElementsAttr()) {
        for (mlir::Attribute element : value.getValues<mlir::Attribute>())
          tensor.values.push_back(
              isa<mlir::FloatAttr>(element)
                  ? cast<mlir::FloatAttr>(element).getValueAsDouble()
                  : static_cast<double>(
                        cast<mlir::IntegerAttr>(element).getValue().getSExtValue()));
      } else {
        errs() << "no value for parameter '" << parameter << "'\n";
        return 1;
      }
    }
    arguments.push_back(std::move(tensor));
  }
  reference::Options evaluation;
  evaluation.rows = rows;
  // Every evaluation gives one more count, because each depends on inputs and on earlier counts.
  evaluation.counts.assign(Expression::kMaxCounts, std::numeric_limits<double>::quiet_NaN());
  auto results = reference::evaluate(function, arguments, evaluation);
  std::vector<double> counts;
  for (unsigned i = 0; mlir::succeeded(results) && i < function.getNumResults(); ++i)
    if (auto reduce = function.getResultAttrOfType<mlir::StringAttr>(i, attributes::kReduce)) {
      counts.push_back(reduced((*results)[i].values, reduce.getValue()));
      evaluation.counts[counts.size() - 1] = counts.back();
      results = reference::evaluate(function, arguments, evaluation);
    }
  if (mlir::failed(results))
    return 1;
  std::map<int64_t, double> seeds;
  for (unsigned i = 0; i < results->size(); ++i) {
    StringRef role =
        function.getResultAttrOfType<mlir::StringAttr>(i, attributes::kRole).getValue();
    const bool isCount = role == "count";
    std::printf("%s %lld", role.str().c_str(),
                static_cast<long long>(function
                                           .getResultAttrOfType<mlir::IntegerAttr>(
                                               i, isCount ? attributes::kCount : attributes::kTerm)
                                           .getInt()));
    for (double value : (*results)[i].values)
      std::printf(" %.17g", value);
    std::printf("\n");
  }
  double loss = 0;
  for (unsigned i = 0; i < results->size(); ++i)
    if (auto factor = function.getResultAttrOfType<mlir::StringAttr>(i, attributes::kFactor)) {
      auto expression = Expression::parse(factor.getValue());
      const double value = expression.failed()
                               ? std::nan("")
                               : expression->evaluate(static_cast<double>(rows), counts);
      seeds[function.getResultAttrOfType<mlir::IntegerAttr>(i, attributes::kTerm).getInt()] = value;
      loss += value * reduced((*results)[i].values, "sum");
    }
  int64_t operations = 0;
  function.walk([&](mlir::Operation *op) {
    operations += !isa<mlir::func::FuncOp, mlir::func::ReturnOp>(op);
  });
  std::printf("operations %lld of %lld nodes\nloss %.17g\n", static_cast<long long>(operations),
              static_cast<long long>(model->nodesRead), loss);
  if (gradients) {
    auto lossOf = [&](const std::vector<reference::Tensor> &changed) {
      auto values = reference::evaluate(function, changed, evaluation);
      double sum = 0;
      for (unsigned i = 0; mlir::succeeded(values) && i < values->size(); ++i)
        if (function.getResultAttr(i, attributes::kFactor))
          sum +=
              seeds.at(
                  function.getResultAttrOfType<mlir::IntegerAttr>(i, attributes::kTerm).getInt()) *
              reduced((*values)[i].values, "sum");
      return sum;
    };
    return printGradients(function, arguments, evaluation, seeds,
                          differences
                              ? lossOf
                              : std::function<double(const std::vector<reference::Tensor> &)>())
               ? 0
               : 1;
  }
  return 0;
}
