// Converts layers.json to a ModelSummary and a Profile. Every message contains the JSON path, the
// expected and the found value.
#include "zorse/Planning/Layers.h"

#include "CostTables.h"
#include "ProfileFields.h"
#include "SummaryBuilder.h"

#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <map>
#include <sstream>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::fields;
using json = Json;

namespace {

constexpr int64_t kMaxLayers = 8192, kMaxBytes = int64_t(1) << 48, kMaxElements = int64_t(1) << 44,
                  kMaxTokens = int64_t(1) << 24;
constexpr size_t kMaxClasses = 4096;
constexpr int64_t kUnknownInput = 8; ///< bytes of a sample's input: one number per token

struct LayerClass {
  int64_t elements = 0, output = -1, saved = 0, deferred = -1;
  std::optional<bundle::AffineSize> workspace;
  double flops = -1;
};

int64_t toBytes(const json &value, const std::string &path) {
  return toInteger(value, path, 0, kMaxBytes);
}

const json &need(const json &object, const char *key, const std::string &path, const char *what) {
  if (!object.contains(key))
    fail(path, std::string("missing key \"") + key + "\" (" + what + ")");
  return object[key];
}

/// Checks that classNames() maps a class's name to itself, because profiles refer to classes by the
/// names that it returns.
void checkName(const std::string &name, const std::string &path) {
  std::istringstream words(name);
  std::string again;
  for (std::string word; words >> word;)
    if (word.find_first_not_of("0123456789") != std::string::npos)
      again += (again.empty() ? "" : " ") + word;
  if (name.empty() || again != name)
    fail(path, "expected a name of words with single blanks between them, none of which is a "
               "number, got " +
                   show(json(name)) + "; write, say, \"layer-3\" in place of \"layer 3\"");
}

LayerClass readLayerClass(const json &from, const std::string &path, uint64_t elementSize) {
  checkKeys(from, path,
            {"parameters", "parameter_bytes", "output", "saved", "deferred", "workspace", "flops"});
  LayerClass result;
  if (from.contains("parameters") == from.contains("parameter_bytes"))
    fail(path, std::string("expected one of \"parameters\" (elements) and \"parameter_bytes\" (in "
                           "\"compute_type\"), found ") +
                   (from.contains("parameters") ? "both" : "neither") +
                   "; a layer without any has \"parameters\": 0");
  if (from.contains("parameters")) {
    result.elements = toInteger(from["parameters"], path + ".parameters", 0, kMaxElements);
  } else {
    const int64_t bytes = toBytes(from["parameter_bytes"], path + ".parameter_bytes"),
                  size = static_cast<int64_t>(elementSize);
    if (bytes % size)
      fail(path + ".parameter_bytes", "expected a multiple of the " + std::to_string(size) +
                                          " bytes of an element of \"compute_type\", got " +
                                          std::to_string(bytes));
    result.elements = bytes / size;
  }
  if (from.contains("output"))
    result.output = toBytes(from["output"], path + ".output");
  result.saved =
      toBytes(need(from, "saved", path, "bytes per sample that its forward keeps for its backward"),
              path + ".saved");
  if (from.contains("deferred"))
    result.deferred = toBytes(from["deferred"], path + ".deferred");
  if (from.contains("workspace")) {
    const json &workspace = from["workspace"];
    const std::string here = path + ".workspace";
    result.workspace.emplace();
    if (workspace.is_object()) {
      checkKeys(workspace, here, {"fixed", "per_sample"});
      if (workspace.contains("fixed"))
        result.workspace->set_fixed(toBytes(workspace["fixed"], here + ".fixed"));
      if (workspace.contains("per_sample"))
        result.workspace->set_per_row(toBytes(workspace["per_sample"], here + ".per_sample"));
    } else {
      result.workspace->set_per_row(toBytes(workspace, here));
    }
  }
  if (from.contains("flops"))
    result.flops = toNumber(from["flops"], path + ".flops", 0, 1e24, "FLOPs");
  return result;
}

class Reader : SummaryBuilder {
public:
  Reader(const json &root, bundle::ElementType type, uint32_t moments, const std::string &name)
      : SummaryBuilder(name, type), root(root) {
    addRule(moments);
    if (root.contains("tokens_per_sample"))
      tokens = toInteger(root["tokens_per_sample"], "tokens_per_sample", 1, kMaxTokens);
  }

  LayerTable read() {
    readClasses();
    const std::vector<std::string> order = readOrder();
    build(order);
    readMeasurements(root, table.profile);
    checkDevices();
    assume();
    table.summary = std::move(out);
    return std::move(table);
  }

private:
  static std::string pathOf(const std::string &name) { return "classes[" + show(json(name)) + "]"; }

