// Reads and writes the index of a checkpoint: JSON in which every field is checked.
#include "Identity.h"
#include "Json.h"

#include "zorse/Support/ShallowJson.h"
#include "zorse/runtime/CheckpointFiles.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace zorse::runtime;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char *kFormat = "zorse checkpoint", *kChecksum = ",\n\"checksum\": \"";
constexpr uint64_t kVersion = 2;

/// Appends the checksum of all text before it.
std::string withChecksum(std::string text) {
  text.erase(text.rfind('}'));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.pop_back();
  std::string checksum = hexadecimal(XXH64(text.data(), text.size(), 0));
  return text + kChecksum + checksum + "\"\n}\n";
}

bool checksumHolds(const char *text, size_t size, std::string &problem) {
  std::string ending(text + size - std::min<size_t>(size, 64), std::min<size_t>(size, 64));
  size_t at = ending.rfind(kChecksum);
  std::string mark = kChecksum;
  const std::string last = "\"\n}\n";
  if (at == std::string::npos || ending.size() != at + mark.size() + 16 + last.size() ||
      ending.compare(at + mark.size() + 16, last.size(), last) != 0) {
    problem = "it does not end in its checksum: it is truncated or no index";
    return false;
  }
  std::string expected = ending.substr(at + mark.size(), 16),
              found = hexadecimal(XXH64(text, size - (ending.size() - at), 0));
  if (expected != found)
    problem = "its checksum is " + found + ", expected " + expected + ": it is damaged";
  return expected == found;
}

/// Optimizer states with one number per element, of the parameter's type.
std::vector<CheckpointState> plainStates(const CheckpointParameter &parameter, uint64_t moments) {
  return {size_t(moments), CheckpointState{parameter.elements(), parameter.type}};
}

/// \param moments  number of optimizer states of most trained parameters
ordered_json parameterJson(const CheckpointParameter &parameter, uint32_t moments) {
  ordered_json out = {{"name", parameter.name},
                      {"type", safetensorsName(parameter.type)},
                      {"shape", parameter.shape}};
  if (!parameter.permutation.empty())
    out["permutation"] = parameter.permutation;
  if (!parameter.hub.empty())
    out["hub"] = zorse::bundle::toJson(parameter.hub);
  if (parameter.trainable && parameter.states.size() != moments)
    out["moments"] = parameter.states.size();
  if (parameter.states != plainStates(parameter, parameter.states.size()))
    for (const CheckpointState &state : parameter.states)
      out["states"].push_back({{"entries", state.entries}, {"type", safetensorsName(state.type)}});
  if (!parameter.trainable) {
    ordered_json frozen = {{"xxh64", hexadecimal(parameter.hash)}};
    if (parameter.constant)
      frozen["constant"] = true;
    if (!parameter.file.empty()) {
      frozen["file"] = parameter.file;
      frozen["offset"] = parameter.offset;
      frozen["bytes"] = parameter.bytes;
      frozen["type"] = safetensorsName(parameter.storedType);
    }
    out["frozen"] = frozen;
  }
  return out;
}

void parseType(JsonFields &fields, const char *name, StoredType &out) {
  std::string text;
  fields.text(name, text);
  if (!fields.good())
    return;
  std::optional<StoredType> type = storedTypeNamed(text);
  if (!type || text != safetensorsName(*type))
    return fields.fail("has the unknown type '" + text + "'");
  out = *type;
}

/// Hub metadata of a parameter or of the model. Checkpoints of models without facts have none.
template <typename Hub> void parseHub(JsonFields &fields, Hub &out) {
  if (const json *hub = fields.has("hub") ? fields.find("hub") : nullptr)
    if (Status status = zorse::bundle::fromJson(*hub, out); status.failed())
      fields.fail(status.message());
}

/// Reads the optimizer states of a parameter that are not plain.
void parseStates(JsonFields &fields, std::vector<CheckpointState> &states) {
  const json *list = fields.good() && fields.has("states") ? fields.list("states") : nullptr;
  if (!list)
    return;
  if (list->size() != states.size())
    return fields.fail("has " + std::to_string(list->size()) + " states, expects " +
                       std::to_string(states.size()));
  for (size_t s = 0; s < states.size() && fields.good(); ++s) {
    std::string problem;
    JsonFields one((*list)[s], "state " + std::to_string(s), problem);
    const int64_t elements = states[s].entries;
    one.signedNumber("entries", states[s].entries, 0, elements);
    parseType(one, "type", states[s].type);
    if (!problem.empty())
      fields.fail(problem);
  }
}

