#include "zorse/Summary/StateLayout.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>

using namespace zorse;

int64_t zorse::blockElements(const bundle::UpdateRule &rule) {
  int64_t elements = 1;
  for (const int64_t extent : rule.block())
    elements *= extent;
  return elements;
}

static bundle::ElementType typeOf(const bundle::UpdateRule::State &state,
                                  bundle::ElementType parameters) {
  return state.type() == bundle::ELEMENT_TYPE_UNSPECIFIED ? parameters : state.type();
}

double zorse::stateBytesPerElement(const bundle::UpdateRule &rule, bundle::ElementType type) {
  double bytes = 0;
  for (const bundle::UpdateRule::State &state : rule.states())
    bytes += static_cast<double>(state.entries()) *
             static_cast<double>(elementBytes(typeOf(state, type)));
  return bytes / static_cast<double>(blockElements(rule));
}

const bundle::UpdateRule *zorse::ruleOf(const bundle::ModelSummary &summary,
                                        const bundle::FlatGroupInfo &group) {
  if (!group.trainable() || group.parameters().empty())
    return nullptr;
  const uint32_t rule = summary.parameters(static_cast<int>(group.parameters(0))).update_rule();
  return rule < static_cast<uint32_t>(summary.update_rules_size())
             ? &summary.update_rules(static_cast<int>(rule))
             : nullptr;
}

StateLayout::StateLayout(const bundle::ModelSummary &summary, uint32_t group, uint32_t state) {
  const bundle::FlatGroupInfo &info = summary.groups(static_cast<int>(group));
  type_ = typeOf(ruleOf(summary, info)->states(static_cast<int>(state)), info.type());
  entries_ = info.elements();
  for (const uint32_t p : info.parameters()) {
    const auto &rule = summary.update_rules(
        static_cast<int>(summary.parameters(static_cast<int>(p)).update_rule()));
    identity_ &= type_ == info.type() &&
                 rule.states(static_cast<int>(state)).entries() == blockElements(rule);
  }
  if (identity_)
    return;
  const auto alignment = static_cast<int64_t>(kStateAlignment / elementBytes(type_));
  entries_ = 0;
  for (const uint32_t p : info.parameters()) {
    const bundle::ParameterInfo &parameter = summary.parameters(static_cast<int>(p));
    const auto &rule = summary.update_rules(static_cast<int>(parameter.update_rule()));
    const Parameter made{parameter.offset(), elementsOf(parameter), entries_, blockElements(rule),
                         rule.states(static_cast<int>(state)).entries()};
    parameters_.push_back(made);
    entries_ += made.elements / made.block * made.perBlock;
    entries_ = (entries_ + alignment - 1) / alignment * alignment;
  }
}

/// Returns the last parameter that begins at or before an element.
const StateLayout::Parameter *StateLayout::at(int64_t element) const {
  const auto after = std::upper_bound(parameters_.begin(), parameters_.end(), element,
                                      [](int64_t e, const Parameter &p) { return e < p.offset; });
  return &*std::prev(after);
}

int64_t StateLayout::begin(int64_t element) const {
  if (identity_)
    return element;
  const Parameter *parameter = at(element);
  if (element < parameter->offset + parameter->elements)
    return parameter->entry +
           (element - parameter->offset) / parameter->block * parameter->perBlock;
  return parameter + 1 == parameters_.data() + parameters_.size() ? entries_ : parameter[1].entry;
}

int64_t StateLayout::end(int64_t element) const {
  if (identity_ || element == 0)
    return element;
  const Parameter *parameter = at(element - 1);
  return parameter->entry + std::min(element - parameter->offset, parameter->elements) /
                                parameter->block * parameter->perBlock;
}
