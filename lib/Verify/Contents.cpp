#include "SymbolicExecution.h"

using namespace zorse;
using namespace zorse::verify;

std::string SymbolicExecution::held(const Content &content) const {
  bundle::Value value;
  value.set_kind(content.kind);
  value.set_id(content.id);
  value.set_cut(content.cut);
  std::string text;
  if (content.kind == bundle::Value::NONE) {
    text = "scratch";
  } else {
    text = device.describe(value);
    if (size_t comma = text.find(", "); comma != std::string::npos)
      text.resize(comma); // the extent is that of a piece
  }
  if (content.writer < 0)
    return text + " as loaded before the step";
  return text + ", left by instruction " +
         std::to_string(program.instructions(content.writer).id()) + ", " +
         device.describe(program.instructions(content.writer));
}

void SymbolicExecution::write(const IntervalRange &range, const Logical &value) {
  Content content = contentOf(value, range.begin);
  if (value.kind == bundle::Value::ACTIVATION_GRADIENT) { // received: the sum that it declares
    std::vector<Contribution> items;
    for (uint32_t unit : model.valueContributors[value.id])
      if (unit >= value.cut)
        items.push_back({unit, 0, 0, 0});
    content.list = newList(range.intervals, std::move(items));
  }
  writeBytes(range, content);
}

void SymbolicExecution::scratch(const IntervalRange &range) {
  Content content;
  content.writer = current;
  memory.assign(range.intervals, content);
}

void SymbolicExecution::writeScalars(const IntervalRange &block) {
  const IntervalRange scalars = part(block, 0, Block::scalarsEnd),
                      norm = part(block, Block::scalarsEnd, Block::scalarsEnd + Block::normBytes),
                      loss = part(block, Block::scalarsEnd + Block::normBytes, Block::sumsEnd);
  Content content;
  content.kind = bundle::Value::STEP_SCALARS;
  content.delta = -block.begin;
  content.writer = current;
  writeBytes(scalars, content);
  content.kind = bundle::Value::LOCAL_METRICS;
  content.delta = -norm.begin;
  content.list = newList(norm.intervals, {});
  writeBytes(norm, content);
  content.list = newList(loss.intervals, {});
  writeBytes(loss, content);
  const IntervalRange rest = part(block, Block::sumsEnd, Block::bytes);
  content.id = kNoSums;
  content.delta = -rest.begin;
  content.list = 0;
  writeBytes(rest, content);
}

/// Checks that every byte contains the expected value, and that accumulators contain exactly the
/// contributions that their reader needs.
bool SymbolicExecution::compareBytes(const IntervalRange &range, const Content &expected,
                                     const Logical &value, int64_t parameter) {
  bool good = true;
  uint32_t checked = 0;
  memory.forEach(range.intervals, [&](Intervals piece, const Content &found) {
    if (!good)
      return;
    auto bytes = [&] {
      int64_t from = std::max(range.begin, addresses.address(piece.begin)),
              to = std::min(range.end, addresses.address(piece.end));
      return "bytes " + std::to_string(offsetOf(from)) + "-" + std::to_string(offsetOf(to)) +
             " of arena " + std::to_string(arenaOf(from));
    };
    auto expects = [&] {
      bundle::Value declared;
      declared.set_kind(value.kind);
      declared.set_id(value.id);
      declared.set_cut(value.cut);
      declared.set_begin(value.begin);
      declared.set_end(value.end);
      declared.set_version(value.version);
      return "reads " + device.describe(declared) + " in " + bytes();
    };
    if (found.kind == bundle::Value::NONE) {
      good = fail(Code::Undefined, expects() + ", which " +
                                       (found.writer == Content::kNobody ? "nothing has written"
                                                                         : "hold " + held(found)));
      return;
    }
    if (!sameValue(found, expected)) {
      if (value.kind != bundle::Value::REDUCED_GRADIENTS ||
          found.kind != bundle::Value::GRADIENTS) {
        good = fail(Code::WrongValue, expects() + ", which hold " + held(found));
        return;
      }
      // With one contributor, its accumulator is the sum.
      Content accumulator = expected;
      accumulator.kind = bundle::Value::GRADIENTS;
      const auto &contributors = model.groupContributors[value.id];
      if (contributors.size() != 1 || contributors[0] != program.device())
        good = fail(Code::Contributions,
                    expects() + ", which hold this device's accumulator only: " + held(found));
      else if (!sameValue(found, accumulator))
        good = fail(Code::WrongValue, expects() + ", which hold " + held(found));
      if (!good)
        return;
    }
    if (found.updates != expected.updates) {
      good = fail(Code::Stale, expects() + " after " + std::to_string(expected.updates) +
                                   " updates, which have had " + std::to_string(found.updates) +
                                   ": " + held(found));
      return;
    }
    if (!found.list || found.list == checked)
      return;
    checked = found.list;
    if (found.kind == bundle::Value::ACTIVATION_GRADIENT)
      good = checkValueGradient(lists[found.list], value);
    else if (found.kind == bundle::Value::GRADIENTS)
      good = checkGradient(lists[found.list], uint32_t(parameter));
  });
  return good;
}

