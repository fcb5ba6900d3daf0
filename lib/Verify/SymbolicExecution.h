// Checks values by symbolic execution: replays a training step and an evaluation of one device,
// each from loaded state and in list order, on the contents of its arenas.
//
// List order is sufficient: checkRaces has shown that every other possible order gives every access
// the same bytes. Data from other devices is assumed to be the declared value; the sender's replay
// verifies that.
//
//   SymbolicExecution.cpp   instructions: values that are read, written and accumulated
//   Contents.cpp            contents of bytes: reading, writing, adding
//   Contributions.cpp       required contributions of an accumulator when it is read
#pragma once

#include "IntervalMap.h"
#include "Logical.h"

#include <cassert>
#include <map>
#include <tuple>

namespace zorse::verify {

/// The range of an axis of its unit that a call computes. [0, 1) if the axis is not divided among
/// devices.
struct Part {
  int32_t begin = 0, end = 1;
  bool operator<(const Part &o) const { return std::tie(begin, end) < std::tie(o.begin, o.end); }
  bool operator==(const Part &o) const { return std::tie(begin, end) == std::tie(o.begin, o.end); }
};

/// One contribution to an accumulator. Its key is
/// - gradients of state: unit, samples and part;
/// - gradients of values: unit;
/// - sums: (group, elements) or (unit, term, samples).
struct Contribution {
  uint32_t of, term;
  int64_t begin, end;
  Part part = {};
  bool operator<(const Contribution &o) const {
    return std::tie(of, term, begin, end, part) < std::tie(o.of, o.term, o.begin, o.end, o.part);
  }
  bool operator==(const Contribution &o) const {
    return std::tie(of, term, begin, end, part) == std::tie(o.of, o.term, o.begin, o.end, o.part);
  }
};

/// Whether the rectangles samples x part of the contributions tile `rows` x [0, length): they cover
/// every point exactly once, and no point outside. Rows are ascending.
bool tiles(const std::vector<Contribution> &contributions, const std::vector<Range> &rows,
           int32_t length = Part().end);

/// The contributions to an accumulator, shared by all pieces of the bytes for which the list was
/// created. Pieces only shrink. An addition to a range that contains all these bytes therefore
/// changes the list in place; an addition to a part of them works on a copy.
struct ContributionList {
  Intervals intervals;
  std::vector<Contribution> items;
};

/// The content of a piece of an arena. `delta` is (byte inside the logical value) - (address), so
/// that adjacent bytes of one value compare equal.
struct Content {
  bundle::Value::Kind kind = bundle::Value::NONE;
  uint32_t id = 0, cut = 0;
  int32_t updates = 0; ///< state: updates applied in this step
  int64_t delta = 0;
  int64_t begin = 0, end = 0;                          ///< samples of saved blocks
  uint32_t list = 0;                                   ///< index of an accumulator's contributions
  int32_t writer = kLoaded;                            ///< instruction index
  static constexpr int32_t kLoaded = -1, kNobody = -2; ///< before the step; never written
};

/// Content::id of cleared sums: a block's load clears its sums.
inline constexpr uint32_t kNoSums = 1;

class SymbolicExecution {
public:
  explicit SymbolicExecution(Device &device)
      : device(device), model(device.getModel()), program(device.getProgram()),
        addresses(device.getAddresses()), bound(device.getBound()),
        rowsOfUnit(model.summary.units_size()) {
    for (uint32_t c : model.cellsOfDevice[program.device()]) {
      const auto &cell = model.plan.cells[c];
      for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
        rowsOfUnit[u].push_back({cell.firstSample, cell.endSample});
    }
    for (auto &rows : rowsOfUnit)
      std::sort(rows.begin(), rows.end());
    lists.push_back({{}, {}}); // index 0: no list
  }

