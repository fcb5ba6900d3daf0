// Assigns a role to every initializer. Sources in order of precedence: the user's flags, the file,
// and the uses of the initializer. An ambiguous initializer is an error that lists it. Roles
// inferred from uses are reported once.
#include "ImportState.h"
#include "Initializers.h"
#include "Interpret.h"
#include "Roles.h"

#include "zorse/Base/Patterns.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static constexpr int64_t kFolded = 1 << 17; ///< max elements of a constant that may decide the
                                            ///< graph; a larger one stays an argument

static constexpr const char *kMetadataHint =
    "write the module's facts into the file (zorse.metadata: write_metadata(module, path, "
    "inputs)), or export it "
    "with zorse.export (zorse-torch-export for a model of the hub)";

static std::string shapeText(const onnx::Tensor &tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.dims_size(); ++i)
    text += (i ? ", " : "") + std::to_string(tensor.dims(i));
  return text + "]";
}

/// Lists up to `max` names.
static std::string listed(const std::vector<std::string> &names, size_t max = 12) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < max; ++i)
    text += (i ? ", " : "") + names[i];
  return names.size() > max ? text + ", and " + std::to_string(names.size() - max) + " more" : text;
}

/// Replaces numbers between dots by * and removes duplicates. The results work as patterns of
/// --train and --freeze.
static std::vector<std::string> asPatterns(const std::vector<std::string> &names) {
  std::vector<std::string> patterns;
  for (const std::string &name : names) {
    SmallVector<StringRef> parts;
    StringRef(name).split(parts, '.');
    std::string pattern;
    for (StringRef part : parts) {
      bool number = !part.empty() &&
                    llvm::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
      pattern += (pattern.empty() ? "" : ".") + (number ? std::string("*") : part.str());
    }
    pattern = "'" + pattern + "'";
    if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end())
      patterns.push_back(pattern);
  }
  return patterns;
}

/// The user's choice for a name.
std::optional<TrainableChoice> zorse::onnx_import::forced(const ImportState &state,
                                                          const std::string &name) {
  std::vector<std::string> patterns;
  patterns.reserve(state.options.trainable.size());
  for (const auto &[pattern, choice] : state.options.trainable)
    patterns.push_back(pattern);
  const int deciding = decidingPattern(patterns, name);
  return deciding < 0 ? std::nullopt
                      : std::optional(state.options.trainable.at(patterns[deciding]));
}

/// The elements as doubles. Empty if there are more than `max` or the bytes are not available.
static std::vector<double> elementsOf(ImportState &state, const onnx::Tensor &tensor, int64_t max) {
  auto bytes = state.model.bytes(tensor, state.options.weightsLater);
  int64_t count = 1;
  for (int64_t dim : tensor.dims())
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count) || count > max)
      return {};
  if (bytes.failed() || bytes->missing)
    return {};
  auto kind = static_cast<ElementKind>(tensor.data_type());
  std::vector<double> out(count);
  if (count)
    makeBytes(kind, *bytes, count)->readFloats(0, 1, count, out.data());
  return out;
}

/// Constant, or Buffer if the tensor is large or its bytes are not available.
static InitializerRole asConstant(ImportState &state, const onnx::Tensor &tensor) {
  int64_t elements = 1;
  for (int64_t dim : tensor.dims())
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dim, 0), &elements))
      elements = INT64_MAX;
  auto bytes = state.model.bytes(tensor, state.options.weightsLater);
  return elements > kFolded || (!bytes.failed() && bytes->missing) ? InitializerRole::Buffer
                                                                   : InitializerRole::Constant;
}

/// Whether the initializer is a parameter that flags may freeze, and not a number in a formula that
/// matches a pattern by accident.
static bool isParameter(ImportState &state, int value, const onnx::Tensor &tensor,
                        const Uses &uses) {
  if (state.metadata.parameters.count(tensor.name()) || state.metadata.stored.count(tensor.name()))
    return true;
  if (state.metadata.namesAll)
    return false;
  InferredRole inferred =
      uses.inferred(value, tensor, [&](int64_t max) { return elementsOf(state, tensor, max); });
  return inferred == InferredRole::Trained ||
         (inferred == InferredRole::Ambiguous && uses.isProbablyTrained(value, tensor));
}

