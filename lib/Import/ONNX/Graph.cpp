#include "Graph.h"

#include "TorchCall.h"

#include <algorithm>
#include <set>
#include <unordered_map>

using namespace zorse;
using namespace zorse::onnx_import;

namespace {

constexpr int maxDepth = 32;
/// Max nodes, operands, results, attributes and initializers after inlining of functions. A file of
/// a kilobyte can expand to 2^32 of them.
constexpr size_t maxItems = 4'000'000;

/// Maps names to value numbers. A subgraph sees the names of the enclosing scopes.
struct Scope {
  const Scope *outer = nullptr;
  std::unordered_map<std::string, int> names = {};

  const int *find(const std::string &name) const {
    for (const Scope *scope = this; scope; scope = scope->outer)
      if (auto found = scope->names.find(name); found != scope->names.end())
        return &found->second;
    return nullptr;
  }
};
using Bindings = std::map<std::string, std::shared_ptr<const onnx::Attribute>>;

std::string canonicalDomain(const std::string &domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}

class Flattener {
public:
  explicit Flattener(const LoadedModel &model) : model(model) {
    for (const onnx::Function &function : model.model().functions())
      functions[{canonicalDomain(function.domain()), function.name(), function.overload()}] =
          &function;
  }

  Result<FlatGraph> run() {
    if (!flattenModel())
      return userError(error);
    return std::move(graph);
  }

private:
  bool flattenModel() {
    const onnx::Graph &source = model.model().graph();
    std::map<std::string, int64_t> opsets = versions(model.model().opset_import());
    opsets[""] = model.opset();

    Scope scope;
    std::set<std::string> initialised;
    for (const onnx::Tensor &tensor : source.initializer())
      initialised.insert(tensor.name());
    for (const onnx::ValueInfo &input : source.input()) {
      if (initialised.count(input.name()))
        continue;
      if (!define(scope, input.name()))
        return false;
      graph.inputs.emplace_back(scope.names[input.name()], &input);
    }
    return flattenGraph(source, scope, opsets, {}, "", 0, graph.body);
  }

  template <typename Sets> std::map<std::string, int64_t> versions(const Sets &sets) {
    std::map<std::string, int64_t> out;
    for (const onnx::OperatorSet &set : sets)
      out[canonicalDomain(set.domain())] = set.version();
    return out;
  }

  int newValue(const std::string &name) {
    graph.valueNames.push_back(name);
    return static_cast<int>(graph.valueNames.size()) - 1;
  }

  bool define(Scope &scope, const std::string &name) {
    if (!local.back().insert(name).second) {
      error = "value '" + name +
              "' is defined twice; the file is not a valid ONNX graph. PyTorch's exporter calls "
              "results as parameters and buffers of "
              "such a name: give the module's another one, or export with zorse.export, which "
              "keeps them apart";
      return false;
    }
    scope.names[name] = newValue(name);
    return true;
  }

  bool spend(size_t count) {
    items += count;
    if (items <= maxItems)
      return true;
    error = "the graph has more than " + std::to_string(maxItems) +
            " nodes, values and attributes once functions are inlined";
    return false;
  }

  bool flattenGraph(const onnx::Graph &source, Scope &scope,
                    const std::map<std::string, int64_t> &opsets, const Bindings &bindings,
                    const std::string &prefix, int depth, GraphBody &body) {
    if (!spend(size_t(source.initializer_size()) + source.input_size() + source.output_size()))
      return false;
    if (depth > 0)
      local.emplace_back();
    for (int i = 0; depth > 0 && i < source.input_size(); ++i) {
      if (!define(scope, source.input(i).name()))
        return false;
      body.inputs.push_back(scope.names[source.input(i).name()]);
    }
    for (const onnx::Tensor &tensor : source.initializer()) {
      if (!define(scope, tensor.name()))
        return false;
      body.initializers.emplace_back(scope.names[tensor.name()], &tensor);
    }
    if (!flattenNodes(source.node(), scope, opsets, bindings, prefix, depth, body))
      return false;
    for (const onnx::ValueInfo &output : source.output()) {
      const int *found = scope.find(output.name());
      if (!found) {
        error = "output '" + output.name() + "' is not defined by any node";
        return false;
      }
      body.outputs.push_back(*found);
    }
    if (depth > 0)
      local.pop_back();
    return order(body);
  }

