// Imports an ONNX file, optionally recognises its ops, and evaluates @model on the file's own weights: what a reference in Python compares with PyTorch.
//
//   evaluate-onnx model.onnx rows [--seq N] [--recognize] [--f64] [--print] [--loss cross_entropy] name=ids.bin ...
//
// Inputs are raw int64 (or float64 with a name ending in ':f') of rows x shape. Prints one line per result: term, role, coefficient, denominator per row, and the rows' values; then the loss.
#include "zorse/Dialect/Zorse/ZorseDialect.h"
#include "zorse/Import/ONNX/Import.h"
#include "zorse/Support/ReferenceEvaluator.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstring>
#include <map>

using namespace llvm;
using namespace zorse;

static std::vector<double> decode(const WeightSource &weight) {
  int64_t count = 1;
  for (int64_t size : weight.shape)
    count *= size;
  std::vector<double> out(count);
  for (int64_t i = 0; i < count; ++i) {
    switch (weight.storedType) {
    case WeightSource::Type::F64: { double v; std::memcpy(&v, weight.data + 8 * i, 8); out[i] = v; break; }
    case WeightSource::Type::I64: { int64_t v; std::memcpy(&v, weight.data + 8 * i, 8); out[i] = static_cast<double>(v); break; }
    case WeightSource::Type::Bool: out[i] = weight.data[i]; break;
    case WeightSource::Type::BF16: { uint16_t h; std::memcpy(&h, weight.data + 2 * i, 2); uint32_t w = uint32_t(h) << 16; float v; std::memcpy(&v, &w, 4); out[i] = v; break; }
    default: { float v; std::memcpy(&v, weight.data + 4 * i, 4); out[i] = v; break; }
    }
  }
  return out;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    errs() << "usage: evaluate-onnx model.onnx rows [options] name=file ...\n";
    return 2;
  }
  ImportOptions options;
  int64_t rows = std::atoll(argv[2]);
  bool recognize = false, print = false;
  std::map<std::string, std::string> inputs;
  for (int i = 3; i < argc; ++i) {
    StringRef argument = argv[i];
    if (argument == "--recognize")
      recognize = true;
    else if (argument == "--print")
      print = true;
    else if (argument == "--f64")
      options.precision = Precision::F64;
    else if (argument == "--seq")
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
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto model = importOnnx(argv[1], options, context);
  if (mlir::failed(model))
    return 1;
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
      std::string parameter = function.getArgAttrOfType<mlir::StringAttr>(i, attributes::kParameter).str();
      if (weights.count(parameter)) {
        tensor.values = decode(*weights[parameter]);
      } else if (auto value = lifted ? dyn_cast_or_null<mlir::DenseElementsAttr>(lifted.get(parameter)) : mlir::DenseElementsAttr()) {
        for (mlir::Attribute element : value.getValues<mlir::Attribute>())
          tensor.values.push_back(isa<mlir::FloatAttr>(element) ? cast<mlir::FloatAttr>(element).getValueAsDouble()
                                                                : static_cast<double>(cast<mlir::IntegerAttr>(element).getValue().getSExtValue()));
      } else {
        errs() << "no value for parameter '" << parameter << "'\n";
        return 1;
      }
    }
    arguments.push_back(std::move(tensor));
  }
  reference::Options evaluation;
  evaluation.rows = rows;
  auto results = reference::evaluate(function, arguments, evaluation);
  if (mlir::failed(results))
    return 1;
  std::map<int64_t, double> numerators, denominators, coefficients;
  for (unsigned i = 0; i < results->size(); ++i) {
    int64_t term = function.getResultAttrOfType<mlir::IntegerAttr>(i, attributes::kTerm).getInt();
    StringRef role = function.getResultAttrOfType<mlir::StringAttr>(i, attributes::kRole).getValue();
    double sum = 0;
    std::printf("%s %lld", role.str().c_str(), static_cast<long long>(term));
    for (double value : (*results)[i].values) {
      std::printf(" %.17g", value);
      sum += value;
    }
    std::printf("\n");
    if (role == "numerator") {
      numerators[term] = sum;
      coefficients[term] = function.getResultAttrOfType<mlir::FloatAttr>(i, attributes::kCoefficient).getValueAsDouble();
      if (auto perRow = function.getResultAttrOfType<mlir::FloatAttr>(i, attributes::kDenominatorPerRow))
        denominators[term] = perRow.getValueAsDouble() * static_cast<double>(rows);
    } else {
      denominators[term] = sum;
    }
  }
  double loss = 0;
  for (auto &[term, sum] : numerators)
    loss += coefficients[term] * sum / denominators[term];
  int64_t operations = 0;
  function.walk([&](mlir::Operation *op) { operations += !isa<mlir::func::FuncOp, mlir::func::ReturnOp>(op); });
  std::printf("operations %lld of %lld nodes\nloss %.17g\n", static_cast<long long>(operations), static_cast<long long>(model->nodesRead), loss);
  return 0;
}
