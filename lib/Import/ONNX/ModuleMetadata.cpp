#include "ModuleMetadata.h"
#include "TorchCall.h"

#include "zorse/Support/ShallowJson.h"

#include "llvm/Support/JSON.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::onnx_import;
namespace json = llvm::json;
using llvm::StringRef;

/// The key of the metadata property, and the key in files of older versions.
static constexpr const char *kKey = "zorse.metadata", *kOldKey = "zorse.facts";
static constexpr int64_t kVersion = 1;

template <typename Properties>
static const std::string *property(const Properties &properties, StringRef end) {
  for (const onnx::StringPair &entry : properties)
    if (StringRef(entry.key()).ends_with(end))
      return &entry.value();
  return nullptr;
}

std::vector<std::string> ModuleMetadata::namesOf(const std::string &name) const {
  for (const std::vector<std::string> &group : ties)
    if (std::find(group.begin(), group.end(), name) != group.end())
      return group;
  return {name};
}

HubName ModuleMetadata::hubNameOf(const std::string &initializer) const {
  std::string parameter = initializer;
  bool transposed = false;
  if (!parameters.count(initializer) && !hub.count(initializer)) { // `hub` contains the running
                                                                   // statistics among buffers
    auto found = stored.find(initializer);
    if (found == stored.end() ||
        (found->second.form != "same" && found->second.form != "transpose"))
      return {};
    parameter = found->second.parameter;
    transposed = found->second.form == "transpose";
  }
  HubName out;
  for (const std::string &name : namesOf(parameter))
    if (auto found = hub.find(name); found != hub.end()) {
      out.names.insert(out.names.end(), found->second.names.begin(), found->second.names.end());
      out.transposed = found->second.transposed != transposed;
      out.adapter = found->second.adapter;
    }
  if (out.names.empty())
    for (const std::string &name : namesOf(parameter))
      if (name != initializer)
        out.ties.push_back(name);
  return out;
}

// Reads the graph signature, one line per value: "p_l_weight: PARAMETER target='l.weight'". Also
// reads which values the nodes were made from.
static void readExporter(const onnx::Model &model, ModuleMetadata &metadata) {
  std::map<std::string, std::string> placeholders; // placeholder to name of the parameter
  auto add = [&](StringRef kind, const std::string &name) {
    if (kind.contains("PARAMETER"))
      metadata.parameters.try_emplace(name);
    else if (kind.contains("BUFFER") || kind.contains("CONSTANT"))
      metadata.buffers.insert(name);
  };
  if (const std::string *signature = property(model.graph().metadata_props(), "graph_signature")) {
    metadata.namesAll = true;
    llvm::SmallVector<StringRef> lines;
    StringRef(*signature).split(lines, '\n');
    for (StringRef line : lines) {
      auto [placeholder, rest] = line.split(": ");
      size_t quote = rest.find("target='");
      if (quote == StringRef::npos)
        continue;
      std::string name = rest.substr(quote + 8).split('\'').first.str();
      add(rest.take_front(quote), name);
      if (rest.starts_with("PARAMETER"))
        placeholders["%" + placeholder.str()] = name;
    }
  }
  for (const onnx::ValueInfo &info : model.graph().value_info())
    if (const std::string *kind = property(info.metadata_props(), "InputSpec.kind"))
      add(*kind, info.name());
  for (const onnx::Tensor &tensor : model.graph().initializer())
    if (const std::string *kind = property(tensor.metadata_props(), "InputSpec.kind"))
      add(*kind, tensor.name());
  if (!metadata.parameters.empty())
    metadata.source = ModuleMetadata::Source::Exporter;

  std::set<std::string> made, detached;
  std::set<std::string> initializers;
  for (const onnx::Tensor &tensor : model.graph().initializer())
    initializers.insert(tensor.name());
  for (const onnx::Node &node : model.graph().node()) {
    std::optional<TorchCall> call = torchCall(node);
    if (!call)
      continue;
    if (call->calls("aten.detach.")) {
      made.insert("%" + call->result);
      ++metadata.detaches;
    }
    for (const std::string &argument : call->arguments) {
      if (auto found = placeholders.find(argument); found != placeholders.end())
        metadata.used.insert(found->second);
      if (argument == "%detach" || StringRef(argument).starts_with("%detach_"))
        detached.insert(argument);
    }
    // A linear layer with a weight that the exporter transposed.
    if ((node.op_type() == "MatMul" || node.op_type() == "Gemm") && call->calls("aten.linear.") &&
        call->arguments.size() > 1 && node.input_size() > 1)
      if (auto found = placeholders.find(call->arguments[1]);
          found != placeholders.end() && initializers.count(node.input(1)) &&
          !metadata.parameters.count(node.input(1)) && !metadata.buffers.count(node.input(1)))
        metadata.stored[node.input(1)] = {found->second, "transpose"};
  }
  for (const std::string &name : detached)
    metadata.lostDetaches += !made.count(name);
}

static std::vector<std::string> strings(const json::Array *array) {
  std::vector<std::string> out;
  for (const json::Value &value : array ? *array : json::Array())
    if (auto text = value.getAsString())
      out.push_back(text->str());
  return out;
}

