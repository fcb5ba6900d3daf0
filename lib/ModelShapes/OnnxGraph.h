// Writes ONNX graphs node by node.
#pragma once

#include "zorse/Base/Status.h"

#include "onnx_wire.pb.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace zorse::shapes {

/// A graph under construction. Values are names.
class OnnxGraph {
public:
  using Value = std::string;
  struct Attribute {
    const char *name;
    std::variant<int64_t, double, std::string, std::vector<int64_t>> value;
  };
  enum class Type : int32_t { F32 = 1, I64 = 7 }; ///< numbers of TensorProto.DataType

  explicit OnnxGraph(const std::string &name);

  /// An input with a symbolic dimension of samples before `dims`.
  Value input(const std::string &name, Type type, const std::vector<int64_t> &dims);
  /// An f32 initializer without values.
  Value parameter(const std::string &name, const std::vector<int64_t> &dims);
  Value integers(const std::vector<int64_t> &values, const std::vector<int64_t> &dims);
  Value integers(const std::vector<int64_t> &values) {
    return integers(values, {static_cast<int64_t>(values.size())});
  }
  Value real(double value);
  Value reals(const std::vector<float> &values);

  /// Adds a node with one result.
  Value add(const char *op, const std::vector<Value> &inputs,
            const std::vector<Attribute> &attributes = {});
  /// Adds a node with two results.
  std::pair<Value, Value> addPair(const char *op, const std::vector<Value> &inputs,
                                  const std::vector<Attribute> &attributes = {});

  /// Makes a scalar the only output, and writes the model.
  Status write(const Value &output, const std::string &path);

private:
  onnx::Node &node(const char *op, const std::vector<Value> &inputs,
                   const std::vector<Attribute> &attributes);
  Value newName(const char *op);
  /// A node Constant.
  Value constant(onnx::Tensor tensor);

  onnx::Model model;
  onnx::Graph &graph;
  int64_t names = 0;
  int64_t written = 0; ///< bytes of parameters so far
};

} // namespace zorse::shapes