  template <typename Nodes>
  bool flattenNodes(const Nodes &nodes, Scope &scope, const std::map<std::string, int64_t> &opsets,
                    const Bindings &bindings, const std::string &prefix, int depth,
                    GraphBody &body) {
    if (depth > maxDepth) {
      error = "functions or subgraphs nest deeper than " + std::to_string(maxDepth) +
              " levels (or a function calls itself)";
      return false;
    }
    for (const onnx::Node &node : nodes)
      for (const std::string &output : node.output())
        if (!output.empty() && !preBound(scope, output) && !define(scope, output))
          return false;
    for (const onnx::Node &node : nodes)
      if (!flattenNode(node, scope, opsets, bindings, prefix, depth, body))
        return false;
    return true;
  }

  // Outputs of a function keep the numbers of the caller's outputs.
  bool preBound(Scope &scope, const std::string &name) {
    if (!bound.count(name))
      return false;
    bound.erase(name);
    local.back().insert(name);
    return true;
  }

  bool flattenNode(const onnx::Node &node, const Scope &scope,
                   const std::map<std::string, int64_t> &opsets, const Bindings &bindings,
                   const std::string &prefix, int depth, GraphBody &body) {
    if (node.output_size() == 0)
      return true; // its results cannot be used
    if (!spend(size_t(1) + node.input_size() + node.output_size() + node.attribute_size()))
      return false;
    GraphNode out;
    out.op = node.op_type();
    out.domain = canonicalDomain(node.domain());
    out.name = !node.name().empty() ? prefix + node.name()
               : node.output_size() ? prefix + node.output(0)
                                    : prefix + out.op;
    auto opset = opsets.find(out.domain);
    out.opset = opset == opsets.end() ? 1 : opset->second;
    out.detach = isDetach(node);
    out.squeezesOnes = isTorchSqueeze(node);
    out.padding = recordedPadding(node);
    for (const std::string &input : node.input()) {
      if (input.empty()) {
        out.inputs.push_back(-1);
        continue;
      }
      const int *found = scope.find(input);
      if (!found) {
        error = out.describe() + ": input '" + input +
                "' is not defined by any node, input or initializer";
        return false;
      }
      out.inputs.push_back(*found);
    }
    for (const std::string &output : node.output())
      out.outputs.push_back(output.empty() ? -1 : *scope.find(output));

    for (const onnx::Attribute &attribute : node.attribute()) {
      if (!attribute.ref_attr_name().empty()) {
        if (!declared || !declared->count(attribute.ref_attr_name())) {
          error = out.describe() + ": attribute '" + attribute.name() +
                  "' is that of a function, '" + attribute.ref_attr_name() + "', and " +
                  (declared ? "the function around it has none of this name"
                            : "it is not in a function") +
                  "; the file is not a valid ONNX graph";
          return false;
        }
        auto found = bindings.find(attribute.ref_attr_name());
        if (found != bindings.end())
          out.attributes[attribute.name()] = found->second;
        continue; // absent in the call: use the operator's default
      }
      // Attributes are owned by the model, which outlives the graph.
      out.attributes[attribute.name()] =
          std::shared_ptr<const onnx::Attribute>(std::shared_ptr<void>(), &attribute);
    }

    auto function = functions.find({out.domain, out.op, node.overload()});
    if (function != functions.end())
      return inlineFunction(*function->second, out, depth, body);

    for (auto &[name, attribute] : out.attributes)
      if (attribute->has_g()) {
        auto nested = std::make_shared<GraphBody>();
        Scope inner{&scope};
        if (!flattenGraph(attribute->g(), inner, opsets, bindings, prefix, depth + 1, *nested))
          return false;
        out.bodies[name] = nested;
      }
    if (out.outputs[0] < 0)
      out.outputs[0] = newValue(""); // handlers always write the first output
    body.nodes.push_back(std::move(out));
    return true;
  }