/// Whether the file contains the parameter: under one of its names, restored, or stored in another
/// form.
static bool isInFile(const ImportState &state, const std::string &name,
                     const std::set<std::string> &present) {
  std::vector<std::string> names = state.metadata.namesOf(name);
  for (const std::string &other : names)
    if (present.count(other))
      return true;
  return llvm::any_of(state.metadata.stored, [&](const auto &entry) {
    return present.count(entry.first) &&
           std::find(names.begin(), names.end(), entry.second.parameter) != names.end();
  });
}

/// TorchScript merges parameters with equal values and leaves `Identity(survivor) -> original
/// name`. Gives each parameter separate storage again.
static LogicalResult restoreMerged(ImportState &state, const Uses &uses) {
  std::vector<std::string> ambiguous;
  for (GraphNode &node : state.graph.body.nodes) {
    if (node.op != "Identity" || node.detach || node.inputs.size() != 1 || node.inputs[0] < 0 ||
        node.outputs.empty() || node.outputs[0] < 0)
      continue;
    auto source = state.initializers.find(node.inputs[0]);
    const std::string &original = state.graph.valueNames[node.outputs[0]];
    if (source == state.initializers.end() ||
        !isFloat(static_cast<ElementKind>(source->second->data_type())) ||
        !uses.getsGradient(node.outputs[0]))
      continue;
    if (state.metadata.source == ModuleMetadata::Source::Module) {
      std::vector<std::string> names = state.metadata.namesOf(original);
      bool known = state.metadata.parameters.count(original) ||
                   state.metadata.buffers.count(original);
      if (!known || std::find(names.begin(), names.end(), source->second->name()) != names.end())
        continue;
    } else if (looksRenamed(original) || StringRef(original).contains("/")) {
      // Several matrices were equal: either the model ties them, or the exporter merged them.
      if (StringRef(original).starts_with("onnx::") && !forced(state, source->second->name()))
        ambiguous.push_back("'" + original + "' (held by '" + source->second->name() + "' " +
                            shapeText(*source->second) + ")");
      continue;
    } else if (source->second->dims_size() != 1 && !forced(state, original)) {
      ambiguous.push_back("'" + original + "' (held by '" + source->second->name() + "' " +
                          shapeText(*source->second) + ")");
      continue;
    }
    auto copy = std::make_unique<onnx::Tensor>(*source->second);
    copy->set_name(original);
    state.notes.push_back("parameter '" + original + "' was merged into '" +
                          source->second->name() + "' by the exporter and is separate again");
    state.initializers[node.outputs[0]] = copy.get();
    state.rawSources[copy.get()] = source->second;
    state.graph.body.initializers.emplace_back(node.outputs[0], copy.get());
    state.restored.push_back(std::move(copy));
    node.op = "zorse.restored";
  }
  state.graph.body.nodes.erase(
      std::remove_if(state.graph.body.nodes.begin(), state.graph.body.nodes.end(),
                     [](const GraphNode &node) { return node.op == "zorse.restored"; }),
      state.graph.body.nodes.end());
  if (!ambiguous.empty()) {
    std::string what = "the exporter has merged parameters of equal values, and the file does not "
                       "say whether the model ties them: " +
                       listed(ambiguous);
    if (!state.options.trustGuess)
      return error(state, what + ". To settle it, " + kMetadataHint +
                              "; or train them as one with --infer-trainable");
    warn(state, what + "; they are trained as one (--infer-trainable)");
  }
  return success();
}