/// \param moments  number of optimizer states, if the parameter does not say another
CheckpointParameter parseParameter(const json &from, size_t number, uint64_t moments,
                                   std::string &problem) {
  CheckpointParameter out;
  JsonFields fields(from, "parameter " + std::to_string(number), problem);
  fields.text("name", out.name);
  parseType(fields, "type", out.type);
  fields.dimensions("shape", out.shape);
  if (fields.has("permutation")) {
    fields.dimensions("permutation", out.permutation);
    std::vector<int64_t> sorted = out.permutation;
    std::sort(sorted.begin(), sorted.end());
    for (size_t d = 0; d < sorted.size(); ++d)
      if (sorted[d] != int64_t(d) || sorted.size() != out.shape.size())
        fields.fail("its permutation is none of its dimensions");
  }
  parseHub(fields, out.hub);
  std::optional<int64_t> count = elementCount(out.shape);
  int64_t bytes;
  if (fields.good() &&
      (!count || __builtin_mul_overflow(*count, int64_t(bytesOf(out.type)), &bytes)))
    fields.fail("is too large");
  if (fields.has("moments"))
    fields.number("moments", moments, 255);
  if (!fields.has("frozen")) {
    if (fields.good())
      out.states = plainStates(out, moments);
    parseStates(fields, out.states);
    return out;
  }
  out.trainable = false;
  const json *found = fields.find("frozen");
  if (!found)
    return out;
  JsonFields frozen(*found, "parameter '" + out.name + "', 'frozen'", problem);
  frozen.hash("xxh64", out.hash);
  out.constant = frozen.has("constant"); // absent in indices of earlier versions
  if (frozen.has("file")) {
    frozen.text("file", out.file);
    frozen.number("offset", out.offset);
    frozen.number("bytes", out.bytes);
    parseType(frozen, "type", out.storedType);
  }
  return out;
}

CheckpointShard parseSlice(const json &from, const std::string &file, const CheckpointIndex &index,
                           std::string &problem) {
  CheckpointShard out;
  JsonFields fields(from, "file '" + file + "', a slice", problem);
  uint64_t parameter = 0;
  fields.number("parameter", parameter, UINT32_MAX);
  fields.signedNumber("moment", out.moment, -1, 255);
  fields.signedNumber("begin", out.begin, 0, INT64_MAX);
  fields.signedNumber("end", out.end, 0, INT64_MAX);
  parseType(fields, "type", out.type);
  fields.number("offset", out.offset);
  fields.hash("xxh64", out.hash);
  if (!fields.good())
    return out;
  out.parameter = uint32_t(parameter);
  if (parameter >= index.parameters.size() || !index.parameters[parameter].trainable)
    fields.fail("names parameter " + std::to_string(parameter) + ", which is none that is trained");
  else if (out.moment >= int32_t(index.parameters[parameter].states.size()))
    fields.fail("names moment " + std::to_string(out.moment) + " of " +
                std::to_string(index.parameters[parameter].states.size()));
  else if (const int64_t entries = index.parameters[parameter].entries(out.moment);
           out.begin >= out.end || out.end > entries)
    fields.fail("holds elements [" + std::to_string(out.begin) + ", " + std::to_string(out.end) +
                ") of parameter '" + index.parameters[parameter].name + "', which has " +
                std::to_string(entries));
  else if (const bool isCode =
               out.moment >= 0 &&
               !isFloat(index.parameters[parameter].states[size_t(out.moment)].type);
           isFloat(out.type) == isCode)
    fields.fail(std::string("holds numbers of type ") + safetensorsName(out.type) + ", expects " +
                (isCode ? "codes" : "floating-point numbers"));
  else if (uint64_t(out.end - out.begin) > kLargestCheckpointShard / bytesOf(out.type))
    fields.fail("is larger than " + std::to_string(kLargestCheckpointShard) + " bytes");
  return out;
}

CheckpointFile parseFile(const json &from, size_t number, const CheckpointIndex &index,
                         std::string &problem) {
  CheckpointFile out;
  JsonFields fields(from, "file " + std::to_string(number), problem);
  fields.text("file", out.name);
  fields.text("device", out.device);
  fields.number("bytes", out.bytes, uint64_t(INT64_MAX));
  fields.number("header_bytes", out.headerBytes, 512u << 20);
  fields.hash("header_xxh64", out.headerHash);
  if (fields.good() &&
      (out.name.empty() || out.name[0] == '.' || out.name.find('/') != std::string::npos ||
       out.name.find('\0') != std::string::npos))
    fields.fail("'" + out.name + "' is no name of a file in the folder");
  if (const json *slices = fields.list("shards")) {
    out.shards.reserve(slices->size());
    uint64_t covered = out.headerBytes;
    for (const json &element : *slices) {
      CheckpointShard slice = parseSlice(element, out.name, index, problem);
      if (!problem.empty())
        return out;
      if (slice.offset != covered || slice.bytes() > out.bytes ||
          covered > out.bytes - slice.bytes()) {
        fields.fail("the slice at " + std::to_string(slice.offset) + " is expected at " +
                    std::to_string(covered) + ", within " + std::to_string(out.bytes) + " bytes");
        return out;
      }
      covered += slice.bytes();
      out.shards.push_back(slice);
    }
    if (covered != out.bytes)
      fields.fail(std::to_string(out.bytes) + " bytes are listed, its slices end at " +
                  std::to_string(covered));
  }
  return out;
}

