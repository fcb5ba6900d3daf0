// Reads ModelProto.training_info. A step executes the graph and then an algorithm. update_binding
// maps initializers to the results of the algorithm that are their next values. Gradient, Momentum,
// Adam and Adagrad are operators of the domain ai.onnx.preview.training.
#include "TrainingFile.h"

#include <cmath>
#include <cstring>

using namespace zorse;
using namespace zorse::onnx_import;

namespace {

constexpr const char *kDomain = "ai.onnx.preview.training";

class TrainingInfoReader {
public:
  explicit TrainingInfoReader(LoadedModel &model)
      : model_(model), graph_(*model.mutableModel().mutable_graph()) {}

  Result<FileTraining> run() {
    if (!read())
      return userError(error_);
    return std::move(found_);
  }

private:
  bool read() {
    found_.form = "training_info";
    if (model_.model().training_info_size() != 1)
      return fail("has " + std::to_string(model_.model().training_info_size()) +
                  " algorithms; expects one");
    info_ = &model_.model().training_info(0);
    if (info_->initialization_binding_size() > 0)
      return fail("initializes '" + info_->initialization_binding(0).key() + "' by " +
                  (info_->initialization().node_size() > 0
                       ? describe(info_->initialization().node(0))
                       : "a separate graph") +
                  ", which is not supported: store initial values as initializers");
    const onnx::Graph &algorithm = info_->algorithm();
    for (int i = 0; i < algorithm.node_size(); ++i)
      for (const std::string &output : algorithm.node(i).output())
        producers_.emplace(output, &algorithm.node(i));
    for (const onnx::Graph *graph : {static_cast<const onnx::Graph *>(&graph_), &algorithm})
      for (const onnx::Tensor &tensor : graph->initializer())
        initializers_.emplace(tensor.name(), &tensor);
    for (const onnx::StringPair &binding : info_->update_binding()) {
      if (!initializers_.count(binding.key()))
        return fail("updates '" + binding.key() + "', which is not an initializer");
      if (!updates_.emplace(binding.key(), binding.value()).second)
        return fail("updates '" + binding.key() + "' twice");
    }
    if (!readGradients() || !readUpdates() || !everyUpdateIsKnown())
      return false;
    joinGraphs();
    return true;
  }

  bool fail(const std::string &what) {
    error_ = "training_info: " + what;
    return false;
  }

  const onnx::Node *producer(const std::string &value) const {
    auto found = producers_.find(value);
    return found == producers_.end() ? nullptr : found->second;
  }

  bool readGradients() {
    for (const onnx::Node &node : info_->algorithm().node()) {
      if (node.domain() != kDomain || node.op_type() != "Gradient")
        continue;
      const onnx::Attribute *xs = attributeOf(node, "xs");
      std::string y = textOf(node, "y", "");
      if (!xs || xs->strings_size() == 0 || y.empty())
        return fail(describe(node) + " has no attribute " + (y.empty() ? "y" : "xs"));
      if (!found_.loss.empty() && found_.loss != y)
        return fail(describe(node) + " differentiates '" + y + "', and another Gradient '" +
                    found_.loss + "'; one loss is supported");
      found_.loss = y;
      for (int i = 0; i < xs->strings_size(); ++i) {
        const std::string &x = xs->strings(i);
        if (i >= node.input_size() || node.input(i) != x)
          return fail(describe(node) + " is taken at another value than '" + x +
                      "', which is not supported: its inputs must be those that xs names");
        if (i < node.output_size() && !node.output(i).empty())
          gradients_[node.output(i)] = x;
      }
      consumed_.insert(&node);
    }
    return !found_.loss.empty() || fail("has no Gradient; there is nothing to minimize");
  }

