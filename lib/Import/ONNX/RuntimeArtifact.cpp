// Reads the training artifacts of onnxruntime. artifacts.generate_artifacts writes them into a
// folder:
// - training_model.onnx: forward, loss, gradients and gradient accumulation in one graph, with
// parameters as inputs;
// - checkpoint: a flat buffer with the parameters;
// - optimizer_model.onnx.
//
// Only the nodes that the loss depends on are kept, and gradients are generated again. Every
// gradient of the file must belong to a parameter that the loss reads.
#include "TrainingFile.h"
#include "WeightFile.h"

#include <cstring>

using namespace zorse;
using namespace zorse::onnx_import;

namespace {

constexpr const char *kDomain = "com.microsoft";
constexpr const char *kBuffer = "_grad.accumulation.buffer";

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string beside(const std::string &path, const std::string &name) {
  size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string() : path.substr(0, slash + 1)) + name;
}

class ArtifactReader {
public:
  explicit ArtifactReader(LoadedModel &model)
      : model_(model), graph_(*model.mutableModel().mutable_graph()) {}

  Result<FileTraining> run() {
    if (!read())
      return userError(error_);
    return std::move(found_);
  }

private:
  bool read() {
    found_.form = "training artifact of onnxruntime";
    if (graph_.output_size() == 0)
      return fail("has no output; expects the loss as the first");
    found_.loss = graph_.output(0).name();
    keepForward();
    for (onnx::Node &node : *graph_.mutable_node())
      if (node.domain() == kDomain && !toStandard(node))
        return false;
    if (!findTrained() || !addParameters() || !readOptimizer())
      return false;
    google::protobuf::RepeatedPtrField<onnx::ValueInfo> outputs;
    *outputs.Add() = graph_.output(0);
    graph_.mutable_output()->Swap(&outputs);
    return true;
  }

  bool fail(const std::string &what) {
    error_ = "training artifact of onnxruntime: " + what;
    return false;
  }

  void keepForward() {
    for (const onnx::Node &node : graph_.node())
      if (node.op_type() == "InPlaceAccumulatorV2" && node.input_size() > 0 &&
          endsWith(node.input(0), kBuffer))
        accumulated_.push_back(
            node.input(0).substr(0, node.input(0).size() - std::string(kBuffer).size()));
    std::vector<bool> needed = neededFor(graph_.node(), {found_.loss});
    google::protobuf::RepeatedPtrField<onnx::Node> kept;
    for (int i = 0; i < graph_.node_size(); ++i)
      if (needed[size_t(i)]) {
        read_.insert(graph_.node(i).input().begin(), graph_.node(i).input().end());
        kept.Add()->Swap(graph_.mutable_node(i));
      }
    graph_.mutable_node()->Swap(&kept);
  }

  /// Converts an operator of onnxruntime that the importer does not support to one of ONNX. Fails
  /// with an error if there is none.
  bool toStandard(onnx::Node &node) {
    const std::string op = node.op_type();
    if (op == "Gelu" || op == "BiasGelu" || op == "FastGelu" || op == "QuickGelu") // imported as
                                                                                   // they are
      return true;
    auto become = [&](const char *name) {
      node.set_op_type(name);
      node.clear_domain();
      return true;
    };
    if (op == "SoftmaxCrossEntropyLossInternal") {
      if (node.input_size() > 3 && !node.input(3).empty()) {
        const onnx::Tensor *ignored = nullptr;
        for (const onnx::Tensor &tensor : graph_.initializer())
          if (tensor.name() == node.input(3))
            ignored = &tensor;
        Result<TensorBytes> bytes = ignored ? model_.bytes(*ignored) : userError("");
        int64_t index = 0;
        if (bytes.failed() || bytes->size != sizeof index ||
            ignored->data_type() != int32_t(ElementKind::I64))
          return fail(describe(node) + ": its ignore_index is not a constant");
        std::memcpy(&index, bytes->data, sizeof index);
        onnx::Attribute *attribute = node.add_attribute();
        attribute->set_name("ignore_index");
        attribute->set_type(2);
        attribute->set_i(index);
      }
      while (node.input_size() > 3 ||
             (node.input_size() > 2 && node.input(node.input_size() - 1).empty()))
        node.mutable_input()->RemoveLast();
      for (int i = node.attribute_size() - 1; i >= 0; --i)
        if (node.attribute(i).name() == "output_type")
          node.mutable_attribute()->DeleteSubrange(i, 1);
      return become("SoftmaxCrossEntropyLoss");
    }
    if (op == "FusedMatMul" && realOf(node, "alpha", 1) == 1 && !integerOf(node, "transA", 0) &&
        !integerOf(node, "transB", 0) && !integerOf(node, "transBatchA", 0) &&
        !integerOf(node, "transBatchB", 0)) {
      node.clear_attribute();
      return become("MatMul");
    }
    return fail(describe(node) + ": the operator com.microsoft." + op +
                " of the forward graph is not supported. Compile the model that the artifacts were "
                "made of, and give --optimizer");
  }