  void run();

private:
  Device &device;
  const Model &model;
  const bundle::Program &program;
  AddressIntervals &addresses;
  const std::vector<uint32_t> &bound;
  IntervalMap<Content> memory; ///< contents of all arenas
  std::vector<ContributionList> lists;
  std::vector<std::vector<Range>> rowsOfUnit;
  std::vector<Logical> arguments;   ///< of all calls, in the order of `bound`
  std::vector<Logical> transfers;   ///< of all other instructions
  std::map<int32_t, Logical> terms; ///< the term of a contributor to a reduction, by instruction
  bool evaluating = false;
  int32_t current = -1; ///< index of the instruction being replayed
  /// Arguments to which segments of a call add, until the last one: whether the first overwrites.
  /// By unit, samples and argument.
  std::map<std::tuple<int32_t, int64_t, int>, bool> openSums;
  size_t nextArgument = 0, nextTransfer = 0;
  IntervalRange lastBlock, lastScalars[3]; ///< cache of requireScalars: the last block and its
                                           ///< bytes before, in and after the decision
  std::vector<uint32_t> taking;            ///< scratch of accumulateBytes
  std::vector<std::pair<uint32_t, uint32_t>> copies;

  const bundle::Instruction &instruction() const { return program.instructions(current); }
  bool fail(Code code, const std::string &message) {
    return device.report(code, current < 0 ? -1 : int64_t(instruction().id()),
                         (current < 0
                              ? std::string(evaluating ? "after an evaluation" : "after a step")
                              : device.where(instruction())) +
                             ": " + message);
  }

  /// Frozen state has no versions; all other values belong to the step.
  int32_t updatesOf(const Logical &value) const {
    bool versioned =
        value.kind == bundle::Value::OPTIMIZER_STEP ||
        ((value.kind == bundle::Value::PARAMETERS || value.kind == bundle::Value::MOMENTS) &&
         model.trainable(value.id));
    return versioned ? int32_t(value.version) : 0;
  }

  Content contentOf(const Logical &value, int64_t address) const {
    Content content;
    content.kind = value.kind;
    content.id = value.id;
    content.cut = value.kind == bundle::Value::MOMENTS || value.kind == bundle::Value::LOSS_ROWS ||
                          value.kind == bundle::Value::REDUCED_GRADIENTS
                      ? value.cut
                      : 0;
    content.updates = updatesOf(value);
    content.delta = value.begin * value.stride - address;
    if (value.kind == bundle::Value::EXCHANGED) {
      content.cut = 2 * value.cut + value.version;
      content.begin = value.begin;
      content.end = value.end;
      content.delta = value.offset - address;
    } else if (isBlock(value.kind)) {
      content.begin = value.begin;
      content.end = value.end;
      content.delta = -address;
    }
    content.writer = current;
    return content;
  }
  /// Requires the content of the arguments that a call reads.
  void readArguments(const bundle::Call &call, const Logical *values, const uint32_t *numbers);
  /// Finds what a call that is of no unit adds to the sums: elements of norms, rows of losses.
  void findSums(const bundle::Call &call, const Logical *values, std::vector<Contribution> &norm,
                std::vector<Contribution> &loss);
  /// Checks that all segments of a call that add to an argument overwrite what was there, or none.
  void checkOpenSum(const bundle::Call &call, int argument, bool overwrites);
  /// Checks what a segment of a function with exchanges finds of the segments before it.
  void continueSegment(const bundle::Call &call, const uint32_t *numbers);
  static bool sameValue(const Content &a, const Content &b) {
    return a.kind == b.kind && a.id == b.id && a.cut == b.cut && a.delta == b.delta &&
           a.begin == b.begin && a.end == b.end;
  }

  uint32_t newList(Intervals intervals, std::vector<Contribution> items) {
    lists.push_back({intervals, std::move(items)});
    return uint32_t(lists.size() - 1);
  }

  std::string held(const Content &content) const;
  IntervalRange rangeOf(const bundle::Region &region) {
    const int64_t begin = addressOf(region.arena(), region.offset());
    return region.bytes() ? addresses.of(begin, begin + int64_t(region.bytes())) : IntervalRange();
  }
  /// Bytes [from, to) of a place.
  IntervalRange part(const IntervalRange &range, int64_t from, int64_t to) {
    return addresses.of(range.begin + from, range.begin + to);
  }

