#include "Replay.h"


using namespace zorse;
using namespace zorse::verify;

std::string Replay::held(const Content &content) const {
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
  return text + ", left by entry " + std::to_string(program.entries(content.writer).id()) + ", " + device.describe(program.entries(content.writer));
}

void Replay::write(const bundle::Region &region, const Logical &value) {
  Content content = contentOf(value, int64_t(region.offset()));
  int64_t begin = int64_t(region.offset()), end = begin + int64_t(region.bytes());
  if (value.kind == bundle::Value::ACTIVATION_GRADIENT) { // received: the sum it declares
    std::vector<Contribution> items;
    for (uint32_t unit : model.valueContributors[value.id])
      if (unit >= value.cut)
        items.push_back({unit, 0, 0, 0});
    content.list = newList(region.arena(), begin, end, std::move(items));
  }
  writeBytes(region.arena(), begin, end, content);
}

void Replay::scratch(const bundle::Region &region, Intervals intervals) {
  Content content;
  content.writer = current;
  arenas[region.arena()].assign(intervals, content);
}

void Replay::writeScalars(const bundle::Region &region) {
  const uint32_t arena = region.arena();
  const int64_t base = int64_t(region.offset()), sums = base + Block::scalarsEnd;
  Content content;
  content.kind = bundle::Value::STEP_SCALARS;
  content.delta = -base;
  content.writer = current;
  writeBytes(arena, base, sums, content);
  content.kind = bundle::Value::SUMS;
  content.delta = -sums;
  content.list = newList(arena, sums, sums + Block::normBytes, {});
  writeBytes(arena, sums, sums + Block::normBytes, content);
  content.list = newList(arena, sums + Block::normBytes, base + Block::sumsEnd, {});
  writeBytes(arena, sums + Block::normBytes, base + Block::sumsEnd, content);
  Content rest;
  rest.writer = current;
  writeBytes(arena, base + Block::sumsEnd, base + Block::bytes, rest);
}

