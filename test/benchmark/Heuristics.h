// The search's heuristics by name, each of which can be left out. The product knows nothing of it: the linker puts the functions of Heuristics.cpp
// between the search's own (--wrap, see CMakeLists.txt).
#pragma once

#include "zorse/Planning/Search.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::planning {

/// As docs/search.md names them; their places here are their numbers.
const std::vector<std::string> &heuristicNames();

struct Trial {
  std::optional<SearchResult> result; ///< none: nothing fits
  std::vector<bool> used;             ///< by number of a heuristic: the search came to it, so that it may differ without
};

/// searchPlan without one heuristic. One call at a time, as what is missing holds for the process.
/// \param missing  number of the heuristic; heuristicNames().size(): none is missing
Trial searchWithout(size_t missing, const Problem &problem, const SearchOptions &options);

} // namespace zorse::planning
