#include "Importer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

// Inputs: dimension 0 is the sample axis. `rows` is the file's batch where it is a number, otherwise one that no other axis is likely to share.
LogicalResult Importer::bindInputs() {
  struct Input {
    int value;
    std::string name;
    ElementKind type;
    std::vector<int64_t> shape;
  };
  std::vector<Input> inputs;
  int64_t baked = 0;
  std::string bakedBy;
  std::map<std::string, int64_t> firstDims;
  for (auto &[value, info] : graph.inputs) {
    if (!info->type().has_tensor_type())
      return error("input '" + info->name() + "' is not a tensor");
    const onnx::Type::TensorType &tensor = info->type().tensor_type();
    Input input{value, info->name(), static_cast<ElementKind>(tensor.elem_type()), {}};
    if (!byteSize(input.type))
      return error("input '" + info->name() + "': element type " + Twine(name(input.type)) + " is not supported");
    if (!tensor.has_shape() || tensor.shape().dim_size() == 0)
      return error("input '" + info->name() + "': expects a shape whose dimension 0 counts samples, found " + (tensor.has_shape() ? "a scalar" : "none"));
    for (int i = 0; i < tensor.shape().dim_size(); ++i) {
      const auto &dim = tensor.shape().dim(i);
      int64_t size = dim.has_dim_value() ? dim.dim_value() : 0;
      std::string symbol = dim.has_dim_param() ? dim.dim_param() : "";
      if (i == 0) {
        if (size > 0) {
          if (baked && baked != size)
            return error("inputs '" + bakedBy + "' and '" + info->name() + "' hold " + Twine(baked) + " and " + Twine(size) +
                         " samples in dimension 0; expects one number of samples for all inputs");
          baked = size;
          bakedBy = info->name();
        }
      } else if (size <= 0) {
        auto bound = options.dims.find(symbol);
        if (bound != options.dims.end())
          size = bound->second;
        else if (i == 1 && options.sequence > 0)
          size = options.sequence;
        else
          return error("input '" + info->name() + "': dimension " + Twine(i) + (symbol.empty() ? Twine("") : " ('" + symbol + "')") +
                       " is symbolic; give the sequence length (--seq), or its value by name (--dim " + (symbol.empty() ? "name" : symbol) + "=N)");
      } else if (i == 1 && options.sequence > 0 && options.sequence != size) {
        return error("input '" + info->name() + "': the file fixes dimension 1 to " + Twine(size) + ", but a sequence of " + Twine(options.sequence) +
                     " is asked for; export with a symbolic sequence dimension");
      }
      if (size > (int64_t(1) << 32))
        return error("input '" + info->name() + "': dimension " + Twine(i) + " is too large");
      input.shape.push_back(size);
    }
    inputs.push_back(std::move(input));
  }
  if (inputs.empty())
    return error("the graph has no inputs: nothing carries samples");
  rowsBaked = baked > 0;
  rows = rowsBaked ? baked : 7;
  notes.push_back(rowsBaked ? "the file fixes " + std::to_string(rows) + " samples; the sample axis is found from there and made dynamic" : "samples are a symbolic dimension");

  for (Input &input : inputs) {
    SmallVector<int64_t> shape{ShapedType::kDynamic};
    shape.append(input.shape.begin() + 1, input.shape.end());
    input.shape[0] = rows;
    if (!isSensible(input.shape))
      return error("input '" + input.name + "': its shape is too large, at most 2^44 elements and 16 dimensions are supported");
    if (!isFloat(input.type) && input.type != ElementKind::I64 && input.type != ElementKind::I32 && input.type != ElementKind::Bool)
      return error("input '" + input.name + "': element type " + Twine(name(input.type)) + " is not supported; use int64, int32, bool or a float type");
    Value argument = block->addArgument(RankedTensorType::get(shape, elementType(input.type)), NameLoc::get(builder.getStringAttr(input.name)));
    inputArguments[input.name] = static_cast<unsigned>(inputNames.size());
    inputNames.push_back(input.name);
    values[input.value] = wrap(argument, input.type, input.shape);
  }
  return success();
}

