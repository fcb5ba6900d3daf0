#include "Acknowledgement.h"

#include "Json.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::json;

std::string zorse::runtime::writeAcknowledgement(const Acknowledgement &acknowledgement) {
  json out = json::object();
  if (acknowledgement.error) {
    out["error"] = acknowledgement.error->text;
    out["superseded"] = acknowledgement.error->superseded;
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  out["files"] = json::array();
  for (const Acknowledgement::File &file : acknowledgement.files) {
    json hashes = json::array();
    for (uint64_t hash : file.sums.slices)
      hashes.push_back(hexadecimal(hash));
    json one = {{"device", file.device},
                {"head", hexadecimal(file.sums.header)},
                {"slices", std::move(hashes)}};
    if (file.optimizerStep)
      one["optimizer_step"] = {file.optimizerStep->updates, file.optimizerStep->lossScale,
                               file.optimizerStep->goodSteps, file.optimizerStep->overflows};
    out["files"].push_back(std::move(one));
  }
  out["frozen"] = json::array();
  for (const auto &[parameter, hash] : acknowledgement.frozen)
    out["frozen"].push_back({{"parameter", parameter}, {"hash", hexadecimal(hash)}});
  return out.dump();
}

Acknowledgement zorse::runtime::parseAcknowledgement(const std::string &text, uint32_t rank) {
  Acknowledgement out;
  std::string problem, where = "the acknowledgement of rank " + std::to_string(rank);
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded())
    root = nullptr;
  JsonFields fields(root, where, problem);
  if (fields.has("error")) {
    CheckpointError error;
    fields.text("error", error.text);
    fields.truth("superseded", error.superseded);
    out.error = std::move(error);
  } else {
    if (const json *files = fields.list("files"))
      for (const json &element : *files) {
        JsonFields one(element, where, problem);
        Acknowledgement::File file;
        uint64_t device = 0;
        one.number("device", device, UINT32_MAX);
        one.hash("head", file.sums.header);
        if (one.has("optimizer_step")) {
          std::vector<double> step;
          if (const json *numbers = one.list("optimizer_step"))
            for (const json &number : *numbers)
              step.push_back(number.is_number() ? number.get<double>() : -1);
          if (step.size() != 4 || *std::min_element(step.begin(), step.end()) < 0)
            one.fail("holds an optimizer step that is none");
          else
            file.optimizerStep = abi::OptimizerStep{step[0], step[1], step[2], step[3]};
        }
        if (const json *hashes = one.list("slices"))
          for (const json &hash : *hashes) {
            std::optional<uint64_t> value =
                hash.is_string() ? parseHexadecimal(hash.get<std::string>()) : std::nullopt;
            if (!value)
              one.fail("holds something that is no checksum");
            file.sums.slices.push_back(value.value_or(0));
          }
        file.device = uint32_t(device);
        out.files.push_back(std::move(file));
      }
    if (const json *frozen = fields.list("frozen"))
      for (const json &element : *frozen) {
        JsonFields one(element, where, problem);
        uint64_t parameter = 0, hash = 0;
        one.number("parameter", parameter, UINT32_MAX);
        one.hash("hash", hash);
        out.frozen[uint32_t(parameter)] = hash;
      }
  }
  if (!problem.empty())
    out.error = CheckpointError{problem};
  return out;
}
