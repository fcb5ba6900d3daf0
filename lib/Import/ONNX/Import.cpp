// Runs an import from beginning to end: names, initializers, the loss, and errors about the loss.
#include "zorse/Import/ONNX/Import.h"

#include "Initializers.h"
#include "Interpret.h"
#include "Known.h"
#include "Losses.h"
#include "TrainingFile.h"

#include "zorse/Base/Patterns.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"

#include <algorithm>
#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// Lists up to five of `names`, the most similar to `wanted` first.
static std::string similar(std::vector<std::string> names, StringRef wanted) {
  if (names.empty())
    return "none";
  std::stable_sort(names.begin(), names.end(), [&](StringRef a, StringRef b) {
    return a.edit_distance(wanted) < b.edit_distance(wanted);
  });
  std::string text;
  for (size_t i = 0; i < names.size() && i < 5; ++i)
    text += (i ? ", '" : "'") + names[i] + "'";
  return text + (names.size() > 5 ? ", ..." : "");
}

LogicalResult zorse::onnx_import::checkNames(ImportState &state) {
  std::set<std::string> symbols;
  for (auto &[value, info] : state.graph.inputs)
    for (int i = 1; i < info->type().tensor_type().shape().dim_size(); ++i)
      if (const auto &dim = info->type().tensor_type().shape().dim(i); dim.has_dim_param())
        symbols.insert(dim.dim_param());
  for (auto &[name, size] : state.options.dims)
    if (!symbols.count(name))
      return error(state, "no dimension of an input behind the samples is called '" + name +
                              "'; there are: " + similar({symbols.begin(), symbols.end()}, name));
  std::vector<std::string> initializerNames;
  for (auto &[value, tensor] : state.graph.body.initializers)
    for (const std::string &other : state.metadata.namesOf(tensor->name()))
      initializerNames.push_back(other);
  for (auto &[name, fact] : state.metadata.parameters)
    initializerNames.push_back(name);
  for (const GraphNode &node : state.graph.body.nodes) // parameters merged by the exporter
    if (node.op == "Identity" && !node.inputs.empty() && state.initializers.count(node.inputs[0]))
      initializerNames.push_back(state.graph.valueNames[node.outputs[0]]);
  llvm::sort(initializerNames);
  initializerNames.erase(std::unique(initializerNames.begin(), initializerNames.end()),
                         initializerNames.end());
  for (auto &[name, choice] : state.options.trainable)
    if (llvm::none_of(initializerNames, [&name = name](const std::string &other) {
          return matchesPattern(name, other);
        }))
      return error(state, "no initializer is called '" + name + "', which is to be " +
                              (choice == TrainableChoice::Train ? "trained" : "frozen") +
                              "; there are: " + similar(initializerNames, name));
  return success();
}

static LogicalResult readInitializers(ImportState &state, const std::vector<int> &wanted) {
  for (auto &[value, tensor] : state.graph.body.initializers) {
    state.initializers[value] = tensor;
    if (tensor->name() == "__metadata__")
      return error(state, "initializer '__metadata__': safetensors files keep this name for "
                          "themselves, so no checkpoint could hold it. Rename the parameter");
  }
  if (failed(classifyInitializers(state, wanted)))
    return failure();
  for (auto &[value, tensor] : state.graph.body.initializers) {
    auto bytes = state.model.bytes(*tensor, state.options.weightsLater);
    if (bytes.failed())
      return error(state, bytes.message());
    if (state.roles[tensor] != InitializerRole::Constant)
      continue; // becomes an argument at its first use
    if (bytes->missing)
      return error(
          state, "constant '" + tensor->name() + "': its value decides the graph, and its file '" +
                     bytes->file +
                     "' is missing. Export constants inside the model, or put the file next to it");
    state.values[value] = constantOf(*tensor, *bytes);
  }
  return success();
}