  /// The common value of all elements of an initializer or a Constant.
  std::optional<double> uniform(const std::string &value) {
    const onnx::Tensor *tensor = nullptr;
    if (auto found = initializers_.find(value); found != initializers_.end())
      tensor = found->second;
    if (const onnx::Node *node = producer(value); node && node->op_type() == "Constant") {
      if (const onnx::Attribute *a = attributeOf(*node, "value_float"))
        return double(a->f());
      if (const onnx::Attribute *a = attributeOf(*node, "value_int"))
        return double(a->i());
      if (const onnx::Attribute *a = attributeOf(*node, "value"); a && a->has_t())
        tensor = &a->t();
    }
    if (!tensor)
      return std::nullopt;
    Result<TensorBytes> bytes = model_.bytes(*tensor);
    auto kind = static_cast<ElementKind>(tensor->data_type());
    if (bytes.failed() || bytes->size == 0)
      return std::nullopt;
    const uint8_t *data = bytes->data;
    const auto width = uint64_t(byteSize(kind));
    for (uint64_t i = width; i < bytes->size; i += width)
      if (std::memcmp(data, data + i, width) != 0)
        return std::nullopt;
    auto load = [&](auto number) {
      std::memcpy(&number, data, sizeof number);
      return double(number);
    };
    switch (kind) {
    case ElementKind::F32: {
      // A float nearest to 0.1 means 0.1.
      char text[32];
      std::snprintf(text, sizeof text, "%.7g", load(0.0f));
      return float(std::strtod(text, nullptr)) == float(load(0.0f)) ? std::strtod(text, nullptr)
                                                                    : load(0.0f);
    }
    case ElementKind::F64:
      return load(0.0);
    case ElementKind::I64:
      return load(int64_t(0));
    case ElementKind::I32:
      return load(int32_t(0));
    default:
      return std::nullopt;
    }
  }

  bool zeros(const onnx::Node &node, const std::string &state) {
    std::optional<double> value = uniform(state);
    return (value && *value == 0) || fail(describe(node) + ": its state '" + state +
                                          "' does not begin as zeros, which is not supported");
  }

  /// Checks the state that counts updates. It must begin at 1.
  bool counter(const onnx::Node &node, const std::string &name) {
    auto update = updates_.find(name);
    const onnx::Node *add = update == updates_.end() ? nullptr : producer(update->second);
    std::optional<double> first = uniform(name);
    bool counts = add && add->op_type() == "Add" && add->input_size() == 2 &&
                  (add->input(0) == name || add->input(1) == name) &&
                  uniform(add->input(0) == name ? add->input(1) : add->input(0)) ==
                      std::optional<double>(1.0);
    if (!counts)
      return fail(describe(node) + ": expects an update_binding that counts its '" + name +
                  "' by Add of 1" + (add ? ", found " + describe(*add) : ""));
    if (!first || *first != 1)
      return fail(describe(node) + ": expects its count of updates '" + name +
                  "' to begin at 1, found " +
                  (first ? std::to_string(int64_t(*first)) : "no number") +
                  ": an update of another number is corrected in another way");
    consumed_.insert(add);
    explained_.insert(name);
    return true;
  }

  bool rate(const std::string &name, FileOptimizer &optimizer) {
    optimizer.learningRate = uniform(name);
    if (!optimizer.learningRate && isInput(name))
      found_.notes.push_back("the learning rate '" + name +
                             "' is an input of the algorithm; --lr gives it");
    else if (!optimizer.learningRate)
      return fail(
          "the learning rate '" + name + "' of " + optimizer.node + " is computed" +
          (producer(name) ? " by " + describe(*producer(name)) : "") +
          "; expects a constant or an input (--lr-scheduler-type and --warmup-steps are options)");
    settings_.insert(name);
    return true;
  }

  bool isInput(const std::string &name) const {
    for (const onnx::Graph *graph :
         {static_cast<const onnx::Graph *>(&graph_), &info_->algorithm()})
      for (const onnx::ValueInfo &input : graph->input())
        if (input.name() == name)
          return true;
    return false;
  }

  /// Records the parameter x, which `node` updates by the gradient g to the value `result`.
  bool trains(const onnx::Node &node, const std::string &x, const std::string &g,
              const std::string &result) {
    auto update = updates_.find(x);
    if (update == updates_.end() || update->second != result)
      return fail(describe(node) + ": its result '" + result +
                  "' is bound to no parameter; expects update_binding '" + x + "'");
    auto gradient = gradients_.find(g);
    if (gradient == gradients_.end()) {
      const onnx::Node *by = producer(g);
      return fail(
          describe(node) + ": the gradient '" + g + "' of '" + x + "' is not a result of Gradient" +
          (by ? " but of " + describe(*by) : "") +
          "; operators that change gradients are not supported, except clipping (--max-grad-norm)");
    }
    if (gradient->second != x)
      return fail(describe(node) + ": updates '" + x + "' by the gradient of '" + gradient->second +
                  "'");
    explained_.insert(x);
    found_.trained.push_back(x);
    return true;
  }