/// Up to five of `names`, the most similar to `wanted` first.
static std::string similar(std::vector<std::string> names, StringRef wanted) {
  if (names.empty())
    return "none";
  std::stable_sort(names.begin(), names.end(), [&](StringRef a, StringRef b) { return a.edit_distance(wanted) < b.edit_distance(wanted); });
  std::string text;
  for (size_t i = 0; i < names.size() && i < 5; ++i)
    text += (i ? ", '" : "'") + names[i] + "'";
  return text + (names.size() > 5 ? ", ..." : "");
}

LogicalResult Importer::checkNames() {
  std::set<std::string> symbols;
  for (auto &[value, info] : graph.inputs)
    for (int i = 1; i < info->type().tensor_type().shape().dim_size(); ++i)
      if (const auto &dim = info->type().tensor_type().shape().dim(i); dim.has_dim_param())
        symbols.insert(dim.dim_param());
  for (auto &[name, size] : options.dims)
    if (!symbols.count(name))
      return error("no dimension of an input behind the samples is called '" + name + "'; there are: " + similar({symbols.begin(), symbols.end()}, name));
  std::vector<std::string> initializerNames;
  for (auto &[value, tensor] : graph.body.initializers)
    for (const std::string &other : facts.namesOf(tensor->name()))
      initializerNames.push_back(other);
  for (auto &[name, fact] : facts.parameters)
    initializerNames.push_back(name);
  for (const GraphNode &node : graph.body.nodes) // parameters that the exporter has merged
    if (node.op == "Identity" && !node.inputs.empty() && initializers.count(node.inputs[0]))
      initializerNames.push_back(graph.valueNames[node.outputs[0]]);
  llvm::sort(initializerNames);
  initializerNames.erase(std::unique(initializerNames.begin(), initializerNames.end()), initializerNames.end());
  for (auto &[name, choice] : options.trainable)
    if (llvm::none_of(initializerNames, [&](const std::string &other) { return matches(name, other); }))
      return error("no initializer is called '" + name + "', which is to be " + (choice == TrainableChoice::Train ? "trained" : "frozen") + "; there are: " +
                   similar(initializerNames, name));
  return success();
}

LogicalResult Importer::readInitializers(const std::vector<int> &wanted) {
  for (auto &[value, tensor] : graph.body.initializers)
    initializers[value] = tensor;
  if (failed(classifyInitializers(wanted)))
    return failure();
  for (auto &[value, tensor] : graph.body.initializers) {
    std::string problem;
    auto bytes = model.bytes(*tensor, problem, options.weightsLater);
    if (!bytes)
      return error(problem);
    if (roles[tensor] != InitializerRole::Constant)
      continue; // an argument once it is used
    if (bytes->missing)
      return error("constant '" + tensor->name() + "': its value decides the graph, and its file '" + bytes->file + "' is not there. Export constants inside the model, or put the file beside it");
    int64_t size = 1;
    std::vector<int64_t> shape(tensor->dims().begin(), tensor->dims().end());
    for (int64_t dim : shape)
      size *= dim;
    auto kind = static_cast<ElementKind>(tensor->data_type());
    values[value] = constantOf(kind, makeBytes(kind, *bytes, size), shape);
  }
  return success();
}

// Nodes with the same operator, attributes and inputs have the same outputs, unless they draw random numbers.
static std::string numberingKey(const GraphNode &node, const std::vector<int> &canonical) {
  if (node.op == "Dropout" || !node.bodies.empty())
    return {};
  std::string key = node.domain + "." + node.op + (node.detach ? "!" : "") + (node.padding ? "^" + std::to_string(*node.padding) : std::string());
  for (int value : node.inputs)
    key += "," + std::to_string(value < 0 ? -1 : canonical[value]);
  key += "#" + std::to_string(node.outputs.size());
  for (auto &[name, attribute] : node.attributes) {
    key += ";" + name + "=";
    if (attribute->has_t() && attribute->t().ByteSizeLong() > 4096)
      return {};
    std::string text;
    if (!attribute->SerializeToString(&text))
      return {};
    key += text;
  }
  return key;
}