  bool findTrained() {
    std::set<std::string> inputs;
    for (const onnx::ValueInfo &input : graph_.input())
      inputs.insert(input.name());
    for (const std::string &name : accumulated_) {
      if (!inputs.count(name))
        return fail("accumulates a gradient of '" + name + "', which is not an input of the graph");
      if (!read_.count(name))
        return fail("accumulates a gradient of '" + name + "', which the loss '" + found_.loss +
                    "' does not depend on");
      found_.trained.push_back(name);
    }
    return !found_.trained.empty() ||
           fail("accumulates no gradient (InPlaceAccumulatorV2); nothing would be trained");
  }

  bool addParameters() {
    const std::string name = "checkpoint";
    Result<WeightFile> weights = readWeightFile(beside(model_.path(), name));
    if (weights.failed())
      return fail("parameters are in the file 'checkpoint' in the same directory: " +
                  weights.message());
    std::map<std::string, const WeightFileTensor *> stored;
    for (const WeightFileTensor &tensor : weights->parameters)
      stored[tensor.name] = &tensor;
    google::protobuf::RepeatedPtrField<onnx::ValueInfo> inputs;
    std::set<std::string> given;
    for (onnx::ValueInfo &input : *graph_.mutable_input()) {
      auto found = stored.find(input.name());
      if (found == stored.end()) {
        if (read_.count(input.name()))
          inputs.Add()->Swap(&input); // drops gradient buffers and the flag that clears them
        continue;
      }
      const WeightFileTensor &tensor = *found->second;
      given.insert(tensor.name);
      if (!read_.count(tensor.name))
        continue;
      onnx::Tensor &initializer = *graph_.add_initializer();
      initializer.set_name(tensor.name);
      initializer.set_data_type(tensor.type);
      for (int64_t dim : tensor.dims)
        initializer.add_dims(dim);
      initializer.set_data_location(1);
      auto entry = [&](const char *key, const std::string &value) {
        onnx::StringPair *pair = initializer.add_external_data();
        pair->set_key(key);
        pair->set_value(value);
      };
      entry("location", tensor.inOtherFile ? name + ".data" : name);
      entry("offset", std::to_string(tensor.offset));
      entry("length", std::to_string(tensor.bytes));
    }
    graph_.mutable_input()->Swap(&inputs);
    for (const std::string &trained : found_.trained)
      if (!given.count(trained))
        return fail("'checkpoint' does not hold the parameter '" + trained + "'");
    return true;
  }

  bool readOptimizer() {
    const std::string path = beside(model_.path(), "optimizer_model.onnx");
    Result<std::shared_ptr<MappedFile>> opened = MappedFile::open(path);
    if (opened.failed()) {
      found_.notes.push_back("the folder of the file has no optimizer_model.onnx; options specify "
                             "the optimizer (--optimizer, --lr, ...)");
      return true;
    }
    const MappedFile &file = **opened;
    onnx::Model optimizer;
    if (file.size() > (64u << 20) || !optimizer.ParseFromArray(file.data(), int(file.size())))
      return fail(path + " cannot be read as an ONNX file");
    for (const onnx::Node &node : optimizer.graph().node()) {
      if (found_.optimizer)
        return fail(path + ": has " + found_.optimizer->node + " and " + describe(node) +
                    "; expects one node, the optimizer");
      FileOptimizer options;
      options.node = describe(node);
      if (node.op_type() == "AdamWOptimizer") {
        options.kind = FileOptimizer::Kind::AdamW;
        options.beta1 = realOf(node, "alpha", 0.9);
        options.beta2 = realOf(node, "beta", 0.999);
        options.epsilon = realOf(node, "epsilon", 1e-8);
        options.weightDecay = realOf(node, "weight_decay", 1e-2);
        // Mode 0 is AdamW as in PyTorch. Mode 1 adds epsilon before the bias correction and applies
        // weight decay after the update.
        const int64_t mode = integerOf(node, "adam_mode", 0);
        options.plainEpsilon = mode == 1;
        if (mode != 0 && mode != 1)
          return fail(describe(node) + ": adam_mode " + std::to_string(mode) + " is not known");
        if (mode == 1 && options.weightDecay != 0)
          return fail(describe(node) + ": adam_mode 1 with a weight decay, which it applies after "
                                       "the update, is not supported; make the artifacts "
                                       "with adam_mode 0, or give --optimizer adamw");
        if (integerOf(node, "correct_bias", 1) != 1)
          return fail(describe(node) +
                      ": correct_bias 0, which makes the first updates smaller, is not supported");
      } else if (node.op_type() == "SGDOptimizerV2") {
        options.kind = FileOptimizer::Kind::Sgd;
      } else {
        return fail(path + ": " + describe(node) +
                    ": the optimizer is not supported; AdamWOptimizer and SGDOptimizerV2 are");
      }
      found_.optimizer = options;
    }
    found_.notes.push_back("the artifacts do not contain the learning rate; --lr specifies it");
    return true;
  }

  LoadedModel &model_;
  onnx::Graph &graph_;
  FileTraining found_;
  std::string error_;
  std::vector<std::string> accumulated_; ///< values with accumulated gradients
  std::set<std::string> read_;           ///< values that the forward graph reads
};

} // namespace

bool zorse::onnx_import::isRuntimeArtifact(const onnx::Model &model) {
  for (const onnx::Node &node : model.graph().node())
    if (node.domain() == kDomain && node.op_type() == "InPlaceAccumulatorV2")
      return true;
  return false;
}

Result<FileTraining> zorse::onnx_import::takeRuntimeArtifact(LoadedModel &model) {
  return ArtifactReader(model).run();
}
