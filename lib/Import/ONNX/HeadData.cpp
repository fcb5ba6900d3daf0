#include "HeadData.h"

#include "HeadCheck.h"
#include "Lazy.h"

#include "zorse/runtime/abi/Random.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <cstring>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Max numbers to draw.
constexpr int64_t kMaxNumbers = int64_t(1) << 24;

bool zorse::onnx_import::isLifted(func::FuncOp function, BlockArgument argument) {
  return function.getArgAttr(argument.getArgNumber(), attributes::kConstant) != nullptr;
}

std::vector<int64_t> zorse::onnx_import::shapeFor(const View &view, int64_t samples) {
  std::vector<int64_t> shape;
  for (const FactorList &list : view.dims) {
    int64_t size = 1;
    for (const Factor &factor : list)
      size *= factor.sample ? samples : factor.size;
    shape.push_back(size);
  }
  return shape;
}

double HeadData::uniform() {
  const uint64_t bits = abi::mix64(state);
  state += abi::kMixIncrement;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Operations that forward integers unchanged.
static bool handsOn(Operation *op) {
  return movesElements(op) ||
         isa<arith::ExtSIOp, arith::TruncIOp, arith::SelectOp, arith::MaxSIOp, arith::MinSIOp>(op);
}

/// A bound on ids so that they stay within all tables that they index. 2 if no table is read.
int64_t HeadData::boundOf(Value value) const {
  int64_t bound = 0;
  llvm::DenseSet<Value> seen;
  SmallVector<Value> stack{value};
  auto atMost = [&](int64_t size) { bound = bound == 0 ? size : std::min(bound, size); };
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    for (OpOperand &use : next.getUses()) {
      Operation *op = use.getOwner();
      if (auto gather = dyn_cast<GatherOp>(op); gather && use.get() == gather.getIndices())
        atMost(cast<RankedTensorType>(gather.getTable().getType()).getDimSize(0));
      else if (auto take = dyn_cast<TakeAlongDimOp>(op); take && use.get() == take.getIndices())
        atMost(cast<RankedTensorType>(take.getX().getType()).getShape().back());
      else if (auto loss = dyn_cast<CrossEntropyOp>(op); loss && use.get() == loss.getLabels())
        atMost(cast<RankedTensorType>(loss.getLogits().getType()).getShape().back());
      else if (handsOn(op))
        stack.append(op->result_begin(), op->result_end());
    }
  }
  return bound == 0 ? 2 : bound;
}

/// The label that the loss ignores, or that the graph compares labels with.
std::optional<int64_t> HeadData::ignoredIn(Value value) const {
  llvm::DenseSet<Value> seen;
  SmallVector<Value> stack{value};
  while (!stack.empty()) {
    Value next = stack.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    for (Operation *op : next.getUsers()) {
      if (auto loss = dyn_cast<CrossEntropyOp>(op); loss && loss.getIgnoreIndex())
        return static_cast<int64_t>(*loss.getIgnoreIndex());
      if (auto compare = dyn_cast<arith::CmpIOp>(op))
        if (auto with = splatValue(compare.getRhs()))
          return static_cast<int64_t>(*with);
      if (handsOn(op))
        stack.append(op->result_begin(), op->result_end());
    }
  }
  return std::nullopt;
}

void HeadData::fill(Value value, const std::vector<int64_t> &shape, int which) {
  auto type = cast<RankedTensorType>(value.getType());
  reference::Tensor tensor = reference::Tensor::filled(shape, 0);
  const bool isFloat = isa<FloatType>(type.getElementType()),
             isBool = type.getElementType().isInteger(1);
  const int64_t bound = isFloat || isBool || which >= 4 ? 2 : boundOf(value);
  const std::optional<int64_t> ignored = isFloat || isBool || which >= 2 ? std::nullopt
                                                                         : ignoredIn(value);
  for (double &element : tensor.values)
    if (isFloat)
      element = 0.1 + 0.8 * uniform(); // keeps logarithms and roots finite
    else if (isBool)
      element = uniform() < 0.7;
    else if (ignored && uniform() < 0.3)
      element = static_cast<double>(*ignored);
    else
      element = static_cast<double>(static_cast<int64_t>(uniform() * static_cast<double>(bound)));
  data[value] = std::move(tensor);
}