bool SymbolicExecution::requireArgument(const IntervalRange &range, const Logical &value) {
  if (isState(value.kind) && value.parameter < 0)
    return require(range, value);
  return requireBytes(range, contentOf(value, range.begin), value, value.parameter);
}

bool SymbolicExecution::require(const IntervalRange &range, const Logical &value) {
  if (range.begin == range.end)
    return true;
  Content expected = contentOf(value, range.begin);
  if (!isState(value.kind))
    return requireBytes(range, expected, value, -1);
  bool good = true;
  model.forPiecesOf(value.kind, value.id, value.cut, {value.begin, value.end},
                    [&](int64_t begin, int64_t end, uint32_t parameter) {
                      good = good && requireBytes(part(range, (begin - value.begin) * value.stride,
                                                       (end - value.begin) * value.stride),
                                                  expected, value, parameter);
                    });
  return good;
}

/// Requires the scalars of LoadScalars, with seeds in the given state and, with `decided`, the
/// decision.
bool SymbolicExecution::requireScalars(const IntervalRange &block, bool decided,
                                       LossGradientScaling seeds) {
  Logical value;
  value.kind = bundle::Value::STEP_SCALARS;
  Content expected = contentOf(value, block.begin);
  if (block.begin != lastBlock.begin || block.end != lastBlock.end) {
    lastScalars[0] = part(block, 0, Block::decidedBegin);
    lastScalars[1] = part(block, Block::decidedBegin, Block::decidedEnd);
    lastScalars[2] = part(block, Block::seedsBegin, Block::scalarsEnd);
    lastBlock = block;
  }
  if (!requireBytes(lastScalars[0], expected, value, -1))
    return false;
  if (seeds == LossGradientScaling::Scaled || seeds == LossGradientScaling::Either)
    value.id = expected.id = 2;
  if (seeds == LossGradientScaling::Either && !holds(lastScalars[2].intervals, expected))
    value.id = expected.id = 0;
  if (!requireBytes(lastScalars[2], expected, value, -1))
    return false;
  value.id = expected.id = 1;
  return !decided || requireBytes(lastScalars[1], expected, value, -1);
}