/// Chooses the loss: an output by name, an output named loss, or the only scalar output.
static LogicalResult chooseLoss(ImportState &state, std::vector<int> &wanted) {
  auto byName = [&](const std::string &name) -> int {
    const auto &outputs = state.model.model().graph().output();
    for (int i = 0; i < outputs.size(); ++i)
      if (outputs[i].name() == name)
        return state.graph.body.outputs[i];
    for (size_t i = 0; i < state.graph.valueNames.size(); ++i)
      if (state.graph.valueNames[i] == name)
        return static_cast<int>(i);
    return -1;
  };
  const auto &outputs = state.model.model().graph().output();
  std::string names;
  for (const auto &output : outputs)
    names += (names.empty() ? "'" : ", '") + output.name() + "'";
  if (!state.options.loss.empty()) {
    if (state.options.loss != "cross_entropy")
      return error(state, "loss '" + state.options.loss + "' is not known; expects cross_entropy");
    std::string name = state.options.logits.empty() && outputs.size() ? outputs[0].name()
                                                                      : state.options.logits;
    int value = byName(name);
    if (value < 0)
      return error(state,
                   "logits '" + name + "' are not a value of the graph; its outputs are " + names);
    wanted = {value};
    return success();
  }
  if (!state.options.lossOutput.empty()) {
    int value = byName(state.options.lossOutput);
    if (value < 0)
      return error(state, "loss '" + state.options.lossOutput +
                              "' is not a value of the graph; its outputs are " + names);
    wanted = {value};
    return success();
  }
  int chosen = -1, scalars = 0;
  std::string found;
  for (int i = 0; i < outputs.size(); ++i) {
    const auto &tensor = outputs[i].type().tensor_type();
    bool scalarLike = !tensor.has_shape() || tensor.shape().dim_size() == 0 ||
                      (tensor.shape().dim_size() == 1 && tensor.shape().dim(0).dim_value() == 1);
    if (outputs[i].name() == "loss" && scalarLike) {
      chosen = i;
      scalars = 1;
      break;
    }
    if (scalarLike && ++scalars == 1)
      chosen = i;
    std::string dims;
    for (const auto &dim : tensor.shape().dim())
      dims += (dims.empty() ? "" : ", ") +
              (dim.dim_param().empty() ? std::to_string(dim.dim_value()) : dim.dim_param());
    found += (found.empty() ? "'" : ", '") + outputs[i].name() + "' of shape [" + dims + "]";
  }
  if (scalars > 1)
    return error(state, "expects one scalar output, the loss; found " + Twine(scalars) + " among " +
                            names + ". Name it (--loss-output=NAME)");
  if (scalars == 0)
    return error(state, "expects one scalar output, the loss; found " +
                            (found.empty() ? "no output" : found) +
                            ". Return the loss from forward, or let the compiler add it: "
                            "--loss=cross_entropy --logits=NAME --labels=NAME");
  wanted = {state.graph.body.outputs[chosen]};
  return success();
}

/// With --group-rows, a loss is one number per group: the loss of a step is their mean.
static ImportedValue lossOfGroups(ImportState &state, ImportedValue value) {
  if (state.options.groupRows == 0 || !value.isTensor() || !isFloat(value.type) ||
      value.view.elements() != 1)
    return value;
  state.combinesSamples = value.grouped && !value.affine;
  const Number scale = value.takeScale();
  if (!state.dependsOnParameter(value.value()) || scale.constant() == 0.0)
    return knownScalar(value.type, Number(0.0)); // nothing to train
  LossSummand summand;
  summand.factor = scale * Number(static_cast<double>(state.options.groupRows)) / Number::samples();
  summand.elementsPerRow = 1;
  summand.numerator =
      isBatched(value)
          ? sumPerSample(state, materialise(state, value, groupsOf(value.view, true), true))
          : broadcastTo(state, materialise(state, value), {}, {ShapedType::kDynamic});
  return {value.type, {}, Loss{{std::move(summand)}}};
}