/// Checks that slices cover every element of every trained parameter and moment exactly once.
void checkCoverage(const CheckpointIndex &index, std::string &problem) {
  struct Range {
    uint32_t parameter;
    int32_t moment;
    int64_t begin, end;
    bool operator<(const Range &other) const {
      return std::tie(parameter, moment, begin, end) <
             std::tie(other.parameter, other.moment, other.begin, other.end);
    }
  };
  std::vector<Range> ranges;
  for (const CheckpointFile &file : index.files)
    for (const CheckpointShard &slice : file.shards)
      ranges.push_back({slice.parameter, slice.moment, slice.begin, slice.end});
  std::sort(ranges.begin(), ranges.end());
  size_t at = 0;
  for (uint32_t p = 0; p < index.parameters.size(); ++p) {
    if (!index.parameters[p].trainable)
      continue;
    for (int32_t moment = -1; moment < int32_t(index.parameters[p].states.size()); ++moment) {
      int64_t covered = 0;
      auto what = [&] {
        return (moment < 0 ? "parameter '"
                           : "moment " + std::to_string(moment) + " of parameter '") +
               index.parameters[p].name + "'";
      };
      for (; at < ranges.size() && ranges[at].parameter == p && ranges[at].moment == moment; ++at) {
        if (ranges[at].begin != covered) {
          problem = what() + ": a slice begins at element " + std::to_string(ranges[at].begin) +
                    ", expected " + std::to_string(covered) +
                    ": slices are expected without gaps or overlaps";
          return;
        }
        covered = ranges[at].end;
      }
      if (covered != index.parameters[p].entries(moment)) {
        problem = what() + ": slices end at element " + std::to_string(covered) + " of " +
                  std::to_string(index.parameters[p].entries(moment));
        return;
      }
    }
  }
}

void renameKey(json &object, const char *old, const char *now) {
  if (!object.is_object() || !object.contains(old) || object.contains(now))
    return;
  json value = std::move(object[old]);
  object.erase(old);
  object[now] = std::move(value);
}

/// Version 1, which is read for good, has other names for the same.
void upgrade(json &root) {
  if (!root.contains("format") || root["format"] != "zorse snapshot" || !root.contains("version") ||
      root["version"] != 1)
    return;
  root["format"] = kFormat;
  root["version"] = kVersion;
  renameKey(root, "samples_consumed", "consumed_samples");
  renameKey(root, "identity", "run_config");
  if (!root.contains("files") || !root["files"].is_array())
    return;
  for (json &file : root["files"]) {
    renameKey(file, "head_bytes", "header_bytes");
    renameKey(file, "head_xxh64", "header_xxh64");
    renameKey(file, "slices", "shards");
  }
}

} // namespace

int64_t CheckpointParameter::elements() const { return elementCount(shape).value_or(0); }

std::vector<int64_t> CheckpointParameter::storedShape() const {
  std::vector<int64_t> out = shape;
  for (size_t d = 0; d < permutation.size(); ++d)
    out[size_t(permutation[d])] = shape[d];
  return out;
}