LogicalResult Importer::interpret(GraphBody &body, const std::vector<int> &wanted) {
  llvm::DenseSet<int> live(wanted.begin(), wanted.end());
  std::function<void(const GraphNode &)> use = [&](const GraphNode &node) {
    for (int value : node.inputs)
      if (value >= 0)
        live.insert(value);
    for (auto &[name, nested] : node.bodies) {
      for (const GraphNode &inner : nested->nodes)
        use(inner);
      live.insert(nested->outputs.begin(), nested->outputs.end());
    }
  };
  std::vector<const GraphNode *> needed;
  for (size_t i = body.nodes.size(); i-- > 0;) {
    const GraphNode &node = body.nodes[i];
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](int value) { return value >= 0 && live.contains(value); })) {
      use(node);
      needed.push_back(&node);
    }
  }
  std::vector<int> canonical(values.size());
  for (size_t i = 0; i < canonical.size(); ++i)
    canonical[i] = static_cast<int>(i);
  std::unordered_map<std::string, const GraphNode *> numbered;
  for (size_t i = needed.size(); i-- > 0;) {
    const GraphNode &node = *needed[i];
    std::string key = numberingKey(node, canonical);
    if (!key.empty()) {
      auto [found, isNew] = numbered.try_emplace(key, &node);
      if (!isNew) {
        for (size_t k = 0; k < node.outputs.size(); ++k)
          if (node.outputs[k] >= 0 && found->second->outputs[k] >= 0) {
            values[node.outputs[k]] = values[found->second->outputs[k]];
            canonical[node.outputs[k]] = canonical[found->second->outputs[k]];
          }
        bool complete = true;
        for (size_t k = 0; k < node.outputs.size(); ++k)
          complete &= node.outputs[k] < 0 || found->second->outputs[k] >= 0;
        if (complete)
          continue;
      }
    }
    if (failed(interpretNode(node)))
      return failure();
  }
  return success();
}

LogicalResult Importer::interpretNode(const GraphNode &node) {
  location = NameLoc::get(builder.getStringAttr(node.name));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    int value = node.inputs[i];
    if (value < 0)
      continue;
    if (!values[value]) {
      auto found = initializers.find(value);
      if (found == initializers.end()) {
        if (graph.valueNames[value].empty())
          continue;
        return error(node, "its input '" + graph.valueNames[value] + "' has no value: the producer does not yield it");
      }
      values[value] = parameter(*found->second, roles[found->second] == InitializerRole::Trained);
    }
  }
  const Operator *known = operatorOf(node);
  if (!known)
    return error(node, "the operator is not supported");
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (in(node, i).kind == Val::Kind::Loss) {
      static const llvm::StringSet<> lossOps{"Add", "Sub", "Mul", "Div", "Neg", "Sum", "Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Max", "Clip", "Shape", "Dropout", "ReduceSum", "ReduceMean"};
      if (!lossOps.contains(node.op))
        return error(node, "uses a sum over samples; samples may be combined only in the loss, as a sum of terms c * sum(a) / D");
    }
  if (failed(checkOperands(node)) || failed((this->*known->handler)(node)))
    return failure();
  if (tooLarge > 0)
    return error(node, "needs a constant of " + Twine(tooLarge) + " elements to be computed, at most " + Twine(options.mostComputed) + " are");
  for (int output : node.outputs) {
    if (output < 0)
      continue;
    if (values[output].rank() > 16)
      return error(node, "its result has more than 16 dimensions");
    if (!isSensible(values[output].shape()))
      return error(node, "its result is too large");
    if (node.detach && failed(detach(node, values[output])))
      return failure();
  }
  return success();
}