/// Initializers that contain a parameter under another name. If a parameter is stored twice, the
/// two initializers become one parameter again.
static LogicalResult aliasStored(ImportState &state) {
  // By first name: the value, and the form in which it stores the parameter.
  std::map<std::string, std::pair<int, std::string>> holders;
  std::map<std::string, const onnx::Tensor *> byName;
  for (auto &[value, tensor] : state.graph.body.initializers) {
    byName[tensor->name()] = tensor;
    if (state.metadata.parameters.count(tensor->name()))
      holders[state.metadata.namesOf(tensor->name()).front()] = {value, "same"};
  }
  for (auto &[value, tensor] : state.graph.body.initializers) {
    auto stored = state.metadata.stored.find(tensor->name());
    if (stored == state.metadata.stored.end() || state.roles[tensor] != InitializerRole::Trained ||
        forced(state, tensor->name()))
      continue;
    auto [holder, isFirst] = holders.try_emplace(
        state.metadata.namesOf(stored->second.parameter).front(), value, stored->second.form);
    if (isFirst)
      continue;
    const onnx::Tensor *first = state.initializers[holder->second.first];
    bool transposed = tensor->dims_size() == 2 && first->dims_size() == 2 &&
                      tensor->dims(0) == first->dims(1) && tensor->dims(1) == first->dims(0);
    bool sameShape = std::equal(tensor->dims().begin(), tensor->dims().end(), first->dims().begin(),
                                first->dims().end());
    if (stored->second.form == holder->second.second && sameShape) {
      state.initializers[value] = first;
    } else if ((stored->second.form == "transpose") != (holder->second.second == "transpose") &&
               stored->second.form != "rows" && holder->second.second != "rows" && transposed) {
      state.transposeOf[tensor] = first;
      state.notes.push_back("'" + tensor->name() + "' is the transpose of parameter '" +
                            first->name() +
                            "', written twice by the exporter: they are one parameter again");
    } else if (std::string problem = "parameter '" + stored->second.parameter +
                                     "' is in the file twice, as '" + first->name() + "' " +
                                     shapeText(*first) + " and, by " + stored->second.form +
                                     ", as '" + tensor->name() + "' " + shapeText(*tensor) +
                                     ", and training both would untie them";
               state.options.trustGuess) {
      warn(state, problem + " (--infer-trainable)");
    } else {
      return error(state,
                   problem + ". Export with torch.onnx.export(..., dynamo=True, optimize=False)");
    }
  }
  return success();
}

/// Checks for parameters that the file names but does not contain, because they were folded into
/// another value or merged with another parameter.
static LogicalResult checkMissing(ImportState &state, const std::set<std::string> &present,
                                  const std::vector<std::pair<int, const onnx::Tensor *>> &unknown,
                                  const Uses &uses) {
  std::vector<std::string> missing, merged, candidates;
  for (auto &[value, tensor] : unknown) {
    const onnx::Tensor &each = *tensor;
    if (!forced(state, each.name()) && uses.inferred(value, each, [&](int64_t max) {
          return elementsOf(state, each, max);
        }) != InferredRole::Constant)
      candidates.push_back("'" + each.name() + "' " + shapeText(each));
  }
  for (auto &[name, fact] : state.metadata.parameters) {
    std::vector<std::string> names = state.metadata.namesOf(name);
    if (names.front() != name || !fact.trained || fact.reached == false ||
        isInFile(state, name, present) || llvm::any_of(names, [&](const std::string &n) {
          return forced(state, n) == TrainableChoice::Freeze;
        }))
      continue;
    // If no initializer can contain the missing parameter, the parameter is not used.
    if (fact.reached == true || state.metadata.used.count(name) || !candidates.empty())
      missing.push_back("'" + name + "'");
  }
  for (const std::vector<std::string> &group : state.metadata.equal) {
    std::vector<std::string> there, gone;
    bool trains = false;
    for (const std::string &name : group) {
      auto fact = state.metadata.parameters.find(name);
      bool isTrained = fact != state.metadata.parameters.end() && fact->second.trained;
      bool unused = fact != state.metadata.parameters.end() &&
                    ((fact->second.reached == false && isTrained) || fact->second.read == false);
      if (isInFile(state, name, present))
        there.push_back("'" + name + "'"), trains |= isTrained;
      else if (!unused && !isTrained && !forced(state, name)) // missing trained ones are found
                                                              // above
        gone.push_back("'" + name + "'");
    }
    if (trains && !gone.empty())
      merged.push_back(listed(gone) + " (into " + listed(there) + "?)");
  }
  if (missing.empty() && merged.empty())
    return success();
  std::string text;
  if (!missing.empty())
    text = "the model trains " + listed(missing) + ", and the file does not hold " + "it" +
           ": the exporter has folded it into another value (exp(g), 1 + w, a product of two), or "
           "merged it with a parameter of equal values";
  if (missing.size() > 1)
    text = "the model trains " + listed(missing) +
           ", and the file does not hold them: the exporter has folded them into other values "
           "(exp(g), 1 + w, a product of two), or merged them with "
           "parameters of "
           "equal values";
  if (!candidates.empty() && !missing.empty())
    text += std::string("; what may hold ") + (missing.size() > 1 ? "them: " : "it: ") +
            listed(candidates);
  if (!merged.empty())
    text +=
        (text.empty() ? "" : "; ") +
        std::string("not trained, of the values of a trained parameter, and not in the file: ") +
        listed(merged);
  if (state.options.trustGuess) {
    warn(state, text + " (--infer-trainable: by their uses)");
    return success();
  }
  return error(state, text + ". Export with torch.onnx.export(..., dynamo=True, optimize=False), "
                             "which keeps every parameter; or take the file as it is: "
                             "--freeze=PATTERN for what stays as it was folded, "
                             "--infer-trainable to train what looks like a parameter");
}

