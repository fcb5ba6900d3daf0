// Builds graphs for the importer's tests node by node, and imports them.
#pragma once

#include "onnx_wire.pb.h"

#include "zorse/Import/ONNX/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace zorse::test {

class Graph {
public:
  explicit Graph(int64_t batch = 2, int64_t opset = 18) {
    model.set_ir_version(8);
    auto *set = model.add_opset_import();
    set->set_domain("");
    set->set_version(opset);
    model.mutable_graph()->set_name("test");
    input("ids", 7, {batch, 6});
    input("labels", 7, {batch, 6});
    weight("w", {11, 4});
  }

  void input(const std::string &name, int type, std::vector<int64_t> shape) {
    declare(model.mutable_graph()->add_input(), name, type, shape);
  }
  void output(const std::string &name) {
    declare(model.mutable_graph()->add_output(), name, 1, {});
  }
  void weight(const std::string &name, std::vector<int64_t> shape) {
    auto *tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(1);
    int64_t size = 1;
    for (int64_t dim : shape) {
      tensor->add_dims(dim);
      size *= dim;
    }
    std::string raw(size * 4, '\0');
    for (int64_t i = 0; i < size; ++i) {
      float value = 0.01f * static_cast<float>(i + 1);
      std::memcpy(&raw[4 * i], &value, 4);
    }
    tensor->set_raw_data(raw);
  }
  void ints(const std::string &name, std::vector<int64_t> values) {
    auto *tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(7);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values)
      tensor->add_int64_data(value);
  }
  onnx::Node &node(const std::string &op, std::vector<std::string> inputs,
                   std::vector<std::string> outputs) {
    onnx::Node *node = model.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name("n_" + outputs[0]);
    for (auto &name : inputs)
      node->add_input(name);
    for (auto &name : outputs)
      node->add_output(name);
    return *node;
  }
  static void attribute(onnx::Node &node, const std::string &name, int64_t value) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(2);
    attribute->set_i(value);
  }
  static void attribute(onnx::Node &node, const std::string &name,
                        const std::vector<int64_t> &values) {
    auto *attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(7);
    for (int64_t value : values)
      attribute->add_ints(value);
  }
  /// Adds an embedding, a tied head and a cross-entropy loss.
  Graph &languageModel() {
    node("Gather", {"w", "ids"}, {"x"});
    ints("flat", {-1, 4});
    node("Reshape", {"x", "flat"}, {"rowsOfX"});
    node("Transpose", {"w"}, {"wt"});
    node("MatMul", {"rowsOfX", "wt"}, {"logits"});
    ints("one", {-1});
    node("Reshape", {"labels", "one"}, {"flatLabels"});
    attribute(node("SoftmaxCrossEntropyLoss", {"logits", "flatLabels"}, {"loss"}), "ignore_index",
              -100);
    output("loss");
    return *this;
  }
  std::string write(const std::string &name) {
    std::string path = ::testing::TempDir() + "/" + name;
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    return path;
  }

  onnx::Model model;

private:
  static void declare(onnx::ValueInfo *info, const std::string &name, int type,
                      const std::vector<int64_t> &shape) {
    info->set_name(name);
    auto *tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (int64_t size : shape) {
      auto *dim = tensor->mutable_shape()->add_dim();
      if (size > 0)
        dim->set_dim_value(size);
      else
        dim->set_dim_param(size == 0 ? "batch" : "sequence");
    }
  }
};

struct Outcome {
  bool ok = false;
  std::string text; ///< the module, or the error
  ImportedModel model;
};

inline mlir::MLIRContext &context() {
  static mlir::MLIRContext instance(mlir::MLIRContext::Threading::DISABLED);
  return instance;
}

inline Outcome import(const std::string &path, const ImportOptions &options = {}) {
  Outcome outcome;
  mlir::ScopedDiagnosticHandler handler(&context(), [&](mlir::Diagnostic &diagnostic) {
    outcome.text += diagnostic.str() + "\n";
    return mlir::success();
  });
  auto model = importOnnx(path, options, context());
  if (mlir::failed(model))
    return outcome;
  outcome.ok = true;
  outcome.model = std::move(*model);
  llvm::raw_string_ostream stream(outcome.text);
  outcome.model.module->print(stream);
  return outcome;
}

inline bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// The concatenated notes that begin with `begin`.
inline std::string notesOf(const Outcome &outcome, const std::string &begin) {
  std::string text;
  for (const std::string &note : outcome.model.notes)
    if (note.rfind(begin, 0) == 0)
      text += note;
  return text;
}

} // namespace zorse::test

#define EXPECT_ERROR(outcome, part)                                                                \
  do {                                                                                             \
    EXPECT_FALSE((outcome).ok);                                                                    \
    EXPECT_TRUE(::zorse::test::contains((outcome).text, part)) << (outcome).text;                  \
  } while (0)