static LogicalResult run(ImportState &state, ImportedModel &result) {
  state.values.resize(state.graph.valueNames.size());
  state.module = ModuleOp::create(UnknownLoc::get(&state.context));
  Region region;
  state.block = new Block();
  std::unique_ptr<Block> owner(state.block);
  state.builder.setInsertionPointToEnd(state.block);

  std::vector<int> wanted;
  if (failed(chooseLoss(state, wanted)) || failed(checkSupported(state, wanted)) ||
      failed(readInitializers(state, wanted)) || failed(bindInputs(state)) ||
      failed(interpret(state, state.graph.body, wanted)))
    return failure();
  state.lossNumber = state.options.loss.empty() ? wanted[0] : -1;
  ImportedValue loss = lossOfGroups(state, state.values[wanted[0]]);
  if (auto number = loss.view.elements() == 1 && loss.isKnown() ? uniformNumber(state, loss)
                                                                : std::nullopt) {
    if (!state.options.inputsAlone)
      return error(state,
                   "the loss '" + state.graph.valueNames[wanted[0]] +
                       "' depends on no parameter: it is " + number->print() +
                       " (B: the samples of a step; n0, n1, ...: sums of inputs over them), so "
                       "there is nothing to train. Where parameters are meant, "
                       "export in training mode, and look for a detach() or no_grad() on the way");
    loss.content = Loss{};
    addNumber(state, *number, loss.loss().summands);
  }
  if (!state.options.loss.empty()) {
    LogicalResult status = success();
    auto added = addedLoss(state, status);
    if (failed(status) || !added)
      return failure();
    loss = *added;
  }
  if (loss.isSums())
    return error(state, "the loss '" + state.graph.valueNames[wanted[0]] + "' has " +
                            Twine(loss.view.elements()) +
                            " values; expects one: their sum or mean");
  const bool isZero =
      loss.isLoss() &&
      llvm::all_of(loss.loss().summands, [](const LossSummand &part) { return part.factor.is(0); });
  if (isZero || (loss.view.elements() == 1 && loss.isConstant()))
    return error(state, "the loss '" + state.graph.valueNames[wanted[0]] + "' is the number " +
                            Number(isZero ? 0 : uniformValue(state, loss).value_or(0)).print() +
                            ", whatever samples and parameters are: there is nothing to train. "
                            "Look for a detach(), a no_grad() or a factor of 0 on the way, and "
                            "export in training mode");
  if (loss.view.elements() == 1 && loss.isTensor() && !isBatched(loss))
    return error(state, "the loss '" + state.graph.valueNames[wanted[0]] +
                            "' is a function of parameters alone: expects a scalar that sums over "
                            "samples. Add it to a loss of the samples, or compute that one "
                            "here (--loss=cross_entropy --logits=NAME --labels=NAME) and use "
                            "--weight-decay for a penalty");
  if (!loss.isLoss()) {
    if (loss.isTensor() && isBatched(loss) && loss.view.elements() == state.rows)
      return error(state, "the loss '" + state.graph.valueNames[wanted[0]] +
                              "' has one value per sample; expects their mean or sum");
    return error(
        state,
        "the output '" + state.graph.valueNames[wanted[0]] +
            "' is not a loss: expects a scalar that sums over samples; found a tensor of rank " +
            Twine(loss.rank()) +
            ". Add a loss with --loss=cross_entropy --logits=NAME --labels=NAME");
  }
  result.nodesRead = static_cast<int64_t>(state.graph.body.nodes.size());
  (void)owner.release();
  return finish(state, loss.loss(), result);
}

/// Adopts the loss and the trained parameters of the file's training settings. Options of the
/// caller take precedence.
static void adopt(const FileTraining &training, const onnx::Model &model, ImportOptions &options,
                  std::vector<std::string> &notes) {
  if (options.loss.empty() && options.lossOutput.empty())
    options.lossOutput = training.loss;
  std::set<std::string> trained(training.trained.begin(), training.trained.end());
  for (const onnx::Tensor &tensor : model.graph().initializer())
    if (isFloat(static_cast<ElementKind>(tensor.data_type())))
      options.trainable.try_emplace(tensor.name(), trained.count(tensor.name())
                                                       ? TrainableChoice::Train
                                                       : TrainableChoice::Freeze);
  notes.push_back("the file's " + training.form + " says what is trained (" +
                  std::to_string(training.trained.size()) + " parameters), and the loss '" +
                  training.loss + "'");
  notes.insert(notes.end(), training.notes.begin(), training.notes.end());
}

static FailureOr<ImportedModel> import(Result<std::unique_ptr<LoadedModel>> loaded,
                                       const std::string &path, const ImportOptions &options,
                                       MLIRContext &context) {
  context.loadDialect<ZorseDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect>();
  auto fail = [&](const std::string &text) -> LogicalResult {
    return emitError(UnknownLoc::get(&context)) << text, failure();
  };
  if (loaded.failed())
    return fail(loaded.message());
  const std::shared_ptr<LoadedModel> model = std::move(*loaded);
  ImportedModel result;
  result.storage = model;
  auto training = takeTraining(*model);
  if (training.failed())
    return fail(path + ": " + training.message());
  result.training = std::move(*training);
  ImportOptions adapted = options;
  std::vector<std::string> notes;
  if (result.training)
    adopt(*result.training, model->model(), adapted, notes);
  auto graph = flatten(*model);
  if (graph.failed())
    return fail(path + ": " + graph.message());
  ImportState state(*model, *graph, adapted, context);
  if (failed(run(state, result)))
    return failure();
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  return result;
}

FailureOr<ImportedModel> zorse::importOnnx(const std::string &path, const ImportOptions &options,
                                           MLIRContext &context) {
  return import(LoadedModel::load(path), path, options, context);
}

FailureOr<ImportedModel> zorse::importOnnx(const std::string &path, const void *bytes,
                                           uint64_t size, const ImportOptions &options,
                                           MLIRContext &context) {
  return import(LoadedModel::load(MappedFile::view(bytes, size), path), path, options, context);
}