  void readClasses() {
    const json &from = need(root, "classes", "", "the kinds of layers by name");
    if (!from.is_object() || from.empty() || from.size() > kMaxClasses)
      fail("classes", "expected an object of 1 to " + std::to_string(kMaxClasses) +
                          " classes, got " + show(from));
    for (auto &[name, value] : from.items()) {
      checkName(name, pathOf(name));
      classes[name] = readLayerClass(value, pathOf(name), elementBytes(out.compute_type()));
    }
  }

  /// Returns the class of every layer.
  std::vector<std::string> readOrder() {
    const json &layers = toArray(need(root, "layers", "", "the layers in order"), "layers",
                                 static_cast<size_t>(kMaxLayers));
    std::vector<std::string> order;
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::string here = at("layers", i);
      checkKeys(layers[i], here, {"class", "count"});
      const std::string name =
          toText(need(layers[i], "class", here, "a name of \"classes\""), here + ".class", false);
      if (!classes.count(name))
        fail(here + ".class",
             show(json(name)) + " is not in \"classes\"; add it there, or name one of " + known());
      const int64_t left = kMaxLayers - static_cast<int64_t>(order.size());
      const int64_t count = layers[i].contains("count")
                                ? toInteger(layers[i]["count"], here + ".count", 1, kMaxLayers)
                                : 1;
      if (count > left)
        fail(here + ".count", "expected at most " + std::to_string(kMaxLayers) +
                                  " layers altogether, got more; merge adjacent layers into one");
      order.insert(order.end(), static_cast<size_t>(count), name);
    }
    if (order.empty())
      fail("layers", "expected at least one layer, found none");
    for (const auto &[name, unused] : classes)
      if (std::find(order.begin(), order.end(), name) == order.end())
        fail(pathOf(name),
             "expected a layer of this class, found none; use it in \"layers\" or remove it");
    if (std::none_of(order.begin(), order.end(),
                     [&](const std::string &name) { return classes[name].elements > 0; }))
      fail("layers", "expected a layer with parameters, found none: there is nothing to train");
    for (size_t i = 0; i + 1 < order.size(); ++i)
      if (classes[order[i]].output < 0)
        fail(pathOf(order[i]), "missing key \"output\" (bytes per sample that are sent to the next "
                               "layer); only the last layer needs none");
    return order;
  }

  std::string known() const {
    std::string text;
    for (const auto &[name, unused] : classes)
      text += (text.empty() ? "" : ", ") + name;
    return text.size() > 120 ? text.substr(0, 117) + "..." : text;
  }

  void build(const std::vector<std::string> &order) {
    std::map<std::string, uint32_t> ids;
    std::map<std::string, int> counts;
    bool gradient = false;
    std::vector<bool> needs;
    for (const std::string &name : order) {
      const LayerClass &of = classes[name];
      Work work;
      work.forward = of.flops >= 0 ? of.flops
                                   : 2 * double(of.elements) * double(std::max<int64_t>(tokens, 1));
      work.weights = of.elements > 0 ? work.forward : 0;
      work.elementwise = double(std::max<int64_t>(of.output, 0)) + double(of.saved);
      work.saved = of.saved;
      const bool splits = of.deferred >= 0 && gradient && of.elements > 0;
      work.deferred = splits ? of.deferred : 0;
      if (of.workspace)
        work.workspace = *of.workspace;
      const uint32_t id = ids.emplace(name, static_cast<uint32_t>(ids.size())).first->second;
      std::vector<Parameter> parameters;
      if (of.elements > 0)
        parameters.push_back({"weights", {of.elements}});
      addUnit(name + " " + std::to_string(counts[name]++), id, work, parameters, splits);
      gradient = gradient || of.elements > 0;
      needs.push_back(gradient);
    }
    std::vector<int64_t> dims;
    if (tokens > 0)
      dims.push_back(tokens);
    const int64_t input = root.contains("input") ? toBytes(root["input"], "input")
                                                 : kUnknownInput * std::max<int64_t>(tokens, 1);
    addInput("input", tokens > 0 ? "ids" : "", dims, input, 0);
    for (size_t u = 0; u + 1 < order.size(); ++u) {
      const int64_t bytes = classes[order[u]].output;
      addValue(static_cast<int>(u), bytes, valueDims(bytes), needs[u]);
    }
    finish(static_cast<double>(std::max<int64_t>(tokens, 1)));
  }

  /// Returns tokens by channels if the bytes are divisible.
  std::vector<int64_t> valueDims(int64_t bytes) const {
    const int64_t elements = bytes / static_cast<int64_t>(elementBytes(out.compute_type()));
    if (tokens > 0 && elements % tokens == 0)
      return {tokens, elements / tokens};
    return {elements};
  }

  void checkDevices() {
    for (size_t d = 0; d < table.profile.devices.size(); ++d)
      for (const auto &[name, unused] : table.profile.devices[d].classes)
        if (!classes.count(name))
          fail(at("devices", d) + ".unit_classes[" + show(json(name)) + "]",
               "is not in \"classes\"; add it there, or name one of " + known());
  }