LogicalResult Importer::detach(const GraphNode &node, Val &value) {
  if (value.kind == Val::Kind::Loss)
    return error(node, "detaches what depends on all samples; expects losses and values of samples");
  for (Val &element : value.elements)
    if (failed(detach(node, element)))
      return failure();
  if (value.isGraph() && isFloat(value.type) && dependsOnParameter(value.value))
    value.value = create<DetachOp>(value.value);
  return success();
}

// What every handler may rely on: the operands an operator cannot do without are there and are tensors.
LogicalResult Importer::checkOperands(const GraphNode &node) {
  size_t count = operatorOf(node)->rule.least;
  bool sequences = node.op == "SequenceAt" || node.op == "ConcatFromSequence" || node.op == "Identity";
  bool anyGraph = false;
  for (size_t i = 0; i < std::max(count, node.inputs.size()); ++i) {
    const Val &operand = in(node, i);
    anyGraph |= operand.isGraph();
    if (!operand && i < count)
      return error(node, "expects at least " + Twine(count) + " inputs; input " + Twine(i) + " is missing");
    if (operand.kind == Val::Kind::Sequence && !(sequences && i == 0))
      return error(node, "expects a tensor as input " + Twine(i) + ", found a sequence");
  }
  for (size_t i = 0; anyGraph && i < node.inputs.size(); ++i) {
    const Val &operand = in(node, i);
    if (!operand.isConstant())
      continue;
    int64_t moving = 1;
    for (const FactorList &list : operand.view.dims)
      for (const Factor &factor : list)
        if (factor.stride != 0 && !__builtin_mul_overflow(moving, factor.size, &moving) && moving > (int64_t(1) << 30))
          return error(node, "computes with a constant of more than 2^30 elements");
  }
  return success();
}

// The loss: an output by name, an output called loss, or the only scalar output.
LogicalResult Importer::chooseLoss(std::vector<int> &wanted) {
  auto byName = [&](const std::string &name) -> int {
    const auto &outputs = model.model().graph().output();
    for (int i = 0; i < outputs.size(); ++i)
      if (outputs[i].name() == name)
        return graph.body.outputs[i];
    for (size_t i = 0; i < graph.valueNames.size(); ++i)
      if (graph.valueNames[i] == name)
        return static_cast<int>(i);
    return -1;
  };
  const auto &outputs = model.model().graph().output();
  std::string names;
  for (const auto &output : outputs)
    names += (names.empty() ? "'" : ", '") + output.name() + "'";
  if (!options.loss.empty()) {
    if (options.loss != "cross_entropy")
      return error("loss '" + options.loss + "' is not known; expects cross_entropy");
    std::string name = options.logits.empty() && outputs.size() ? outputs[0].name() : options.logits;
    int value = byName(name);
    if (value < 0)
      return error("logits '" + name + "' are not a value of the graph; its outputs are " + names);
    wanted = {value};
    return success();
  }
  if (!options.lossOutput.empty()) {
    int value = byName(options.lossOutput);
    if (value < 0)
      return error("loss '" + options.lossOutput + "' is not a value of the graph; its outputs are " + names);
    wanted = {value};
    return success();
  }
  int chosen = -1, scalars = 0;
  for (int i = 0; i < outputs.size(); ++i) {
    const auto &tensor = outputs[i].type().tensor_type();
    bool scalarLike = !tensor.has_shape() || tensor.shape().dim_size() == 0 || (tensor.shape().dim_size() == 1 && tensor.shape().dim(0).dim_value() == 1);
    if (outputs[i].name() == "loss" && scalarLike) {
      chosen = i;
      scalars = 1;
      break;
    }
    if (scalarLike && ++scalars == 1)
      chosen = i;
  }
  if (scalars != 1)
    return error("expects one scalar output, the loss; found " + Twine(scalars) + " among " + names +
                 ". Name it (--loss-output=NAME), or add a loss (--loss=cross_entropy --logits=NAME --labels=NAME)");
  wanted = {graph.body.outputs[chosen]};
  return success();
}

