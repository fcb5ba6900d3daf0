#include "Reductions.h"

#include "zorse/Collectives/Places.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::verify;

Reduction::Reduction(const Model &model, const bundle::Collective &collective)
    : tree(model.treeOf(collective.value.id())), collective(collective) {
  const uint32_t cut = collective.value.cut();
  if (cut > tree.size())
    return;
  if (!cut)
    form = Form::Exchange; // unless it is another one
  if (tree.size() < 2 || model.addsToParts(collective.value.id()))
    return;
  group = cut ? cut - 1 : uint32_t(tree.size() - 1);
  const std::vector<Shard> runs = collective.runs();
  std::optional<size_t> terms; // of every shard
  for (const Shard &shard : bundle::shardsOf(collective.shards)) {
    if (shard.empty())
      continue;
    const size_t count = holdersOf(runs, shard).size();
    if (terms && *terms != count)
      return;
    terms = count;
  }
  if (terms == tree[group].children.size())
    form = Form::Level;
  else if (terms == size_t(1))
    form = Form::Forward;
}

bool Reduction::isBelow(collectives::Child child, uint32_t device) const {
  if (child.isContributor())
    return child.device() == device;
  const std::vector<uint32_t> &below = tree[child.index()].contributors;
  return std::find(below.begin(), below.end(), device) != below.end();
}

std::optional<Reduction::Term> Reduction::termOf(uint32_t device) const {
  if (form == Form::Exchange)
    return Term{bundle::Value::GRADIENTS, 0};
  if (form == Form::Forward)
    return Term{bundle::Value::REDUCED_GRADIENTS, group + 1};
  for (const collectives::Child child : tree[group].children)
    if (form == Form::Level && isBelow(child, device))
      return child.isContributor()
                 ? Term{bundle::Value::GRADIENTS, 0}
                 : Term{bundle::Value::REDUCED_GRADIENTS, uint32_t(child.index()) + 1};
  return std::nullopt;
}

std::optional<Shard> Reduction::incompleteShard() const {
  const std::vector<Shard> runs = collective.runs();
  const std::vector<collectives::Child> &children = tree[group].children;
  for (const Shard &shard : bundle::shardsOf(collective.shards)) {
    if (shard.empty())
      continue;
    const std::vector<uint32_t> holders = holdersOf(runs, shard);
    for (size_t c = 0; c < children.size(); ++c)
      if (!isBelow(children[c], holders[c]))
        return shard;
  }
  return std::nullopt;
}

bool Model::roundsTerms(const bundle::Collective &sum) const {
  if (plan.roundedSums == PlanView::RoundedSums::None ||
      summary.groups(int(sum.value.id())).running_stat())
    return false;
  const std::vector<Shard> runs = sum.runs();
  std::vector<uint32_t> devices(sum.members.begin(), sum.members.end());
  bool adds = false;
  for (const Shard &shard : bundle::shardsOf(sum.shards)) {
    if (shard.empty())
      continue;
    devices.push_back(shard.device);
    adds = adds || holdersOf(runs, shard).size() > 1;
  }
  return adds && (plan.roundedSums == PlanView::RoundedSums::BetweenSites
                      ? collectives::crossSites(placement, devices)
                      : collectives::crossNodes(placement, devices));
}

uint32_t Model::maxRoundedTerms() const {
  uint32_t first = 0, next = 0;
  bool rounds = false;
  for (const auto &sum : summary.sums())
    if (sum.type() == bundle::BF16 && sum.term_type() == bundle::F32)
      rounds = true;
    else if (sum.type() == bundle::F32 && sum.term_type() == bundle::BF16)
      (sum.continues() ? next : first) = sum.num_contributions();
  return rounds && first == next ? first : 0;
}