std::string zorse::runtime::writeCheckpointIndex(const CheckpointIndex &index) {
  // One slice per line: indented JSON would be several times larger.
  std::string text = "{\n";
  auto field = [&](const char *name, const ordered_json &value) {
    text += "\"" + std::string(name) +
            "\": " + value.dump(-1, ' ', false, json::error_handler_t::replace) + ",\n";
  };
  field("format", kFormat);
  field("version", kVersion);
  field("step", index.step);
  field("generation", index.generation);
  field("consumed_samples", index.consumedSamples);
  field("optimizer_step", index.optimizerStep.updates);
  if (index.optimizerStep.lossScale > 0)
    field("loss_scale", ordered_json{{"scale", index.optimizerStep.lossScale},
                                     {"good_steps", index.optimizerStep.goodSteps},
                                     {"overflows", index.optimizerStep.overflows}});
  field("precision", index.precision);
  uint32_t moments = 0;
  for (const CheckpointParameter &parameter : index.parameters)
    moments = std::max(moments, uint32_t(parameter.states.size()));
  field("moments", moments);
  field("run_config", runConfigJson(index.runConfig));
  if (!index.hub.empty())
    field("hub", zorse::bundle::toJson(index.hub));
  text += "\"parameters\": [";
  for (size_t i = 0; i < index.parameters.size(); ++i)
    text += (i ? ",\n  " : "\n  ") + parameterJson(index.parameters[i], moments)
                                         .dump(-1, ' ', false, json::error_handler_t::replace);
  text += "],\n\"files\": [";
  for (size_t i = 0; i < index.files.size(); ++i) {
    const CheckpointFile &file = index.files[i];
    ordered_json head = {{"file", file.name},
                         {"device", file.device},
                         {"bytes", file.bytes},
                         {"header_bytes", file.headerBytes},
                         {"header_xxh64", hexadecimal(file.headerHash)}};
    std::string line = head.dump(-1, ' ', false, json::error_handler_t::replace);
    line.pop_back();
    text += (i ? ",\n  " : "\n  ") + line + ", \"shards\": [";
    for (size_t s = 0; s < file.shards.size(); ++s) {
      const CheckpointShard &slice = file.shards[s];
      text += (s ? ",\n    " : "\n    ") + ordered_json{{"parameter", slice.parameter},
                                                        {"moment", slice.moment},
                                                        {"begin", slice.begin},
                                                        {"end", slice.end},
                                                        {"type", safetensorsName(slice.type)},
                                                        {"offset", slice.offset},
                                                        {"xxh64", hexadecimal(slice.hash)}}
                                               .dump();
    }
    text += "]}";
  }
  text += "]\n}\n";
  return withChecksum(std::move(text));
}

Result<CheckpointIndex> zorse::runtime::parseCheckpointIndex(const std::string &path,
                                                             const char *text, size_t size) {
  std::string problem;
  auto bad = [&] {
    return userError(path + ": is no index of a checkpoint that can be used: " + problem);
  };
  if (!checksumHolds(text, size, problem))
    return bad();
  json root = zorse::parseShallow<json>(text, size, 9);
  if (root.is_discarded() || !root.is_object()) {
    problem = "it is not JSON";
    return bad();
  }
  upgrade(root);
  CheckpointIndex index;
  JsonFields fields(root, "the index", problem);
  std::string format;
  uint64_t version = 0, moments = 0;
  fields.text("format", format);
  fields.number("version", version);
  if (fields.good() && (format != kFormat || version != kVersion))
    fields.fail("is '" + format + "', version " + std::to_string(version) +
                "; this program reads '" + kFormat + "', version " + std::to_string(kVersion));
  fields.number("step", index.step, uint64_t(1) << 62);
  fields.number("generation", index.generation);
  fields.number("consumed_samples", index.consumedSamples, uint64_t(1) << 62);
  abi::OptimizerStep &optimizer = index.optimizerStep;
  fields.real("optimizer_step", optimizer.updates);
  if (fields.good() && !(std::isfinite(optimizer.updates) && optimizer.updates >= 0))
    fields.fail("'optimizer_step' is no number of updates");
  if (const json *scale = fields.has("loss_scale") ? fields.find("loss_scale") : nullptr) {
    JsonFields one(*scale, "'loss_scale'", problem);
    one.real("scale", optimizer.lossScale);
    one.real("good_steps", optimizer.goodSteps);
    one.real("overflows", optimizer.overflows);
    if (one.good() && !(std::isfinite(optimizer.lossScale) && optimizer.lossScale >= 1 &&
                        optimizer.goodSteps >= 0 && optimizer.overflows >= 0))
      one.fail("is no scale of at least 1 with numbers of steps");
  }
  fields.text("precision", index.precision);
  fields.number("moments", moments, 255);
  if (const json *identity = fields.find("run_config"))
    index.runConfig = parseRunConfig(*identity, "'run_config'", problem);
  parseHub(fields, index.hub);
  std::set<std::string> names;
  if (const json *parameters = fields.list("parameters"))
    for (const json &element : *parameters) {
      index.parameters.push_back(
          parseParameter(element, index.parameters.size(), moments, problem));
      if (problem.empty() && !names.insert(index.parameters.back().name).second)
        problem = "parameter '" + index.parameters.back().name + "' is listed twice";
      if (!problem.empty())
        return bad();
    }
  names.clear();
  if (const json *files = fields.list("files"))
    for (const json &element : *files) {
      index.files.push_back(parseFile(element, index.files.size(), index, problem));
      if (problem.empty() && !names.insert(index.files.back().name).second)
        problem = "file '" + index.files.back().name + "' is listed twice";
      if (!problem.empty())
        return bad();
    }
  if (problem.empty())
    checkCoverage(index, problem);
  if (!problem.empty())
    return bad();
  return index;
}