  bool inlineFunction(const onnx::Function &function, const GraphNode &call, int depth,
                      GraphBody &body) {
    if (!spend(size_t(function.input_size()) + function.output_size() + function.attribute_size() +
               function.attribute_proto_size() + function.opset_import_size()))
      return false;
    Scope scope;
    Bindings bindings;
    std::set<std::string> names(function.attribute().begin(), function.attribute().end());
    for (const onnx::Attribute &attribute : function.attribute_proto()) {
      names.insert(attribute.name());
      bindings[attribute.name()] =
          std::shared_ptr<const onnx::Attribute>(std::shared_ptr<void>(), &attribute);
    }
    for (auto &[name, attribute] : call.attributes) {
      if (!names.count(name)) {
        error = call.describe() + ": calls a function of the file with attribute '" + name +
                "', which the function does not have";
        return false;
      }
      bindings[name] = attribute;
    }
    std::map<std::string, int64_t> opsets = versions(function.opset_import());
    if (!opsets.count(""))
      opsets[""] = model.opset();
    if (std::string problem = opsetProblem(opsets[""]); !problem.empty()) {
      error = call.describe() + ": calls a function of the file that " + problem;
      return false;
    }
    const std::set<std::string> *outerDeclared = declared;
    declared = &names;

    local.emplace_back();
    std::set<std::string> outerBound;
    outerBound.swap(bound);
    for (int i = 0; i < function.input_size(); ++i) {
      local.back().insert(function.input(i));
      if (i < static_cast<int>(call.inputs.size()) && call.inputs[i] >= 0)
        scope.names[function.input(i)] = call.inputs[i];
    }
    std::vector<std::pair<int, std::string>> forwarded; // outputs that are inputs of the function
    for (int i = 0; i < function.output_size() && i < static_cast<int>(call.outputs.size()); ++i) {
      if (call.outputs[i] < 0)
        continue;
      const std::string &name = function.output(i);
      if (scope.names.count(name)) {
        forwarded.emplace_back(call.outputs[i], name);
        continue;
      }
      scope.names[name] = call.outputs[i];
      bound.insert(name);
    }
    // Optional inputs that the call omits are also omitted inside.
    std::vector<std::string> omitted;
    for (const std::string &name : function.input())
      if (!scope.names.count(name))
        omitted.push_back(name);
    for (const std::string &name : omitted)
      scope.names[name] = -1;

    if (!flattenNodes(function.node(), scope, opsets, bindings, call.name + "/", depth + 1, body))
      return false;
    if (!bound.empty()) {
      error = call.describe() + ": function output '" + *bound.begin() +
              "' is not defined in its body";
      return false;
    }
    for (auto &[value, name] : forwarded) {
      GraphNode identity;
      identity.op = "Identity";
      identity.name = call.name;
      identity.opset = model.opset();
      identity.inputs = {scope.names[name]};
      identity.outputs = {value};
      body.nodes.push_back(std::move(identity));
    }
    bound.swap(outerBound);
    local.pop_back();
    declared = outerDeclared;
    return true;
  }

  static void uses(const GraphNode &node, std::vector<int> &out) {
    for (int input : node.inputs)
      if (input >= 0)
        out.push_back(input);
    for (auto &[name, body] : node.bodies) {
      for (const GraphNode &inner : body->nodes)
        uses(inner, out);
      out.insert(out.end(), body->outputs.begin(), body->outputs.end());
    }
  }

  // Stable topological order. An error names two nodes of a cycle.
  bool order(GraphBody &body) {
    std::unordered_map<int, size_t> producer;
    for (size_t i = 0; i < body.nodes.size(); ++i)
      for (int output : body.nodes[i].outputs)
        if (output >= 0)
          producer[output] = i;
    enum class State : uint8_t { New, Open, Done };
    std::vector<State> state(body.nodes.size(), State::New);
    std::vector<size_t> sorted;
    std::vector<std::pair<size_t, std::vector<int>>> stack;
    for (size_t root = 0; root < body.nodes.size(); ++root) {
      if (state[root] != State::New)
        continue;
      auto open = [&](size_t node) {
        state[node] = State::Open;
        std::vector<int> needed;
        uses(body.nodes[node], needed);
        std::reverse(needed.begin(), needed.end());
        stack.emplace_back(node, std::move(needed));
      };
      open(root);
      while (!stack.empty()) {
        auto &[node, needed] = stack.back();
        if (needed.empty()) {
          state[node] = State::Done;
          sorted.push_back(node);
          stack.pop_back();
          continue;
        }
        int value = needed.back();
        needed.pop_back();
        auto found = producer.find(value);
        if (found == producer.end() || state[found->second] == State::Done)
          continue;
        if (state[found->second] == State::Open) {
          error = "the graph has a cycle through " + body.nodes[found->second].describe() +
                  " and " + body.nodes[node].describe();
          return false;
        }
        open(found->second);
      }
    }
    std::vector<GraphNode> nodes;
    nodes.reserve(sorted.size());
    for (size_t index : sorted)
      nodes.push_back(std::move(body.nodes[index]));
    body.nodes = std::move(nodes);
    return true;
  }

  const LoadedModel &model;
  FlatGraph graph;
  std::string error;
  std::map<std::tuple<std::string, std::string, std::string>, const onnx::Function *> functions;
  std::vector<std::set<std::string>> local{1}; ///< names defined in each open scope
  std::set<std::string> bound;                 ///< function outputs that no node has defined yet
  const std::set<std::string> *declared = nullptr; ///< attributes of the function that is being
                                                   ///< inlined; null in the main graph
  size_t items = 0;                                ///< number of items counted against maxItems
};

} // namespace

Result<FlatGraph> zorse::onnx_import::flatten(const LoadedModel &model) {
  return Flattener(model).run();
}
