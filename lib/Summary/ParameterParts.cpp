#include "zorse/Summary/ParameterParts.h"

#include "zorse/Summary/Summary.h"

using namespace zorse;

uint32_t ParameterParts::find(uint32_t parameter, const ParameterDivision &division) {
  const GranuleRange &stored = division.stored;
  const auto [found, isNew] = known.try_emplace({parameter, stored.first, stored.count},
                                                static_cast<uint32_t>(summary.parameters_size()));
  if (!isNew)
    return found->second;
  bundle::ParameterInfo &part = *summary.add_parameters();
  part = summary.parameters(static_cast<int>(parameter));
  bundle::ParameterInfo::Shard &shard = *part.mutable_shard();
  shard.set_of(part.name());
  *shard.mutable_shape() = part.shape();
  shard.set_dim(division.dim);
  int64_t size = 0;
  for (size_t s = 0; s < division.begins.size(); ++s) {
    shard.add_begins(division.begins[s]);
    shard.add_widths(division.widths[s]);
    size += division.widths[s] * stored.count;
  }
  shard.set_first(stored.first);
  shard.set_count(stored.count);
  part.set_name(shard.of() + "[" + std::to_string(stored.first) + ":" +
                std::to_string(stored.first + stored.count) + "]");
  part.clear_shape();
  part.add_shape(size);
  for (int d = 0; d < shard.shape_size(); ++d)
    if (d != static_cast<int>(division.dim))
      part.add_shape(shard.shape(d));
  copies.push_back(copies[parameter]);
  return found->second;
}

void ParameterParts::divide(bundle::UnitInfo &unit, uint32_t position,
                            const ParameterDivision &division) {
  const uint32_t parameter = find(unit.parameters(static_cast<int>(position)), division);
  unit.set_parameters(static_cast<int>(position), parameter);
  if (division.share == division.stored)
    return;
  const bundle::ParameterInfo &part = summary.parameters(static_cast<int>(parameter));
  const int64_t row = part.shape(0) ? elementsOf(part) / part.shape(0) : 0;
  bundle::UnitInfo::ParameterPart &runs = *unit.add_parts();
  runs.set_argument(position);
  int64_t segment = 0; // first point of the segment
  for (int64_t width : division.widths) {
    const int64_t begin = (segment + (division.share.first - division.stored.first) * width) * row,
                  end = begin + division.share.count * width * row;
    segment += division.stored.count * width;
    if (!runs.end().empty() && *runs.end().rbegin() == begin) {
      runs.set_end(runs.end_size() - 1, end);
    } else if (begin < end) {
      runs.add_begin(begin);
      runs.add_end(end);
    }
  }
}