/// Checks for gradient behavior of PyTorch that the file cannot express.
static LogicalResult checkGradients(ImportState &state) {
  std::vector<std::string> problems = state.metadata.unsaid;
  const char *lost = "; this form of export drops detach, dynamo=True with optimize=False keeps it";
  if (state.metadata.detached && *state.metadata.detached > state.metadata.detaches)
    problems.push_back("the module detaches " + std::to_string(*state.metadata.detached) +
                       (*state.metadata.detached == 1 ? " value that has" : " values that have") +
                       " a gradient, the file says so of " +
                       std::to_string(state.metadata.detaches) + lost);
  else if (state.metadata.source == ModuleMetadata::Source::Exporter &&
           state.metadata.lostDetaches > 0)
    problems.push_back("the module detaches a value and the exporter has dropped it (" +
                       std::to_string(state.metadata.lostDetaches) + " times)" + lost);
  if (problems.empty())
    return success();
  if (state.options.trustGuess) {
    for (const std::string &problem : problems)
      warn(state, problem + ": gradients differ from PyTorch's (--infer-trainable)");
    return success();
  }
  return error(state,
               "gradients would differ from PyTorch's: " + listed(problems, 6) +
                   ". Write a stop of gradients as detach(); --infer-trainable trains without");
}

/// Infers the role of initializers from their uses if the file does not specify it.
static LogicalResult guessRoles(ImportState &state,
                                const std::vector<std::pair<int, const onnx::Tensor *>> &unknown,
                                const Uses &uses) {
  std::vector<std::string> ambiguous, trained, trusted;
  for (auto &[value, tensor] : unknown) {
    const onnx::Tensor &each = *tensor;
    InferredRole inferred =
        uses.inferred(value, each, [&](int64_t max) { return elementsOf(state, each, max); });
    if (inferred == InferredRole::Ambiguous) {
      bool probably = uses.isProbablyTrained(value, each);
      ambiguous.push_back("'" + each.name() + "' " + shapeText(each));
      trusted.push_back("'" + each.name() + "' " + (probably ? "trained" : "frozen"));
      inferred = probably ? InferredRole::Trained : InferredRole::Constant;
    } else if (inferred == InferredRole::Trained) {
      trained.push_back(each.name());
    }
    state.roles[tensor] = inferred == InferredRole::Trained ? InitializerRole::Trained
                                                            : InitializerRole::Constant;
  }
  if (!ambiguous.empty() && !state.options.trustGuess)
    return error(state, "the file does not say whether " + std::to_string(ambiguous.size()) +
                            (ambiguous.size() == 1 ? " initializer is" : " initializers are") +
                            " trained, and their uses are ambiguous: " + listed(ambiguous, 40) +
                            ". Say it with --train=PATTERN and --freeze=PATTERN (* stands for any "
                            "characters); or " +
                            kMetadataHint +
                            "; or take the guess with --infer-trainable: " + listed(trusted, 40));
  if (!trusted.empty())
    warn(state, "guessed (--infer-trainable): " + listed(trusted, 40));
  if (!trained.empty())
    state.notes.push_back(
        "the file does not say what is trained, nor where gradients stop (detach, no_grad, "
        "padding_idx); by their uses " +
        std::to_string(trained.size()) +
        (trained.size() == 1 ? " initializer is: " : " initializers are: ") +
        listed(asPatterns(trained)) +
        "; --freeze=PATTERN freezes some, python/zorse/metadata.py writes it into the file");
  return success();
}