  bool readAdam(const onnx::Node &node) {
    FileOptimizer optimizer;
    optimizer.kind = FileOptimizer::Kind::Adam;
    optimizer.node = describe(node);
    optimizer.beta1 = realOf(node, "alpha", 0.9);
    optimizer.beta2 = realOf(node, "beta", 0.999);
    optimizer.epsilon = realOf(node, "epsilon", 1e-6);
    optimizer.plainEpsilon = optimizer.epsilon != 0;
    optimizer.weightDecay = realOf(node, "norm_coefficient", 0);
    if (realOf(node, "norm_coefficient_post", 0) != 0)
      return fail(describe(node) + ": norm_coefficient_post, which shrinks parameters "
                                   "independently of the learning rate, is not supported");
    int count = (node.input_size() - 2) / 4;
    if (count < 1 || node.input_size() != 2 + 4 * count || node.output_size() < 3 * count)
      return fail(
          describe(node) +
          ": expects a rate, a count and 4 inputs and 3 results for every parameter, found " +
          std::to_string(node.input_size()) + " and " + std::to_string(node.output_size()));
    if (!rate(node.input(0), optimizer) || !counter(node, node.input(1)))
      return false;
    for (int i = 0; i < count; ++i) {
      const std::string &x = node.input(2 + i), &g = node.input(2 + count + i);
      if (!trains(node, x, g, node.output(i)))
        return false;
      for (int moment = 0; moment < 2; ++moment)
        if (!state(node, node.input(2 + (2 + moment) * count + i),
                   node.output((1 + moment) * count + i)))
          return false;
    }
    return keep(node, optimizer);
  }

  bool readMomentum(const onnx::Node &node) {
    FileOptimizer optimizer;
    optimizer.node = describe(node);
    optimizer.momentum = realOf(node, "alpha", 0);
    optimizer.weightDecay = realOf(node, "norm_coefficient", 0);
    std::string mode = textOf(node, "mode", "standard");
    optimizer.nesterov = mode == "nesterov" && optimizer.momentum > 0;
    if (mode != "nesterov" && mode != "standard")
      return fail(describe(node) + ": mode '" + mode +
                  "' is not known; expects standard or nesterov");
    if (realOf(node, "beta", 1) != 1)
      return fail(describe(node) +
                  ": only beta = 1 is supported: gradients count in full from the first update on");
    int count = (node.input_size() - 2) / 3;
    if (count < 1 || node.input_size() != 2 + 3 * count || node.output_size() < 2 * count)
      return fail(
          describe(node) +
          ": expects a rate, a count and 3 inputs and 2 results for every parameter, found " +
          std::to_string(node.input_size()) + " and " + std::to_string(node.output_size()));
    if (!rate(node.input(0), optimizer))
      return false;
    settings_.insert(node.input(1));
    // With beta = 1 the count has no effect.
    if (auto update = updates_.find(node.input(1)); update != updates_.end()) {
      if (const onnx::Node *by = producer(update->second))
        consumed_.insert(by);
      explained_.insert(node.input(1));
    }
    for (int i = 0; i < count; ++i)
      if (!trains(node, node.input(2 + i), node.input(2 + count + i), node.output(i)) ||
          !state(node, node.input(2 + 2 * count + i), node.output(count + i)))
        return false;
    return keep(node, optimizer);
  }

  bool state(const onnx::Node &node, const std::string &name, const std::string &result) {
    auto update = updates_.find(name);
    if (update == updates_.end() || update->second != result)
      return fail(describe(node) + ": expects update_binding '" + name + "' to its result '" +
                  result + "': without it the state never changes");
    explained_.insert(name);
    settings_.insert(name);
    return zeros(node, name);
  }

  /// Reads plain SGD written as operators: X - rate * gradient.
  bool readPlain(const std::string &x, const std::string &result) {
    const onnx::Node *sub = producer(result);
    const onnx::Node *mul = sub && sub->op_type() == "Sub" && sub->input_size() == 2 &&
                                    sub->input(0) == x
                                ? producer(sub->input(1))
                                : nullptr;
    if (!mul || mul->op_type() != "Mul" || mul->input_size() != 2)
      return fail("'" + x + "' is updated by " +
                  (sub ? describe(*sub) : "the value '" + result + "'") +
                  ", which is not supported; expects Adam, Momentum, or Sub(parameter, Mul(rate, "
                  "gradient))");
    int g = gradients_.count(mul->input(1)) ? 1 : 0;
    FileOptimizer optimizer;
    optimizer.node = describe(*sub);
    if (!trains(*sub, x, mul->input(g), result) || !rate(mul->input(1 - g), optimizer))
      return false;
    consumed_.insert(mul);
    return keep(*sub, optimizer);
  }