static std::vector<std::vector<std::string>> groups(const json::Array *array) {
  std::vector<std::vector<std::string>> out;
  for (const json::Value &value : array ? *array : json::Array())
    if (auto *inner = value.getAsArray())
      out.push_back(strings(inner));
  return out;
}

static void readHub(const json::Object &hub, ModuleMetadata &metadata) {
  metadata.hubModel.buffers = strings(hub.getArray("buffers"));
  if (const json::Object *parameters = hub.getObject("parameters"))
    for (const auto &[name, value] : *parameters)
      if (const json::Object *entry = value.getAsObject()) {
        HubName fact;
        fact.names = strings(entry->getArray("names"));
        fact.transposed = entry->getBoolean("transposed").value_or(false);
        fact.adapter = entry->getBoolean("adapter").value_or(false);
        metadata.hub[name.str()] = std::move(fact);
      }
  if (const json::Object *lora = hub.getObject("lora")) {
    HubModel::Lora &out = metadata.hubModel.lora.emplace();
    out.rank = lora->getInteger("r").value_or(0);
    out.alpha = lora->getNumber("alpha").value_or(0);
    out.targets = strings(lora->getArray("targets"));
    out.fanInFanOut = lora->getBoolean("fan_in_fan_out").value_or(false);
  }
}

static Status readModule(const json::Object &object, ModuleMetadata &metadata) {
  if (object.getInteger("version") != kVersion)
    return userError("its facts (" + std::string(kKey) + ") are of version " +
                     std::to_string(object.getInteger("version").value_or(0)) + ", expects " +
                     std::to_string(kVersion) +
                     "; write them again with python/zorse/metadata.py of this version");
  const json::Object *parameters = object.getObject("parameters");
  if (!parameters)
    return userError("its facts (" + std::string(kKey) +
                     ") name no parameters; write them again with python/zorse/metadata.py");
  metadata.source = ModuleMetadata::Source::Module;
  metadata.namesAll = true;
  metadata.parameters.clear();
  metadata.buffers.clear();
  metadata.stored.clear();
  for (const auto &[name, value] : *parameters) {
    ParameterMetadata fact;
    if (const json::Object *entry = value.getAsObject()) {
      fact.trained = entry->getBoolean("trained").value_or(true);
      if (const json::Array *shape = entry->getArray("shape")) {
        fact.shape.emplace();
        for (const json::Value &dim : *shape)
          fact.shape->push_back(dim.getAsInteger().value_or(-1));
      }
    }
    metadata.parameters[name.str()] = std::move(fact);
  }
  if (const json::Object *buffers = object.getObject("buffers"))
    for (const auto &entry : *buffers)
      metadata.buffers.insert(entry.first.str());
  metadata.ties = groups(object.getArray("ties"));
  metadata.equal = groups(object.getArray("equal"));
  metadata.unsaid = strings(object.getArray("unsaid"));
  if (const json::Array *statistics = object.getArray("statistics")) {
    std::vector<std::string> names = strings(statistics);
    metadata.statistics.emplace(names.begin(), names.end());
  }
  if (const json::Object *padding = object.getObject("padding"))
    for (const auto &[name, row] : *padding)
      if (auto number = row.getAsInteger())
        metadata.padding[name.str()] = *number;
  if (const json::Object *stored = object.getObject("stored"))
    for (const auto &[name, value] : *stored)
      if (const json::Object *entry = value.getAsObject())
        metadata.stored[name.str()] = {entry->getString("parameter").value_or("").str(),
                                       entry->getString("form").value_or("").str()};
  if (auto detached = object.getInteger("detached"))
    metadata.detached = *detached;
  if (auto training = object.getBoolean("training"))
    metadata.training = *training;
  if (const json::Object *hub = object.getObject("hub"))
    readHub(*hub, metadata);
  auto mark = [&](StringRef key, std::optional<bool> ParameterMetadata::*field) {
    const json::Array *names = object.getArray(key);
    if (!names)
      return;
    for (auto &[name, fact] : metadata.parameters)
      fact.*field = false;
    for (const std::string &name : strings(names))
      for (const std::string &other : metadata.namesOf(name))
        if (auto found = metadata.parameters.find(other); found != metadata.parameters.end())
          found->second.*field = true;
  };
  mark("reached", &ParameterMetadata::reached);
  mark("read", &ParameterMetadata::read);
  return Status::success();
}

Result<ModuleMetadata> zorse::onnx_import::readModuleMetadata(const onnx::Model &model) {
  ModuleMetadata metadata;
  readExporter(model, metadata);
  for (const onnx::StringPair &entry : model.metadata_props()) {
    if (entry.key() != kKey && entry.key() != kOldKey)
      continue;
    llvm::Expected<json::Value> parsed = nestsDeeper(entry.value(), 16)
                                             ? llvm::Expected<json::Value>(nullptr)
                                             : json::parse(entry.value());
    if (!parsed || !parsed->getAsObject())
      return userError("its facts (" + std::string(kKey) + ") are not a JSON object" +
                       (parsed ? std::string() : ": " + llvm::toString(parsed.takeError())) +
                       "; write them again with python/zorse/metadata.py");
    if (Status status = readModule(*parsed->getAsObject(), metadata); status.failed())
      return status;
    break;
  }
  return metadata;
}
