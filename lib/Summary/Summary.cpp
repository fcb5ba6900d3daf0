#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>

using namespace zorse;

const char *zorse::elementTypeName(bundle::ElementType type) {
  switch (type) {
  case bundle::F32:
    return "f32";
  case bundle::F64:
    return "f64";
  case bundle::BF16:
    return "bf16";
  case bundle::F16:
    return "f16";
  case bundle::I64:
    return "i64";
  case bundle::I32:
    return "i32";
  case bundle::I1:
    return "i1";
  case bundle::U8:
    return "u8";
  default:
    return "";
  }
}

std::string Precision::name() const {
  if (tf32)
    return "tf32";
  std::string text = compute == bundle::F64 || !rounds() ? elementTypeName(compute) : "";
  if (rounds())
    text += (text.empty() ? "" : ":") + std::string(elementTypeName(rounded));
  return text + (wideResidual ? ", f32 residual" : "") + (sumsF16 ? ", sums in f16" : "");
}

std::optional<Precision> zorse::parsePrecision(const std::string &text) {
  Precision tensorFloats;
  tensorFloats.tf32 = true;
  if (text == tensorFloats.name())
    return tensorFloats;
  for (bundle::ElementType compute : {bundle::F32, bundle::F64})
    for (bundle::ElementType rounded :
         {bundle::ELEMENT_TYPE_UNSPECIFIED, bundle::BF16, bundle::F16})
      if (Precision precision{compute, rounded}; precision.name() == text)
        return precision;
  return std::nullopt;
}

Precision zorse::precisionOf(const bundle::ModelSummary &summary) {
  return {accumulationType(summary.compute_type()), summary.rounded_to(), summary.fp32_residual(),
          summary.tf32(), summary.sums_f16()};
}

bundle::ElementType zorse::productType(const bundle::ModelSummary &summary) {
  // In f64, roundings only test the computation, and nothing is stored in two bytes.
  return isHalf(summary.rounded_to()) && summary.compute_type() != bundle::F64
             ? summary.rounded_to()
             : summary.compute_type();
}

uint32_t zorse::maxTerms(const bundle::ModelSummary &summary, bundle::ElementType type) {
  uint32_t max = 0;
  for (const bundle::SumFunction &sum : summary.sums())
    if (sum.type() == type && !sum.term_type())
      max = std::max(max, sum.num_contributions());
  return max;
}

uint32_t zorse::sumFunction(const bundle::ModelSummary &summary, bundle::ElementType type,
                            uint32_t terms) {
  for (const bundle::SumFunction &sum : summary.sums())
    if (sum.type() == type && !sum.term_type() && sum.num_contributions() == terms)
      return sum.function();
  return UINT32_MAX;
}

/// If one function cannot add all terms, two intermediate sums alternate as the first term of the
/// next.
static uint64_t partCount(const bundle::ModelSummary &summary, bundle::ElementType type,
                          uint64_t terms) {
  return terms <= maxTerms(summary, type) ? terms : terms + 2;
}

uint64_t zorse::roundPartsBytes(const bundle::ModelSummary &summary, bundle::ElementType type,
                                uint64_t terms, int64_t chunk) {
  return terms < 2 ? 0
                   : partCount(summary, type, terms) *
                         partStride(static_cast<uint64_t>(chunk) * elementBytes(type));
}

RoundedSumFunctions zorse::roundedSumFunctions(const bundle::ModelSummary &summary) {
  RoundedSumFunctions functions;
  for (const bundle::SumFunction &sum : summary.sums())
    if (sum.type() == bundle::BF16 && sum.term_type() == bundle::F32)
      functions.round = sum.function();
    else if (sum.type() == bundle::F32 && sum.term_type() == bundle::BF16)
      (sum.continues() ? functions.next : functions.first).push_back(sum.function());
  return functions;
}

uint64_t zorse::roundedPartsBytes(uint32_t maxTerms, uint64_t terms, int64_t chunk) {
  if (terms < 2)
    return 0;
  return terms * roundedStride(chunk) +
         (terms > maxTerms
              ? 2 * partStride(static_cast<uint64_t>(chunk) * elementBytes(bundle::F32))
              : 0);
}

uint64_t zorse::sumPartsBytes(const bundle::ModelSummary &summary, uint64_t terms) {
  return partCount(summary, bundle::F64, terms) * kSumsBytes;
}

bundle::ElementType zorse::computeType(const bundle::FlatGroupInfo &group) {
  return group.param_dtype() == bundle::ELEMENT_TYPE_UNSPECIFIED ? group.type()
                                                                 : group.param_dtype();
}

int64_t zorse::elementsOf(const bundle::ParameterInfo &parameter) {
  int64_t elements = 1;
  for (int64_t size : parameter.shape())
    elements *= size;
  return elements;
}

std::string zorse::functionName(const bundle::UnitClass &unitClass,
                                bundle::UnitFunction::Task task) {
  static constexpr const char *kNames[] = {
      "", ".forward", ".backward", ".backward_inputs", ".backward_weights", ".recompute"};
  return unitClass.name() + kNames[task];
}

std::vector<std::vector<uint32_t>> zorse::valuesAtCuts(const bundle::ModelSummary &summary,
                                                       bool gradients) {
  std::vector<std::vector<uint32_t>> cuts(static_cast<size_t>(summary.units_size()) + 1);
  for (int v = 0; v < summary.values_size(); ++v) {
    const bundle::ValueInfo &value = summary.values(v);
    if (gradients && !value.needs_gradient())
      continue;
    uint32_t last = value.producer();
    for (uint32_t user : value.users())
      last = std::max(last, user);
    for (uint32_t cut = value.producer() + 1; cut <= last; ++cut)
      cuts[cut].push_back(static_cast<uint32_t>(v));
  }
  return cuts;
}

std::vector<uint32_t> zorse::groupsOfUnit(const bundle::ModelSummary &summary,
                                          const bundle::UnitInfo &unit) {
  std::vector<uint32_t> groups;
  for (uint32_t parameter : unit.parameters())
    groups.push_back(summary.parameters(static_cast<int>(parameter)).group());
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}
