#include "zorse/Bundle/HubFacts.h"

#include <cmath>

using nlohmann::json;
using nlohmann::ordered_json;

namespace zorse::bundle {

namespace {

bool readNames(const json &object, const char *field, std::vector<std::string> &out, std::string &problem) {
  auto found = object.find(field);
  if (found == object.end())
    return true;
  bool good = found->is_array();
  for (size_t i = 0; good && i < found->size(); ++i) {
    good = (*found)[i].is_string() && !(*found)[i].get_ref<const std::string &>().empty();
    if (good)
      out.push_back((*found)[i].get<std::string>());
  }
  if (!good)
    problem = std::string("'hub': '") + field + "' is no list of names";
  return good;
}

bool readTruth(const json &object, const char *field, bool &out, std::string &problem) {
  auto found = object.find(field);
  if (found == object.end())
    return true;
  if (!found->is_boolean()) {
    problem = std::string("'hub': '") + field + "' is neither true nor false";
    return false;
  }
  out = found->get<bool>();
  return true;
}

bool isObject(const json &value, std::string &problem) {
  if (!value.is_object())
    problem = "'hub' is no object";
  return value.is_object();
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
    out["lora"] = {
        {"r", model.lora->rank}, {"alpha", model.lora->alpha}, {"targets", model.lora->targets}, {"fan_in_fan_out", model.lora->fanInFanOut}};
  return out;
}

bool fromJson(const json &value, HubFact &fact, std::string &problem) {
  fact = {};
  return isObject(value, problem) && readNames(value, "names", fact.names, problem) && readNames(value, "ties", fact.ties, problem) &&
         readTruth(value, "transposed", fact.transposed, problem) && readTruth(value, "adapter", fact.adapter, problem);
}

bool fromJson(const json &value, HubModel &model, std::string &problem) {
  model = {};
  if (!isObject(value, problem) || !readNames(value, "buffers", model.buffers, problem))
    return false;
  auto found = value.find("lora");
  if (found == value.end())
    return true;
  Lora lora;
  auto rank = found->find("r"), alpha = found->find("alpha");
  if (!found->is_object() || rank == found->end() || !rank->is_number_integer() || alpha == found->end() || !alpha->is_number() ||
      rank->get<int64_t>() < 1 || !std::isfinite(alpha->get<double>())) {
    problem = "'hub': 'lora' has no rank 'r' of at least 1 and number 'alpha'";
    return false;
  }
  lora.rank = rank->get<int64_t>();
  lora.alpha = alpha->get<double>();
  if (!readNames(*found, "targets", lora.targets, problem) || !readTruth(*found, "fan_in_fan_out", lora.fanInFanOut, problem))
    return false;
  model.lora = std::move(lora);
  return true;
}

} // namespace zorse::bundle