LogicalResult Importer::run(ImportedModel &result) {
  values.resize(graph.valueNames.size());
  module = ModuleOp::create(UnknownLoc::get(&context));
  Region region;
  block = new Block();
  std::unique_ptr<Block> owner(block);
  builder.setInsertionPointToEnd(block);

  std::vector<int> wanted;
  if (failed(chooseLoss(wanted)) || failed(checkSupported(wanted)) || failed(readInitializers(wanted)) || failed(bindInputs()) || failed(interpret(graph.body, wanted)))
    return failure();
  Val loss = values[wanted[0]];
  if (!options.loss.empty()) {
    LogicalResult status = success();
    auto added = addedLoss(status);
    if (failed(status) || !added)
      return failure();
    loss = *added;
  }
  if (loss.kind != Val::Kind::Loss) {
    if (loss.isGraph() && isSampled(loss) && loss.view.elements() == rows)
      return error("the loss '" + graph.valueNames[wanted[0]] + "' has one value per sample; expects their mean or sum");
    return error("the output '" + graph.valueNames[wanted[0]] + "' is not a loss: expects a scalar that sums over samples; found a tensor of rank " + Twine(loss.rank()) +
                 ". Add a loss with --loss=cross_entropy --logits=NAME --labels=NAME");
  }
  result.nodesRead = static_cast<int64_t>(graph.body.nodes.size());
  (void)owner.release();
  return finish(loss, result);
}