/// Every byte holds the expected value; accumulators besides hold exactly the contributions their reader needs.
bool Replay::requireBytes(uint32_t arena, Intervals intervals, int64_t begin, int64_t end, const Content &expected, const Logical &value, int64_t parameter) {
  bool good = true;
  uint32_t checked = 0;
  Places &places = device.getPlaces();
  arenas[arena].forEach(intervals, [&](Intervals piece, const Content &found) {
    if (!good)
      return;
    auto bytes = [&] {
      int64_t from = std::max(begin, places.address(arena, piece.begin)), to = piece.end < places.count(arena) ? std::min(end, places.address(arena, piece.end)) : end;
      return "bytes " + std::to_string(from) + "-" + std::to_string(to) + " of arena " + std::to_string(arena);
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
      good = fail(Code::Undefined, expects() + ", which " + (found.writer == Content::kNobody ? "nothing has written" : "hold " + held(found)));
      return;
    }
    if (!sameValue(found, expected)) {
      if (value.kind != bundle::Value::REDUCED_GRADIENTS || found.kind != bundle::Value::GRADIENTS) {
        good = fail(Code::WrongValue, expects() + ", which hold " + held(found));
        return;
      }
      // The accumulator of the only contributor is the sum.
      Content accumulator = expected;
      accumulator.kind = bundle::Value::GRADIENTS;
      const auto &contributors = model.groupContributors[value.id];
      if (contributors.size() != 1 || contributors[0] != program.device())
        good = fail(Code::Contributions, expects() + ", which hold this device's accumulator only: " + held(found));
      else if (!sameValue(found, accumulator))
        good = fail(Code::WrongValue, expects() + ", which hold " + held(found));
      if (!good)
        return;
    }
    if (found.updates != expected.updates) {
      good = fail(Code::Stale, expects() + " after " + std::to_string(expected.updates) + " updates, which have had " + std::to_string(found.updates) + ": " + held(found));
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

bool Replay::requireSlot(const bundle::Region &region, const Logical &value) {
  if (isState(value.kind) && value.parameter < 0)
    return require(region, value);
  int64_t base = int64_t(region.offset());
  return requireBytes(region.arena(), value.intervals, base, base + int64_t(region.bytes()), contentOf(value, base), value, value.parameter);
}

bool Replay::require(const bundle::Region &region, const Logical &value) {
  if (!region.bytes())
    return true;
  int64_t base = int64_t(region.offset());
  Content expected = contentOf(value, base);
  if (!isState(value.kind))
    return requireBytes(region.arena(), base, base + int64_t(region.bytes()), expected, value, -1);
  bool good = true;
  model.forPieces(value.id, value.begin, value.end, [&](int64_t begin, int64_t end, uint32_t parameter) {
    good = good && requireBytes(region.arena(), base + (begin - value.begin) * value.stride, base + (end - value.begin) * value.stride, expected, value, parameter);
  });
  return good;
}

/// What LoadScalars brought, and with `decided` the decision.
bool Replay::requireScalars(const bundle::Region &region, bool decided) {
  Logical value;
  value.kind = bundle::Value::STEP_SCALARS;
  int64_t base = int64_t(region.offset());
  Content expected = contentOf(value, base);
  if (!requireBytes(region.arena(), base, base + Block::decidedBegin, expected, value, -1) ||
      !requireBytes(region.arena(), base + Block::decidedEnd, base + Block::scalarsEnd, expected, value, -1))
    return false;
  value.id = expected.id = 1;
  return !decided || requireBytes(region.arena(), base + Block::decidedBegin, base + Block::decidedEnd, expected, value, -1);
}

/// The sums of this device (`global` false) or of all: there, every contribution once. A device that is the only one with contributions may read
/// its own as global; that it is the only one is checked with all devices.
bool Replay::requireSums(const bundle::Region &region, bool global, bool norm, bool loss) {
  bool good = true;
  int64_t base = int64_t(region.offset());
  auto part = [&](int64_t begin, int64_t end, bool isNorm) {
    arenas[region.arena()].forEach(device.getPlaces().of(region.arena(), base + begin, base + end), [&](Intervals, const Content &found) {
      if (!good)
        return;
      auto what = [&] { return (global ? "reads the sums of all devices in bytes " : "reads this device's sums in bytes ") + std::to_string(base + begin) + "-" + std::to_string(base + end); };
      if (found.kind == bundle::Value::NONE)
        good = fail(Code::Undefined, what() + ", which nothing has written");
      else if ((found.kind != bundle::Value::SUMS && found.kind != bundle::Value::GLOBAL_SUM) || found.delta != -base)
        good = fail(Code::WrongValue, what() + ", which hold " + held(found));
      else if (found.kind == bundle::Value::GLOBAL_SUM && !global)
        good = fail(Code::WrongValue, what() + ", which hold those of all devices already: " + held(found));
      else if (found.kind == bundle::Value::SUMS) {
        if (global)
          (isNorm ? device.getResult().readsOwnNormAsGlobal : device.getResult().readsOwnLossAsGlobal) = true;
        good = isNorm ? checkNorm(lists[found.list]) : checkLoss(lists[found.list]);
      }
    });
  };
  if (norm && !evaluating) // evaluation has no norm
    part(0, Block::normBytes, true);
  if (loss && good)
    part(Block::normBytes, Block::sumsBytes, false);
  return good;
}

/// Adds to, or with `overwrite` starts, the accumulator in [begin, end).
bool Replay::accumulateBytes(uint32_t arena, int64_t begin, int64_t end, const Content &expected, const Contribution &contribution, bool overwrite, const bundle::Slot *slot) {
  if (begin >= end)
    return true;
  if (overwrite) {
    Content content = expected;
    content.list = newList(arena, begin, end, {contribution});
    writeBytes(arena, begin, end, content);
    return true;
  }
  auto adds = [&] { return "adds to " + (slot ? "slot '" + slot->name() + "'" : std::string("this device's sums")); };
  bool good = true, whole = true;
  taking.clear();
  const Intervals intervals = exactly(arena, begin, end);
  arenas[arena].forEach(intervals, [&](Intervals, const Content &found) {
    if (!good)
      return;
    if (found.kind == bundle::Value::NONE)
      good = fail(Code::Undefined, adds() + ", where " + (found.writer == Content::kNobody ? "nothing was written" : "there is " + held(found)) + "; the first contribution must overwrite");
    else if (!sameValue(found, expected))
      good = fail(Code::WrongValue, adds() + ", where there is " + held(found));
    else if (taking.empty() || taking.back() != found.list) {
      taking.push_back(found.list);
      const auto &list = lists[found.list];
      whole = whole && list.arena == arena && begin <= list.begin && list.end <= end;
    }
  });
  if (!good)
    return false;
  if (taking.size() > 1) {
    std::sort(taking.begin(), taking.end());
    taking.erase(std::unique(taking.begin(), taking.end()), taking.end());
  }
  copies.clear(); // ascending, as `taking` is
  for (uint32_t list : taking) {
    uint32_t target = list;
    if (!whole) {
      target = newList(arena, begin, end, std::vector<Contribution>(lists[list].items));
      copies.push_back({list, target});
    }
    lists[target].items.push_back(contribution);
  }
  arenas[arena].change(intervals, [&](Content &content) {
    content.writer = current;
    if (!whole)
      content.list = std::lower_bound(copies.begin(), copies.end(), std::make_pair(content.list, 0u))->second;
  });
  return true;
}