  /// The intervals of a written place, which contain exactly its bytes.
  Intervals exactly(const IntervalRange &range) const {
    assert(places.address(place.intervals.begin) == place.begin &&
           (place.intervals.end == places.count() ||
            places.address(place.intervals.end) == place.end));
    return range.intervals;
  }
  void writeBytes(const IntervalRange &range, const Content &content) {
    if (range.begin < range.end)
      memory.assign(exactly(range), content);
  }
  void write(const IntervalRange &range, const Logical &value);
  void writeScalars(const IntervalRange &block);
  void scratch(const IntervalRange &range);
  /// Whether all of these bytes contain the expected value in the expected version and are not an
  /// accumulator. Most reads need no further check.
  bool holds(Intervals intervals, const Content &expected) const {
    return memory.all(intervals, [&](const Content &found) {
      return !found.list && found.updates == expected.updates && sameValue(found, expected);
    });
  }
  /// Requires that the bytes contain the value. Arguments of calls mostly read a single parameter.
  bool requireArgument(const IntervalRange &range, const Logical &value);
  bool require(const IntervalRange &range, const Logical &value);
  bool requireBytes(const IntervalRange &range, const Content &expected, const Logical &value,
                    int64_t parameter) {
    return holds(range.intervals, expected) || compareBytes(range, expected, value, parameter);
  }
  bool compareBytes(const IntervalRange &range, const Content &expected, const Logical &value,
                    int64_t parameter);
  enum class LossGradientScaling : uint8_t { Loaded, Scaled, Either };
  /// The state of the seeds that the call reads.
  LossGradientScaling seedsFor(const bundle::Call &call) const;
  bool requireScalars(const IntervalRange &block, bool decided, LossGradientScaling seeds);
  bool requireSums(const IntervalRange &sums, bool global, bool norm, bool loss);
  bool requireNoSums(const IntervalRange &sums);
  /// \param slot  the accumulator's argument, for messages; null: this device's sums
  bool accumulateBytes(const IntervalRange &range, const Content &expected,
                       const Contribution &contribution, bool overwrite,
                       const bundle::FunctionArgument *argument);
  bool checkGradient(const ContributionList &list, uint32_t parameter);
  bool tileRows(const std::vector<Contribution> &contributions,
                const std::vector<uint32_t> &units) const;
  bool checkValueGradient(const ContributionList &list, const Logical &value);
  bool checkNorm(const ContributionList &list);
  bool checkLoss(const ContributionList &list);
  bool compare(std::vector<Contribution> found, std::vector<Contribution> expected, Code code,
               const std::string &name, const char *unit);

  bool prepare();
  bool declare(const bundle::Value &value, uint64_t bytes);
  bool declareTransfer();
  bool declareCollective(const bundle::Collective &collective);
  bool checkMoved();
  void load();
  void call(const bundle::Call &call);
  void transfer();
  void copy(const IntervalRange &from, const IntervalRange &to, const Logical &value);
  void copyScalars(const IntervalRange &from, const IntervalRange &to);
  /// Calls f(Place, Logical) on runs of a collective's whole. Its memory starts at the region.
  template <typename F>
  void forRuns(const Compact &runs, const bundle::Collective &collective,
               const bundle::Region &region, Logical whole, F f) {
    const int64_t begin = addressOf(region.arena(), region.offset()),
                  size = elementSize(collective.type), first = whole.begin;
    for (const Compact::Run &run : runs.runs()) {
      if (whole.kind == bundle::Value::EXCHANGED) {
        whole.offset = run.begin * size;
      } else {
        whole.begin = first + run.begin * size / whole.stride;
        whole.end = first + run.end * size / whole.stride;
      }
      whole.bytes = run.size() * size;
      f(addresses.of(begin + run.place * size, begin + run.place * size + whole.bytes), whole);
    }
  }
  /// Calls f(IntervalRange, Logical) on the runs of an argument. Only parameters of devices of
  /// groups have several.
  template <typename F>
  void forArgumentRuns(const bundle::Call &call, const bundle::FunctionArgument &argument,
                       const IntervalRange &range, const Logical &value, F f) {
    if (value.parameter < 0 || value.bytes == (value.end - value.begin) * value.stride)
      return f(range, value);
    const Compact runs = model.parameterRuns(program.device(), call.unit(), argument.index());
    Logical one = value;
    for (const Compact::Run &run : runs.runs()) {
      one.begin = run.begin;
      one.end = run.end;
      one.bytes = run.size() * value.stride;
      f(part(range, run.place * value.stride, run.place * value.stride + one.bytes), one);
    }
  }
  void checkState(uint32_t version);
};

} // namespace zorse::verify
