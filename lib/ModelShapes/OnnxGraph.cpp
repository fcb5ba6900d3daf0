#include "OnnxGraph.h"

#include <fstream>

using namespace zorse;
using namespace zorse::shapes;

namespace {

constexpr int64_t kIrVersion = 11, kOpset = 23;
constexpr const char *kWeights = "weights.data"; // no such file exists

/// Numbers of AttributeProto.AttributeType.
enum AttributeType : int32_t { kFloat = 1, kInt = 2, kString = 3, kTensor = 4, kInts = 7 };

void set(onnx::Attribute &attribute, int64_t value) {
  attribute.set_type(kInt);
  attribute.set_i(value);
}
void set(onnx::Attribute &attribute, double value) {
  attribute.set_type(kFloat);
  attribute.set_f(static_cast<float>(value));
}
void set(onnx::Attribute &attribute, const std::string &value) {
  attribute.set_type(kString);
  attribute.set_s(value);
}
void set(onnx::Attribute &attribute, const std::vector<int64_t> &values) {
  attribute.set_type(kInts);
  attribute.mutable_ints()->Add(values.begin(), values.end());
}

} // namespace

OnnxGraph::OnnxGraph(const std::string &name) : graph(*model.mutable_graph()) {
  model.set_ir_version(kIrVersion);
  model.set_producer_name("zorse");
  model.add_opset_import()->set_version(kOpset);
  graph.set_name(name);
}

OnnxGraph::Value OnnxGraph::newName(const char *op) {
  return std::string(op) + "_" + std::to_string(names++);
}

OnnxGraph::Value OnnxGraph::input(const std::string &name, Type type,
                                  const std::vector<int64_t> &dims) {
  onnx::ValueInfo &info = *graph.add_input();
  info.set_name(name);
  onnx::Type::TensorType &tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(static_cast<int32_t>(type));
  tensor.mutable_shape()->add_dim()->set_dim_param("batch");
  for (int64_t dim : dims)
    tensor.mutable_shape()->add_dim()->set_dim_value(dim);
  return name;
}

OnnxGraph::Value OnnxGraph::parameter(const std::string &name, const std::vector<int64_t> &dims) {
  onnx::Tensor &tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(static_cast<int32_t>(Type::F32));
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.set_data_location(1);
  int64_t bytes = 4;
  for (int64_t dim : dims)
    bytes *= dim;
  for (const auto &[key, value] : {std::pair<const char *, std::string>("location", kWeights),
                                   {"offset", std::to_string(written)},
                                   {"length", std::to_string(bytes)}}) {
    onnx::StringPair &entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
  written += bytes;
  return name;
}

OnnxGraph::Value OnnxGraph::constant(onnx::Tensor tensor) {
  onnx::Node &made = node("Constant", {}, {});
  onnx::Attribute &value = *made.add_attribute();
  value.set_name("value");
  value.set_type(kTensor);
  *value.mutable_t() = std::move(tensor);
  return made.output(0);
}

OnnxGraph::Value OnnxGraph::integers(const std::vector<int64_t> &values,
                                     const std::vector<int64_t> &dims) {
  onnx::Tensor tensor;
  tensor.set_data_type(static_cast<int32_t>(Type::I64));
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.mutable_int64_data()->Add(values.begin(), values.end());
  return constant(std::move(tensor));
}

OnnxGraph::Value OnnxGraph::real(double value) {
  onnx::Tensor tensor;
  tensor.set_data_type(static_cast<int32_t>(Type::F32));
  tensor.add_float_data(static_cast<float>(value));
  return constant(std::move(tensor));
}

OnnxGraph::Value OnnxGraph::reals(const std::vector<float> &values) {
  onnx::Tensor tensor;
  tensor.set_data_type(static_cast<int32_t>(Type::F32));
  tensor.add_dims(static_cast<int64_t>(values.size()));
  tensor.mutable_float_data()->Add(values.begin(), values.end());
  return constant(std::move(tensor));
}

onnx::Node &OnnxGraph::node(const char *op, const std::vector<Value> &inputs,
                            const std::vector<Attribute> &attributes) {
  onnx::Node &made = *graph.add_node();
  made.set_op_type(op);
  for (const Value &input : inputs)
    made.add_input(input);
  for (const Attribute &given : attributes) {
    onnx::Attribute &attribute = *made.add_attribute();
    attribute.set_name(given.name);
    std::visit([&](const auto &value) { set(attribute, value); }, given.value);
  }
  made.add_output(newName(op));
  return made;
}

OnnxGraph::Value OnnxGraph::add(const char *op, const std::vector<Value> &inputs,
                                const std::vector<Attribute> &attributes) {
  return node(op, inputs, attributes).output(0);
}

std::pair<OnnxGraph::Value, OnnxGraph::Value>
OnnxGraph::addPair(const char *op, const std::vector<Value> &inputs,
                   const std::vector<Attribute> &attributes) {
  onnx::Node &made = node(op, inputs, attributes);
  made.add_output(newName(op));
  return {made.output(0), made.output(1)};
}

Status OnnxGraph::write(const Value &output, const std::string &path) {
  onnx::ValueInfo &info = *graph.add_output();
  info.set_name(output);
  onnx::Type::TensorType &tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(static_cast<int32_t>(Type::F32));
  tensor.mutable_shape();
  std::ofstream file(path, std::ios::binary);
  if (!model.SerializeToOstream(&file) || !file.flush())
    return userError(path + ": cannot be written");
  return Status::success();
}
