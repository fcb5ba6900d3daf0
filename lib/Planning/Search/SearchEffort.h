// How much a search does for so many devices: every number of it that depends on them, in one table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zorse::planning {

struct SearchEffort {
  size_t mostDevices; ///< this effort is for at most so many

  /// Tasks that the default budget simulates: half a second of two cores or less for every 3e6 (docs/search.md says what a task takes). Of large
  /// clusters for 512 devices, in proportion to the devices beyond.
  double tasks;
  double descentTasks; ///< that descents simulate, beyond the budget of the moves; 0: there are none

  bool everyRow;      ///< all numbers of rows and all tilings of small problems are tried
  bool bestNeighbour; ///< descents take the best of all small changes, not the first that is better; all schedules, and each device's own techniques
  bool placesFirst;   ///< buffers are placed before a plan is chosen, whatever they take
  bool largeTimes;    ///< placing buffers takes as long as all the rest: more memory is left for gaps, what leaves it is not placed, techniques wait

  size_t patience;      ///< rounds of walks without a better plan
  size_t subclusters;   ///< parts of the cluster that are planned alone
  size_t seedsOfEach;   ///< of each of them
  size_t pricedParts;   ///< short searches where prices count
  size_t judged;        ///< of problems that are not small: plans that are expanded
  size_t leastSeeds;    ///< estimates that are simulated under the first schedule, whatever the budget
  size_t leastLeaders;  ///< plans that are simulated under all schedules
  uint32_t wholeGroups; ///< percent of moves of groups that take a whole group
  size_t seedOrders;    ///< orders of kinds of nodes
  size_t seedsAgain;    ///< seeds that are cut again under other assumptions
  bool everySeed;       ///< seeds of any rows, of all numbers of pipelines, and of a kind of nodes on both sides of another
  bool thoroughSeeds;   ///< cuts under several assumptions about memory; short searches begin with pieces of nodes, too
  bool sharesUnits;     ///< stages of one device may share out units
  bool suggestsDevices; ///< remedies search with more devices

  static const SearchEffort &forDevices(size_t devices);
  double tasksFor(size_t devices) const;
};

} // namespace zorse::planning