// Builds the function: operations in depth-first order from the results, arguments in the order of their first use, so that the order in which an exporter wrote its nodes leaves no trace.
LogicalResult Importer::finish(const Val &loss, ImportedModel &result) {
  std::unique_ptr<Block> scratch(block);
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttributes;
  int64_t term = 0;
  location = NameLoc::get(builder.getStringAttr("loss"));
  for (const LossSummand &summand : loss.summands) {
    if (!dependsOnParameter(summand.numerator)) {
      warn("loss term " + std::to_string(term) + " depends on no trained parameter");
    }
    NamedAttrList attributes;
    attributes.set(attributes::kTerm, builder.getI64IntegerAttr(term));
    attributes.set(attributes::kRole, builder.getStringAttr("numerator"));
    attributes.set(attributes::kCoefficient, builder.getF64FloatAttr(summand.coefficient));
    if (!summand.denominator) {
      double perRow = summand.denominatorPerRow;
      if (perRow == 0) {
        int64_t batch = options.batch ? options.batch : rowsBaked ? rows : 0;
        if (!batch)
          return error("the loss is a sum over samples, not a mean; give the number of samples per step (--batch) so that it keeps its size");
        perRow = 1.0 / static_cast<double>(batch);
        warn("the loss is a sum over samples: its gradient grows with the batch");
      }
      attributes.set(attributes::kDenominatorPerRow, builder.getF64FloatAttr(perRow));
    }
    results.push_back(summand.numerator);
    resultAttributes.push_back(attributes.getDictionary(&context));
    if (summand.denominator) {
      NamedAttrList denominator;
      denominator.set(attributes::kTerm, builder.getI64IntegerAttr(term));
      denominator.set(attributes::kRole, builder.getStringAttr("denominator"));
      results.push_back(summand.denominator);
      resultAttributes.push_back(denominator.getDictionary(&context));
    }
    ++term;
  }
  if (loss.summands.empty())
    return error("the loss has no terms");
  if (failed(checkPadding()))
    return failure();

  // Depth-first order.
  llvm::DenseSet<Operation *> placed;
  SmallVector<Operation *> order;
  std::vector<BlockArgument> arguments;
  llvm::DenseSet<Value> met;
  for (Value root : results) {
    SmallVector<std::pair<Value, unsigned>> stack{{root, 0}};
    while (!stack.empty()) {
      auto &[value, next] = stack.back();
      Operation *op = value.getDefiningOp();
      if (!op) {
        if (met.insert(value).second)
          arguments.push_back(cast<BlockArgument>(value));
        stack.pop_back();
        continue;
      }
      if (placed.contains(op)) {
        stack.pop_back();
        continue;
      }
      if (next < op->getNumOperands()) {
        Value operand = op->getOperand(next++);
        stack.push_back({operand, 0});
        continue;
      }
      placed.insert(op);
      order.push_back(op);
      stack.pop_back();
    }
  }

  // Inputs in the file's order, used or not; then parameters in the order of their first use.
  unsigned inputCount = static_cast<unsigned>(inputNames.size());
  SmallVector<BlockArgument> sorted;
  for (unsigned i = 0; i < inputCount; ++i)
    sorted.push_back(block->getArgument(i));
  for (BlockArgument argument : arguments)
    if (argument.getArgNumber() >= inputCount)
      sorted.push_back(argument);

  SmallVector<Type> argumentTypes, resultTypes;
  for (BlockArgument argument : sorted)
    argumentTypes.push_back(argument.getType());
  for (Value value : results)
    resultTypes.push_back(value.getType());
  OpBuilder moduleBuilder = OpBuilder::atBlockEnd(module->getBody());
  auto function = func::FuncOp::create(moduleBuilder, NameLoc::get(builder.getStringAttr(model.model().graph().name())), "model",
                                       FunctionType::get(&context, argumentTypes, resultTypes));
  Block *body = function.addEntryBlock();
  for (auto [index, argument] : llvm::enumerate(sorted)) {
    body->getArgument(index).setLoc(argument.getLoc());
  }

  // Shifts and bounds of the inputs.
  std::vector<NamedAttrList> inputAttributes(inputCount);
  for (unsigned i = 0; i < inputCount; ++i)
    inputAttributes[i].set(attributes::kInput, builder.getStringAttr(inputNames[i]));
  // `exact`: the values reach the use as they are (and padding), so bounds of the use are bounds of the input.
  auto sourceInput = [&](Value value, bool &shifted, bool &exact) -> int {
    for (int depth = 0; depth < 64; ++depth) {
      if (auto argument = dyn_cast<BlockArgument>(value))
        return argument.getArgNumber() < inputCount ? static_cast<int>(argument.getArgNumber()) : -1;
      Operation *op = value.getDefiningOp();
      if (auto slice = dyn_cast<SliceOp>(op)) {
        for (int64_t offset : slice.getOffsets())
          shifted |= offset != 0;
        value = slice.getX();
      } else if (isa<ReshapeOp, TransposeOp, BroadcastOp, arith::ExtSIOp, arith::TruncIOp>(op)) {
        value = op->getOperand(0);
      } else if (auto concat = dyn_cast<ConcatOp>(op)) {
        Value next;
        for (Value operand : concat.getXs())
          if (zorse::carriesSamples(operand.getType()) && !splatValue(operand))
            next = operand;
        if (!next)
          return -1;
        value = next;
      } else if (isa<arith::MaxSIOp, arith::MinSIOp, arith::MulIOp, arith::AddIOp>(op)) {
        exact = false;
        value = splatValue(op->getOperand(0)) ? op->getOperand(1) : op->getOperand(0);
      } else if (isa<arith::SelectOp>(op)) {
        exact = false;
        value = splatValue(op->getOperand(1)) ? op->getOperand(2) : op->getOperand(1);
      } else {
        return -1;
      }
    }
    return -1;
  };
  for (Operation *op : order)
    if (auto gather = dyn_cast<GatherOp>(op)) {
      bool shifted = false, exact = true;
      int input = sourceInput(gather.getIds(), shifted, exact);
      if (input < 0 || !exact)
        continue;
      int64_t bound = cast<RankedTensorType>(gather.getTable().getType()).getDimSize(0);
      auto old = dyn_cast_or_null<IntegerAttr>(inputAttributes[input].get("zorse.upper_bound"));
      inputAttributes[input].set("zorse.upper_bound", builder.getI64IntegerAttr(old ? std::min(old.getInt(), bound) : bound));
      inputAttributes[input].set(attributes::kRole, builder.getStringAttr("ids"));
    }
  for (const LossInfo &info : losses) {
    bool shifted = false, exact = true;
    int input = sourceInput(info.labels, shifted, exact);
    if (input < 0)
      continue;
    if (options.shiftedInGraph)
      shifted = *options.shiftedInGraph;
    if (!inputAttributes[input].get(attributes::kRole)) {
      inputAttributes[input].set(attributes::kRole, builder.getStringAttr("labels"));
      inputAttributes[input].set("zorse.shifted_in_graph", builder.getBoolAttr(shifted));
      if (exact)
        inputAttributes[input].set("zorse.upper_bound", builder.getI64IntegerAttr(info.classes));
      if (info.ignore)
        inputAttributes[input].set("zorse.ignore_index", builder.getI64IntegerAttr(*info.ignore));
    }
    notes.push_back("labels are '" + inputNames[input] + "': " +
                    (shifted ? "the graph shifts them itself, so they are the ids. zorse-run --data FILE does that; a file of their own (--data " + inputNames[input] + "=FILE.npy) holds the ids"
                             : "the graph compares position i with label i. zorse-run --data FILE takes the next token for every label by itself; a file of their own (--data " + inputNames[input] +
                                   "=FILE.npy) must hold labels that are shifted already"));
  }

  std::vector<WeightSource> ordered;
  for (unsigned i = 0; i < sorted.size(); ++i) {
    if (i < inputCount) {
      function.setArgAttrs(i, inputAttributes[i].getDictionary(&context));
      continue;
    }
    unsigned number = sorted[i].getArgNumber();
    function.setArgAttrs(i, argumentAttributes[number - inputCount]);
    ordered.push_back(weights[weightOfArgument.at(number)]);
  }
  for (unsigned i = 0; i < resultTypes.size(); ++i)
    function.setResultAttrs(i, resultAttributes[i]);

  for (Operation *op : order) {
    op->remove();
    body->push_back(op);
  }
  OpBuilder end = OpBuilder::atBlockEnd(body);
  func::ReturnOp::create(end, function.getLoc(), results);
  for (auto [index, argument] : llvm::enumerate(sorted))
    argument.replaceAllUsesWith(body->getArgument(index));
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*scratch)))
    op.erase();

  if (failed(verify(*module)))
    return failure();
  result.weights = std::move(ordered);
  reportParameters(result);
  result.warnings = warnings;
  result.notes = notes;
  result.module = std::move(module);
  return success();
}

