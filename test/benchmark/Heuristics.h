// The search's heuristics by name. Each can be omitted. The product contains no code for this: the
// linker replaces functions of the search by those of Heuristics.cpp (--wrap, see CMakeLists.txt).
#pragma once

#include "zorse/Planning/Search.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// Names of the heuristics of the search. The index of a name is its number.
const std::vector<std::string> &heuristicNames();

struct Trial {
  std::optional<SearchResult> result; ///< none: nothing fits
  std::vector<bool> used; ///< by number of a heuristic: the search reached it, so its omission may
                          ///< change the result
};

/// searchPlan without one heuristic. Not reentrant, because the omission applies to the whole
/// process.
/// \param missing  number of the heuristic; heuristicNames().size(): none is omitted
Trial searchWithout(size_t missing, const Problem &problem, const SearchOptions &options);

} // namespace zorse::planning