LogicalResult zorse::onnx_import::classifyInitializers(ImportState &state,
                                                       const std::vector<int> &wanted) {
  auto metadata = readModuleMetadata(state.model.model());
  if (metadata.failed())
    return error(state, metadata.message());
  state.metadata = std::move(*metadata);
  if (failed(checkGradients(state)))
    return failure();
  if (failed(checkNames(state)) || failed(restoreMerged(state, Uses(state.graph, wanted))))
    return failure();
  Uses uses(state.graph, wanted);

  std::set<std::string> present;
  for (auto &[value, tensor] : state.graph.body.initializers)
    present.insert(tensor->name());
  std::vector<std::pair<int, const onnx::Tensor *>> unknown;
  for (auto &[value, tensor] : state.graph.body.initializers) {
    const std::string &name = tensor->name();
    bool floats = isFloat(static_cast<ElementKind>(tensor->data_type()));
    InitializerRole &role = state.roles[tensor] = InitializerRole::Constant;
    auto fact = state.metadata.parameters.find(name);
    auto stored = state.metadata.stored.find(name);
    bool asKnown =
        fact != state.metadata.parameters.end() &&
        (!fact->second.shape || std::equal(tensor->dims().begin(), tensor->dims().end(),
                                           fact->second.shape->begin(), fact->second.shape->end()));
    if (!floats || llvm::is_contained(tensor->dims(), 0)) {
      if (state.options.trainable.count(name) && forced(state, name) == TrainableChoice::Train)
        warn(state, "initializer '" + name + "' cannot be trained: its elements are not floats");
    } else if (auto choice = forced(state, name)) {
      // --load-weights may supply other values for a frozen parameter, so they must not be compiled
      // into the program.
      role = *choice == TrainableChoice::Train          ? InitializerRole::Trained
             : isParameter(state, value, *tensor, uses) ? InitializerRole::Frozen
                                                        : asConstant(state, *tensor);
    } else if (asKnown) {
      role = fact->second.trained ? InitializerRole::Trained : InitializerRole::Frozen;
    } else if (state.metadata.buffers.count(name)) {
      continue;
    } else if (stored != state.metadata.stored.end()) {
      auto held = state.metadata.parameters.find(stored->second.parameter);
      bool freezes = forced(state, stored->second.parameter) == TrainableChoice::Freeze;
      role = held != state.metadata.parameters.end() && held->second.trained && !freezes
                 ? InitializerRole::Trained
                 : InitializerRole::Frozen;
    } else {
      if (fact != state.metadata.parameters.end())
        present.erase(name); // its shape differs: not the parameter
      unknown.emplace_back(value, tensor);
    }
  }
  if (state.metadata.namesAll && failed(checkMissing(state, present, unknown, uses)))
    return failure();
  if ((!state.metadata.namesAll || state.options.trustGuess) &&
      failed(guessRoles(state, unknown, uses)))
    return failure();
  if (failed(aliasStored(state)))
    return failure();
  if (state.metadata.source == ModuleMetadata::Source::Exporter) {
    std::vector<std::string> names;
    for (auto &[value, tensor] : state.graph.body.initializers)
      if (state.roles[tensor] == InitializerRole::Trained && !forced(state, tensor->name()))
        names.push_back(tensor->name());
    state.notes.push_back(
        "the file says what is a parameter, and not which are frozen (requires_grad=False) or what "
        "ran under no_grad, so all are trained: " +
        listed(asPatterns(names)) +
        "; --freeze=PATTERN freezes some, python/zorse/metadata.py writes it into the file");
  }
  if (state.metadata.source != ModuleMetadata::Source::None)
    return success();

  // Names that models assign contain dots, except those of the outermost module. An embedding
  // weight belongs to the model itself.
  std::set<const onnx::Tensor *> own;
  for (auto &[value, tensor] : state.graph.body.initializers)
    if (StringRef(tensor->name()).contains('.') || uses.isTable(value))
      own.insert(tensor);
  restoreTies(state, own);
  return success();
}
