// Runs unit functions on host tensors. Arguments are found by argument attribute and index.
#pragma once

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Support/ReferenceEvaluator.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <map>
#include <memory>
#include <random>

namespace zorse::testing {

using reference::Tensor;

/// Tensors by (argument attribute, index).
using Arguments = std::map<std::pair<std::string, int64_t>, Tensor>;

inline std::unique_ptr<mlir::MLIRContext> makeContext() {
  mlir::DialectRegistry registry;
  registry.insert<ZorseDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                  mlir::func::FuncDialect>();
  autodiff::registerDifferentiableModels(registry);
  registerCostAndFactorsModels(registry);
  auto context = std::make_unique<mlir::MLIRContext>(registry);
  context->loadAllAvailableDialects();
  return context;
}

inline std::vector<int64_t> shapeWithRows(mlir::Type type, int64_t rows) {
  std::vector<int64_t> shape;
  for (int64_t size : llvm::cast<mlir::RankedTensorType>(type).getShape())
    shape.push_back(mlir::ShapedType::isDynamic(size) ? rows : size);
  return shape;
}

inline Tensor randomTensor(mlir::Type type, int64_t rows, std::mt19937 &rng, double low,
                           double high) {
  Tensor tensor = Tensor::filled(shapeWithRows(type, rows), 0.0);
  std::uniform_real_distribution<double> uniform(low, high);
  for (double &value : tensor.values)
    value = uniform(rng);
  return tensor;
}

inline Arguments::key_type keyOf(ArgumentAttr attribute) {
  const bool known = attribute.getField() == ScalarField::Known;
  return {(known ? stringifyScalarField(attribute.getField())
                 : stringifyArgumentKind(attribute.getKind()))
              .str(),
          attribute.getIndex()};
}

/// Runs a unit function and returns its results by argument attribute; empty on failure.
inline Arguments run(mlir::func::FuncOp function, const Arguments &slots,
                     const reference::Options &options) {
  std::vector<Tensor> arguments;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    arguments.push_back(slots.at(keyOf(attributeOfArgument(function, i))));
  Arguments results;
  auto values = reference::evaluate(function, arguments, options);
  if (mlir::failed(values))
    return results;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    results[keyOf(attributeOfResult(function, i))] = (*values)[i];
  return results;
}

} // namespace zorse::testing