  bool givesMemory(const std::string &name) const {
    for (const DeviceProfile &device : table.profile.devices)
      if (auto entry = device.classes.find(name); entry != device.classes.end())
        for (const ClassProfile &atDegree : entry->second)
          for (const ProfilePoint &point : atDegree.points)
            if (point.memory >= 0)
              return true;
    return false;
  }

  void assume() {
    std::string workspace, flops, whole;
    auto add = [](std::string &list, const std::string &name) {
      list += (list.empty() ? "'" : ", '") + name + "'";
    };
    for (const auto &[name, of] : classes) {
      if (!of.workspace && !givesMemory(name))
        add(workspace, name);
      if (of.flops < 0) {
        table.withoutFlops.insert(name);
        add(flops, name);
      }
      if (of.deferred < 0 && of.elements > 0)
        add(whole, name);
    }
    if (!workspace.empty())
      table.assumptions.push_back("layers without \"workspace\" need none: " + workspace);
    if (!flops.empty())
      table.assumptions.push_back(
          "layers without \"flops\" have 2 for each parameter" +
          std::string(tokens > 0 ? " and token" : "") +
          ", for shares of the work and of a backward's two parts: " + flops);
    if (!whole.empty())
      table.assumptions.push_back("layers without \"deferred\" do not split their backward: " +
                                  whole);
    if (!root.contains("input"))
      table.assumptions.push_back("a sample's input is " +
                                  std::to_string(out.inputs(0).bytes_per_row()) +
                                  " bytes (\"input\" is not given)");
    if (!root.contains("moments"))
      table.assumptions.push_back(
          "the optimizer keeps 2 numbers of 4 bytes for each parameter (\"moments\" is not given)");
  }

  const json &root;
  int64_t tokens = 0;
  std::map<std::string, LayerClass> classes;
  LayerTable table;
};

LayerTable readRoot(const json &root) {
  checkKeys(root, "",
            {"format", "name", "comment", "compute_type", "moments", "tokens_per_sample", "input",
             "classes", "layers", "devices", "links"});
  if (root.contains("format"))
    toInteger(root["format"], "format", 1, 1);
  if (root.contains("comment"))
    toText(root["comment"], "comment");
  const std::string text =
      toText(need(root, "compute_type", "", "f32, f16 or bf16"), "compute_type");
  const auto types = {bundle::F32, bundle::F16, bundle::BF16};
  auto type = std::find_if(types.begin(), types.end(),
                           [&](bundle::ElementType t) { return text == elementTypeName(t); });
  if (type == types.end())
    fail("compute_type", "expected f32, f16 or bf16, got " + show(root["compute_type"]));
  const int64_t moments =
      root.contains("moments") ? toInteger(root["moments"], "moments", 0, kMaxOptimizerStates) : 2;
  return Reader(root, *type, static_cast<uint32_t>(moments),
                root.contains("name") ? toText(root["name"], "name") : "layers")
      .read();
}

} // namespace

Result<LayerTable> zorse::planning::readLayers(const std::string &text) {
  return fields::read(text, "the table of layers", kMaxProfileBytes, readRoot);
}

Result<LayerTable> zorse::planning::readLayersFile(const std::string &path) {
  return parseRegularFile(path, kMaxProfileBytes, readLayers);
}

Status zorse::planning::checkLayerTimes(const LayerTable &table, const Cluster &cluster,
                                        const Profile &profile) {
  for (const ClusterDevice &device : cluster.devices) {
    const DeviceProfile *measured = findProfile(profile, device);
    for (const std::string &name : table.withoutFlops) {
      bool forward = false, backward = false, inputs = false, weights = false;
      if (auto entry = measured
                           ? measured->classes.find(name)
                           : std::map<std::string, std::vector<ClassProfile>>::const_iterator();
          measured && entry != measured->classes.end())
        for (const ClassProfile &atDegree : entry->second)
          for (const ProfilePoint &point : atDegree.points) {
            forward |= atDegree.degree == 1 && point.forward >= 0;
            backward |= atDegree.degree == 1 && point.backward >= 0;
            inputs |= atDegree.degree == 1 && point.inputGradients >= 0;
            weights |= atDegree.degree == 1 && point.weightGradients >= 0;
          }
      if (forward && (backward || (inputs && weights)))
        continue;
      return userError("device '" + device.name + "'" +
                       (device.type.empty() ? "" : " (" + device.type + ")") +
                       ": expected forward and backward times of class '" + name + "', found " +
                       (forward ? "forward alone" : "none") +
                       "; give them under \"devices\" for this device or its type, or \"flops\" of "
                       "the class for an estimate");
    }
  }
  return Status::success();
}
