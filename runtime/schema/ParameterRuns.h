// The elements of a state group that an argument of a unit consists of.
#pragma once

#include "zorse/Base/Runs.h"

#include "bundle.pb.h"

namespace zorse::bundle {

/// Elements of a parameter; 0 if its shape is impossible.
inline int64_t elementCount(const ParameterInfo &parameter) {
  int64_t elements = 1;
  for (int64_t extent : parameter.shape())
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements))
      return 0;
  return elements;
}

/// Returns the range from the first run to the last; [0, 0) if there are none, as of a parameter
/// without elements.
inline std::pair<int64_t, int64_t> hullOf(const Compact &elements) {
  const Compact::Runs runs = elements.runs();
  return elements.empty() ? std::pair(int64_t(0), int64_t(0))
                          : std::pair(runs[0].begin, runs[runs.size() - 1].end);
}

/// Returns the part of a unit's parameter, by position in its list; nullptr: it is whole.
inline const UnitInfo::ParameterPart *partOf(const UnitInfo &unit, uint32_t argument) {
  for (const UnitInfo::ParameterPart &part : unit.parts())
    if (part.argument() == argument)
      return &part;
  return nullptr;
}

/// Whether the parts of a unit's parameters consist of ascending runs inside them. Summaries that
/// have not been checked may contain anything.
inline bool hasSoundParts(const ModelSummary &summary, const UnitInfo &unit) {
  for (const UnitInfo::ParameterPart &part : unit.parts()) {
    if (part.argument() >= uint32_t(unit.parameters_size()) || part.begin().empty() ||
        part.begin_size() != part.end_size())
      return false;
    const uint32_t parameter = unit.parameters(int(part.argument()));
    if (parameter >= uint32_t(summary.parameters_size()))
      return false;
    int64_t last = 0;
    for (int r = 0; r < part.begin_size(); ++r) {
      if (part.begin(r) < last || part.begin(r) >= part.end(r) ||
          part.end(r) > elementCount(summary.parameters(int(parameter))))
        return false;
      last = part.end(r);
    }
  }
  return true;
}

/// Returns the runs of a unit's parameter in its state group, with their positions in the argument.
inline Compact parameterRuns(const ModelSummary &summary, const UnitInfo &unit, uint32_t argument) {
  const ParameterInfo &parameter = summary.parameters(int(unit.parameters(int(argument))));
  Compact runs;
  const UnitInfo::ParameterPart *part = partOf(unit, argument);
  if (!part)
    runs.add(parameter.offset(), parameter.offset() + elementCount(parameter));
  for (int r = 0; part && r < std::min(part->begin_size(), part->end_size()); ++r)
    runs.add(parameter.offset() + part->begin(r), parameter.offset() + part->end(r));
  return runs;
}

} // namespace zorse::bundle