/// Requires the sums of this device (`global` false) or of all devices. Global sums must contain
/// every contribution once. A device may read its own sums as global if it is the only one with
/// contributions; the check over all devices verifies that it is.
bool SymbolicExecution::requireSums(const IntervalRange &sums, bool global, bool norm, bool loss) {
  bool good = true;
  auto check = [&](int64_t begin, int64_t end, bool isNorm) {
    memory.forEach(part(sums, begin, end).intervals, [&](Intervals, const Content &found) {
      if (!good)
        return;
      auto what = [&] {
        const int64_t base = offsetOf(sums.begin);
        return (global ? "reads the sums of all devices in bytes "
                       : "reads this device's sums in bytes ") +
               std::to_string(base + begin) + "-" + std::to_string(base + end);
      };
      if (found.kind == bundle::Value::NONE)
        good = fail(Code::Undefined, what() + ", which nothing has written");
      else if ((found.kind != bundle::Value::LOCAL_METRICS &&
                found.kind != bundle::Value::GLOBAL_METRICS) ||
               found.id == kNoSums || found.delta != -sums.begin)
        good = fail(Code::WrongValue, what() + ", which hold " + held(found));
      else if (found.kind == bundle::Value::GLOBAL_METRICS && !global)
        good = fail(Code::WrongValue,
                    what() + ", which hold those of all devices already: " + held(found));
      else if (found.kind == bundle::Value::LOCAL_METRICS) {
        if (global)
          (isNorm ? device.getResult().readsOwnNormAsGlobal
                  : device.getResult().readsOwnLossAsGlobal) = true;
        good = isNorm ? checkNorm(lists[found.list]) : checkLoss(lists[found.list]);
      }
    });
  };
  if (norm && !evaluating) // evaluation computes no norm
    check(0, Block::normBytes, true);
  if (loss && good)
    check(Block::normBytes, Block::sumsBytes, false);
  return good;
}

/// Requires sums without any contribution. A decision reads them if it precedes all gradients.
bool SymbolicExecution::requireNoSums(const IntervalRange &sums) {
  bool good = true;
  memory.forEach(sums.intervals, [&](Intervals, const Content &found) {
    if (good && (found.kind != bundle::Value::LOCAL_METRICS || found.id != kNoSums ||
                 found.delta != -sums.begin))
      good = fail(found.kind == bundle::Value::NONE ? Code::Undefined : Code::WrongValue,
                  "decides by bytes that hold " + held(found) +
                      ", expects sums without anything added: the plan commits by group");
  });
  return good;
}

/// Adds a contribution to the accumulator in a place, or starts it with `overwrite`.
bool SymbolicExecution::accumulateBytes(const IntervalRange &range, const Content &expected,
                                        const Contribution &contribution, bool overwrite,
                                        const bundle::FunctionArgument *argument) {
  if (range.begin >= range.end)
    return true;
  if (overwrite) {
    Content content = expected;
    content.list = newList(range.intervals, {contribution});
    writeBytes(range, content);
    return true;
  }
  auto adds = [&] {
    return "adds to " +
           (argument ? "argument '" + argument->name() + "'" : std::string("this device's sums"));
  };
  bool good = true, whole = true;
  taking.clear();
  const Intervals intervals = exactly(range);
  memory.forEach(intervals, [&](Intervals, const Content &found) {
    if (!good)
      return;
    if (found.kind == bundle::Value::NONE)
      good =
          fail(Code::Undefined, adds() + ", where " +
                                    (found.writer == Content::kNobody ? "nothing was written"
                                                                      : "there is " + held(found)) +
                                    "; the first contribution must overwrite");
    else if (!sameValue(found, expected))
      good = fail(Code::WrongValue, adds() + ", where there is " + held(found));
    else if (taking.empty() || taking.back() != found.list) {
      taking.push_back(found.list);
      const Intervals made = lists[found.list].intervals;
      whole = whole && intervals.begin <= made.begin && made.end <= intervals.end;
    }
  });
  if (!good)
    return false;
  if (taking.size() > 1) {
    std::sort(taking.begin(), taking.end());
    taking.erase(std::unique(taking.begin(), taking.end()), taking.end());
  }
  copies.clear(); // ascending, like `taking`
  for (uint32_t list : taking) {
    uint32_t target = list;
    if (!whole) {
      target = newList(intervals, std::vector<Contribution>(lists[list].items));
      copies.push_back({list, target});
    }
    lists[target].items.push_back(contribution);
  }
  memory.change(intervals, [&](Content &content) {
    content.writer = current;
    if (!whole)
      content.list =
          std::lower_bound(copies.begin(), copies.end(), std::make_pair(content.list, 0u))->second;
  });
  return true;
}
