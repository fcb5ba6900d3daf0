#include "zorse/Bundle/HubFacts.h"

#include <cmath>

using nlohmann::json;
using nlohmann::ordered_json;

namespace zorse::bundle {

namespace {

constexpr const char *kNoObject = "'hub' is not an object";

Status readNames(const json &object, const char *field, std::vector<std::string> &out) {
  auto found = object.find(field);
  if (found == object.end())
    return Status::success();
  bool good = found->is_array();
  for (size_t i = 0; good && i < found->size(); ++i) {
    good = (*found)[i].is_string() && !(*found)[i].get_ref<const std::string &>().empty();
    if (good)
      out.push_back((*found)[i].get<std::string>());
  }
  return good ? Status::success()
              : Status(userError(std::string("'hub': '") + field + "' is not a list of names"));
}

Status readTruth(const json &object, const char *field, bool &out) {
  auto found = object.find(field);
  if (found == object.end())
    return Status::success();
  if (!found->is_boolean())
    return userError(std::string("'hub': '") + field + "' is not true or false");
  out = found->get<bool>();
  return Status::success();
}

} // namespace

ordered_json toJson(const HubFact &fact) {
  if (fact.empty())
    return nullptr;
  ordered_json out = ordered_json::object();
  if (!fact.names.empty())
    out["names"] = fact.names;
  if (!fact.ties.empty())
    out["ties"] = fact.ties;
  if (fact.transposed)
    out["transposed"] = true;
  if (fact.adapter)
    out["adapter"] = true;
  return out;
}

ordered_json toJson(const HubModel &model) {
  if (model.empty())
    return nullptr;
  ordered_json out = ordered_json::object();
  if (!model.buffers.empty())
    out["buffers"] = model.buffers;
  if (model.lora)
    out["lora"] = {{"r", model.lora->rank},
                   {"alpha", model.lora->alpha},
                   {"targets", model.lora->targets},
                   {"fan_in_fan_out", model.lora->fanInFanOut}};
  return out;
}

Status fromJson(const json &value, HubFact &fact) {
  fact = {};
  if (!value.is_object())
    return userError(kNoObject);
  for (auto [field, names] : {std::pair("names", &fact.names), std::pair("ties", &fact.ties)})
    if (Status status = readNames(value, field, *names); status.failed())
      return status;
  for (auto [field, truth] :
       {std::pair("transposed", &fact.transposed), std::pair("adapter", &fact.adapter)})
    if (Status status = readTruth(value, field, *truth); status.failed())
      return status;
  return Status::success();
}

Status fromJson(const json &value, HubModel &model) {
  model = {};
  if (!value.is_object())
    return userError(kNoObject);
  if (Status status = readNames(value, "buffers", model.buffers); status.failed())
    return status;
  auto found = value.find("lora");
  if (found == value.end())
    return Status::success();
  Lora lora;
  auto rank = found->find("r"), alpha = found->find("alpha");
  if (!found->is_object() || rank == found->end() || !rank->is_number_integer() ||
      alpha == found->end() || !alpha->is_number() || rank->get<int64_t>() < 1 ||
      !std::isfinite(alpha->get<double>()))
    return userError("'hub': 'lora' has no rank 'r' of at least 1 and number 'alpha'");
  lora.rank = rank->get<int64_t>();
  lora.alpha = alpha->get<double>();
  if (Status status = readNames(*found, "targets", lora.targets); status.failed())
    return status;
  if (Status status = readTruth(*found, "fan_in_fan_out", lora.fanInFanOut); status.failed())
    return status;
  model.lora = std::move(lora);
  return Status::success();
}

} // namespace zorse::bundle
