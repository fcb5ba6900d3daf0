// Evaluates the functions of the devices of a group together, and compares them with the joint
// function on one device.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Sharding/Sharding.h"
#include "zorse/Support/ReferenceEvaluator.h"

#include "mlir/IR/Verifier.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace zorse::testing {

using reference::Tensor;
using sharding::ClassSharding;
using sharding::GranuleMap;
using sharding::ShardedDim;
using sharding::Share;

/// The rows of a dimension that belong to a share.
inline std::vector<int64_t> pointsOf(const GranuleMap &map, Share share) {
  std::vector<int64_t> points;
  for (const GranuleMap::Segment &segment : map.segments)
    for (int64_t i = share.begin * segment.width; i < share.end * segment.width; ++i)
      points.push_back(segment.begin + i);
  return points;
}

/// Copies the points of a dimension from or to a part.
template <typename Copy>
void forEachElement(const std::vector<int64_t> &shape, unsigned dim,
                    const std::vector<int64_t> &points, Copy copy) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < shape.size(); ++i)
    (i < dim ? outer : i > dim ? inner : outer) *= i == dim ? 1 : shape[i];
  const auto count = static_cast<int64_t>(points.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t p = 0; p < count; ++p)
      for (int64_t i = 0; i < inner; ++i)
        copy(static_cast<size_t>((o * shape[dim] + points[static_cast<size_t>(p)]) * inner + i),
             static_cast<size_t>((o * count + p) * inner + i));
}

inline Tensor partOf(const Tensor &whole, const ShardedDim &sharded, Share share) {
  const std::vector<int64_t> points = pointsOf(sharded.map, share);
  std::vector<int64_t> shape = whole.shape;
  shape[sharded.dim] = static_cast<int64_t>(points.size());
  Tensor part = Tensor::filled(shape, 0);
  forEachElement(whole.shape, sharded.dim, points,
                 [&](size_t from, size_t to) { part.values[to] = whole.values[from]; });
  return part;
}

class GroupEvaluation {
public:
  GroupEvaluation(mlir::func::FuncOp joint, const ClassSharding &sharding,
                  std::vector<std::vector<Share>> shares, const reference::Options &options)
      : joint(joint), sharding(sharding), shares(std::move(shares)), options(options) {}

  /// Returns the first problem, or "". `worst` receives the largest difference, relative to the
  /// largest element of a result.
  std::string compare(llvm::ArrayRef<Tensor> arguments, size_t devices, double &worst) {
    auto whole = reference::evaluate(joint, arguments, options);
    if (failed(whole))
      return "the joint function cannot be evaluated";
    for (size_t d = 0; d < devices; ++d) {
      functions.push_back(sharding::instantiate(joint, sharding, shares, d));
      if (failed(mlir::verify(*functions.back())))
        return "the function of device " + std::to_string(d) + " is not valid";
      values.emplace_back();
      for (mlir::BlockArgument argument : joint.getArguments())
        values[d][functions[d]->getArgument(argument.getArgNumber())] =
            argumentOf(argument, arguments[argument.getArgNumber()], d);
      next.push_back(functions[d]->front().begin());
    }
    while (next[0] != std::prev(functions[0]->front().end()))
      if (std::string problem = advance(); !problem.empty())
        return problem;
    return compareResults(*whole, worst);
  }

private:
  Tensor argumentOf(mlir::Value argument, const Tensor &whole, size_t device) const {
    auto it = sharding.values.find(argument);
    return it == sharding.values.end()
               ? whole
               : partOf(whole, it->second.dim, shares[it->second.axis][device]);
  }

  /// Evaluates every device up to its next exchange, and the exchange.
  std::string advance() {
    for (size_t d = 0; d < functions.size(); ++d)
      for (; !isExchange(*next[d]) && !next[d]->hasTrait<mlir::OpTrait::IsTerminator>();
           ++next[d]) {
        std::vector<Tensor> operands;
        for (mlir::Value operand : next[d]->getOperands())
          operands.push_back(values[d][operand]);
        auto results = reference::evaluate(&*next[d], operands, options);
        if (failed(results))
          return "an operation cannot be evaluated";
        for (auto [value, result] : llvm::zip(next[d]->getResults(), *results))
          values[d][value] = result;
      }
    for (size_t d = 1; d < functions.size(); ++d)
      if (next[d]->getName() != next[0]->getName())
        return "the devices have different exchanges";
    if (!isExchange(*next[0]))
      return "";
    for (size_t d = 1; d < functions.size(); ++d)
      if (next[d]->getAttr("number") != next[0]->getAttr("number"))
        return "the devices have different numbers of an exchange";
    exchange();
    return "";
  }

  static bool isExchange(mlir::Operation &op) { return mlir::isa<AllReduceOp, AllGatherOp>(op); }

  void exchange() {
    std::vector<Tensor> results{values[0][next[0]->getOperand(0)]};
    const bool sums = mlir::isa<AllReduceOp>(*next[0]);
    for (size_t d = 1; d < functions.size(); ++d) {
      const Tensor &part = values[d][next[d]->getOperand(0)];
      if (!sums)
        results.push_back(part);
      for (size_t i = 0; sums && i < part.values.size(); ++i)
        results[0].values[i] += part.values[i];
    }
    for (size_t d = 0; d < functions.size(); ++d) {
      for (auto [value, result] : llvm::zip_equal(next[d]->getResults(), results))
        values[d][value] = result;
      ++next[d];
    }
  }