static double stored(const WeightSource &weight, int64_t i) {
  auto at = [&](auto zero) {
    decltype(zero) value;
    std::memcpy(&value, weight.data + i * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  };
  switch (weight.storedType) {
  case WeightSource::Type::F32:
    return at(float());
  case WeightSource::Type::F64:
    return at(double());
  case WeightSource::Type::F16:
    return halfToFloat(at(uint16_t()));
  case WeightSource::Type::BF16: {
    const uint32_t bits = static_cast<uint32_t>(at(uint16_t())) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  case WeightSource::Type::I64:
    return static_cast<double>(at(int64_t()));
  case WeightSource::Type::I32:
    return at(int32_t());
  case WeightSource::Type::I16:
    return at(int16_t());
  case WeightSource::Type::I8:
    return at(int8_t());
  default:
    return at(uint8_t());
  }
}

bool HeadData::readWeight(BlockArgument argument) {
  auto name =
      source.function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attributes::kParameter);
  auto found = std::find_if(
      source.weights.begin(), source.weights.end(),
      [&](const WeightSource &weight) { return name && weight.parameter == name.getValue(); });
  if (found == source.weights.end() || !found->data)
    return why = "the numbers of parameter '" + (name ? name.getValue().str() : "") +
                 "' are missing",
           false;
  reference::Tensor tensor =
      reference::Tensor::filled(cast<RankedTensorType>(argument.getType()).getShape().vec(), 0);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.values[i] = stored(*found, i);
  data[argument] = std::move(tensor);
  return true;
}

bool HeadData::draw(int64_t samples, int which) {
  data.clear();
  state = static_cast<uint64_t>(which) * 1000 + static_cast<uint64_t>(samples);
  int64_t elements = 0;
  for (int value : cuts)
    if (Value place = source.values[value].value; place && !data.count(place)) {
      auto type = cast<RankedTensorType>(place.getType());
      onnx_reference::Shape shape;
      for (int64_t size : type.getShape())
        shape.push_back(ShapedType::isDynamic(size) ? samples : size);
      const int64_t more = onnx_reference::product(shape);
      if (more > kMaxNumbers - elements)
        return why = "it reads more than 2^24 numbers from above", false;
      elements += more;
      fill(place, shape, which);
    }
  for (BlockArgument argument : source.function.getArguments())
    if (program.reads(argument) && !data.count(argument)) {
      const bool isParameter =
          source.function.getArgAttr(argument.getArgNumber(), attributes::kParameter) != nullptr;
      if (!isParameter)
        return why = "an input is read that the file's head does not read", false;
      if (!readWeight(argument))
        return false;
    }
  return true;
}

std::optional<onnx_reference::Array> HeadData::show(const HeadValue &value, int64_t samples) const {
  auto found = data.find(value.value);
  if (found == data.end())
    return std::nullopt;
  const std::vector<double> &elements = found->second.values;
  const bool sampled = zorse::carriesSamples(value.value.getType());
  const int64_t perRow = sampled ? static_cast<int64_t>(elements.size()) / samples : 0;
  std::vector<int64_t> sizes, strides;
  for (const FactorList &list : value.view.dims)
    for (const Factor &factor : list) {
      sizes.push_back(factor.sample ? samples : factor.size);
      strides.push_back(factor.sample ? perRow : factor.stride);
    }
  const std::vector<int64_t> shape = shapeFor(value.view, samples);
  if (onnx_reference::product(shape) > onnx_reference::kMaxElements)
    return std::nullopt;
  onnx_reference::Array array = onnx_reference::Array::of(value.type, shape);
  int64_t i = 0;
  onnx_reference::walk<1>(sizes, {strides}, [&](const std::array<int64_t, 1> &at) {
    const double element = elements[at[0] + value.view.offset];
    if (array.isFloat())
      array.reals[i++] = element * value.scale;
    else
      array.integers[i++] = static_cast<int64_t>(element);
  });
  return array;
}