static FailureOr<ImportedModel> import(std::shared_ptr<LoadedModel> model, std::string problem, const std::string &path, const ImportOptions &options,
                                       MLIRContext &context) {
  context.loadDialect<ZorseDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect>();
  auto fail = [&](const std::string &text) -> LogicalResult { return emitError(UnknownLoc::get(&context)) << text, failure(); };
  if (!model)
    return fail(problem);
  FlatGraph graph;
  if (!flatten(*model, graph, problem))
    return fail(path + ": " + problem);
  ImportedModel result;
  result.storage = model;
  Importer importer(*model, graph, options, context);
  if (failed(importer.run(result)))
    return failure();
  return result;
}

FailureOr<ImportedModel> zorse::importOnnx(const std::string &path, const ImportOptions &options, MLIRContext &context) {
  std::string problem;
  std::shared_ptr<LoadedModel> model = LoadedModel::load(path, problem);
  return import(std::move(model), problem, path, options, context);
}

FailureOr<ImportedModel> zorse::importOnnx(const std::string &path, const void *bytes, uint64_t size, const ImportOptions &options, MLIRContext &context) {
  std::string problem;
  std::shared_ptr<LoadedModel> model = LoadedModel::load(MappedFile::view(bytes, size), path, problem);
  return import(std::move(model), problem, path, options, context);
}