  /// Results of a device: its part, its summand, or the whole.
  std::string compareResults(llvm::ArrayRef<Tensor> whole, double &worst) {
    mlir::Operation *terminator = joint.front().getTerminator();
    double largest = 0;
    for (const Tensor &result : whole)
      largest = std::max(largest, scaleOf(result, 0));
    const double floor = 1e-6 * largest; // gradients that vanish consist of rounding errors
    for (unsigned i = 0; i < joint.getNumResults(); ++i) {
      Tensor sum;
      mlir::Value parameter = sharding::parameterOfGradient(joint, i);
      auto stored = sharding.values.find(parameter);
      for (size_t d = 0; d < functions.size(); ++d) {
        const Tensor &found = values[d][functions[d]->front().getTerminator()->getOperand(i)];
        if (stored != sharding.values.end()) {
          if (!close(found, partOf(whole[i], stored->second.dim, shares[stored->second.axis][d]),
                     scaleOf(whole[i], floor), worst))
            return "result " + std::to_string(i) + " of device " + std::to_string(d);
        } else if (parameter && (sharding.partial.contains(terminator->getOperand(i)) ||
                                 sharding.values.contains(terminator->getOperand(i)))) {
          if (d == 0)
            sum = found;
          for (size_t k = 0; d > 0 && k < sum.values.size(); ++k)
            sum.values[k] += found.values[k];
        } else if (!close(found, whole[i], scaleOf(whole[i], floor), worst)) {
          return "result " + std::to_string(i) + " of device " + std::to_string(d);
        }
      }
      if (!sum.shape.empty() && !close(sum, whole[i], scaleOf(whole[i], floor), worst))
        return "sum of results " + std::to_string(i);
    }
    return "";
  }

  static double scaleOf(const Tensor &tensor, double scale) {
    for (double value : tensor.values)
      scale = std::max(scale, std::abs(value));
    return scale;
  }

  static bool close(const Tensor &found, const Tensor &expected, double scale, double &worst) {
    if (found.shape != expected.shape)
      return false;
    double difference = 0;
    for (auto [a, b] : llvm::zip(found.values, expected.values))
      if (a != b && !(std::isnan(a) && std::isnan(b)))
        difference =
            std::max(difference, std::isfinite(a - b) ? std::abs(a - b) / scale : INFINITY);
    worst = std::max(worst, difference);
    return difference <= 1e-9;
  }

  mlir::func::FuncOp joint;
  const ClassSharding &sharding;
  std::vector<std::vector<Share>> shares;
  const reference::Options options;
  std::vector<mlir::OwningOpRef<mlir::func::FuncOp>> functions;
  std::vector<llvm::DenseMap<mlir::Value, Tensor>> values;
  std::vector<mlir::Block::iterator> next;
};

/// Returns ranges that tile the granules of every axis. Ranges may be empty.
inline std::vector<std::vector<Share>> randomShares(const ClassSharding &sharding, size_t devices,
                                                    std::mt19937 &random) {
  std::vector<std::vector<Share>> shares;
  for (const sharding::Axis &axis : sharding.axes) {
    std::vector<int64_t> ends{axis.granules};
    for (size_t d = 1; d < devices; ++d)
      ends.push_back(std::uniform_int_distribution<int64_t>(0, axis.granules)(random));
    std::sort(ends.begin(), ends.end());
    shares.emplace_back();
    for (size_t d = 0; d < devices; ++d)
      shares.back().push_back({d ? ends[d - 1] : 0, ends[d]});
  }
  return shares;
}

/// Number of indices that an argument may contain: rows of a table or classes.
inline int64_t indicesOf(mlir::Value argument) {
  int64_t count = 2;
  for (mlir::Operation *user : argument.getUsers())
    if (mlir::isa<GatherOp>(user) && user->getOperand(1) == argument)
      count = mlir::cast<mlir::RankedTensorType>(user->getOperand(0).getType()).getDimSize(0);
    else if (mlir::isa<TakeAlongDimOp, CrossEntropyOp>(user) && user->getOperand(1) == argument)
      count = mlir::cast<mlir::RankedTensorType>(user->getOperand(0).getType()).getShape().back();
  return count;
}

inline std::vector<Tensor> randomArguments(mlir::func::FuncOp function, int64_t rows,
                                           std::mt19937 &random) {
  std::vector<Tensor> arguments;
  for (mlir::BlockArgument argument : function.getArguments()) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(argument.getType());
    const int64_t indices = indicesOf(argument);
    std::vector<int64_t> shape;
    for (int64_t size : tensor.getShape())
      shape.push_back(mlir::ShapedType::isDynamic(size) ? rows : size);
    arguments.push_back(Tensor::filled(shape, 0));
    for (double &value : arguments.back().values)
      value = mlir::isa<mlir::FloatType>(tensor.getElementType())
                  ? std::uniform_real_distribution<>(0.1, 1)(random)
                  : static_cast<double>(static_cast<int64_t>(random()) % indices);
  }
  return arguments;
}

} // namespace zorse::testing