  bool keep(const onnx::Node &node, FileOptimizer optimizer) {
    consumed_.insert(&node);
    if (found_.optimizer && !(*found_.optimizer == optimizer))
      return fail("updates parameters by " + found_.optimizer->node + " and by " + optimizer.node +
                  ", with different options; one optimizer for all parameters is supported");
    if (!found_.optimizer)
      found_.optimizer = optimizer;
    return true;
  }

  bool readUpdates() {
    for (const onnx::Node &node : info_->algorithm().node()) {
      if (node.domain() != kDomain || node.op_type() == "Gradient")
        continue;
      if (node.op_type() != "Adam" && node.op_type() != "Momentum")
        return fail(describe(node) + ": the optimizer is not supported; Adam, Momentum and "
                                     "Sub(parameter, Mul(rate, gradient)) are");
      if (!(node.op_type() == "Adam" ? readAdam(node) : readMomentum(node)))
        return false;
    }
    for (const auto &[gradient, x] : gradients_)
      if (auto update = updates_.find(x);
          update != updates_.end() && !explained_.count(x) && !readPlain(x, update->second))
        return false;
    if (found_.trained.empty())
      return fail("updates no parameter by a gradient");
    return true;
  }

  bool everyUpdateIsKnown() {
    for (const auto &[key, value] : updates_)
      if (!explained_.count(key)) {
        const onnx::Node *by = producer(value);
        return fail("'" + key + "' is updated by " +
                    (by ? describe(*by) : "the value '" + value + "'") +
                    ", which is not supported");
      }
    return true;
  }

  /// Adds the nodes of the algorithm that the loss depends on to the graph.
  void joinGraphs() {
    onnx::Graph algorithm = info_->algorithm();
    std::set<std::string> known;
    for (const onnx::ValueInfo &input : graph_.input())
      known.insert(input.name());
    for (const onnx::Tensor &tensor : graph_.initializer())
      known.insert(tensor.name());
    std::set<const onnx::Node *> own = consumed_;
    google::protobuf::RepeatedPtrField<onnx::Node> all = graph_.node();
    for (int i = 0; i < algorithm.node_size(); ++i)
      if (!own.count(&info_->algorithm().node(i)))
        *all.Add() = algorithm.node(i);
    std::vector<bool> needed = neededFor(all, {found_.loss});
    std::set<std::string> read{found_.loss};
    graph_.clear_node();
    for (int i = 0; i < all.size(); ++i)
      if (needed[size_t(i)]) {
        read.insert(all[i].input().begin(), all[i].input().end());
        graph_.add_node()->Swap(&all[i]);
      }
    for (const onnx::Tensor &tensor : algorithm.initializer())
      if (read.count(tensor.name()) && known.insert(tensor.name()).second)
        *graph_.add_initializer() = tensor;
    for (const onnx::ValueInfo &input : algorithm.input())
      if (read.count(input.name()) && known.insert(input.name()).second)
        *graph_.add_input() = input;
    for (int i = graph_.input_size() - 1; i >= 0; --i) // drop inputs for rates and counts
      if (settings_.count(graph_.input(i).name()) && !read.count(graph_.input(i).name()))
        graph_.mutable_input()->DeleteSubrange(i, 1);
    graph_.clear_output();
    graph_.add_output()->set_name(found_.loss);
    for (const onnx::ValueInfo &output : algorithm.output())
      if (output.name() == found_.loss)
        *graph_.mutable_output(0) = output;
    model_.mutableModel().clear_training_info();
    info_ = nullptr;
  }

  LoadedModel &model_;
  onnx::Graph &graph_;
  FileTraining found_;
  std::string error_;
  const onnx::TrainingInfo *info_ = nullptr;
  std::map<std::string, const onnx::Node *> producers_; ///< producers of values in the algorithm
  std::map<std::string, const onnx::Tensor *> initializers_;
  std::map<std::string, std::string> updates_;   ///< initializer to its next value
  std::map<std::string, std::string> gradients_; ///< gradient to the value that it is the gradient
                                                 ///< of
  std::set<const onnx::Node *> consumed_;        ///< nodes of the algorithm that have been read
  std::set<std::string> explained_;              ///< initializers with an update that has been read
  std::set<std::string> settings_; ///< names of rates, counts and states of optimizers
};

} // namespace

Result<FileTraining> zorse::onnx_import::takeTrainingInfo(LoadedModel &model) {
  return TrainingInfoReader(model).run();
}
