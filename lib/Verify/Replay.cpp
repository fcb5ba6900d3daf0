// Values: two training steps and an evaluation of one device, replayed in list order on interval maps of its arenas.
//
// List order suffices: checkRaces has shown that every other order the device may take gives every access the same bytes. What arrives from
// other devices is taken to be what it declares; the sender's replay shows that it is.
#include "IntervalMap.h"
#include "Logical.h"

#include <map>
#include <tuple>

using namespace zorse;
using namespace zorse::verify;

namespace {

/// One contribution to an accumulator. Gradients of state: unit and samples. Gradients of values: unit. Sums: (group, elements) or (unit, term, samples).
struct Contribution {
  uint32_t of, term;
  int64_t begin, end;
  bool operator<(const Contribution &o) const { return std::tie(of, term, begin, end) < std::tie(o.of, o.term, o.begin, o.end); }
  bool operator==(const Contribution &o) const { return std::tie(of, term, begin, end) == std::tie(o.of, o.term, o.begin, o.end); }
};

/// Shared by the pieces of the bytes it was made for. Pieces only shrink, so an addition to a range that covers those bytes changes the list in
/// place, and one to a part of them works on a copy.
struct ContributionList {
  uint32_t arena;
  int64_t begin, end;
  std::vector<Contribution> items;
};

/// What a piece of an arena holds. `delta` is (byte inside the logical value) - (address), so that neighbours of one value compare equal.
struct Content {
  bundle::Value::Kind kind = bundle::Value::NONE;
  uint32_t id = 0, cut = 0;
  int32_t stamp = 0; ///< state: updates applied before; all else: the step it belongs to
  int64_t delta = 0;
  int64_t begin = 0, end = 0; ///< saved blocks: their samples
  uint32_t list = 0;          ///< accumulators: index of the contributions
  int32_t writer = -1;        ///< entry index; -1: loaded before the first step
};

class Replay {
public:
  explicit Replay(Device &device)
      : device(device), model(device.getModel()), program(device.getProgram()), arenas(program.arenas_size()), rowsOfUnit(model.summary.units_size()) {
    for (uint32_t c : model.cellsOfDevice[program.device()]) {
      const auto &cell = model.plan.cells[c];
      for (int64_t u = cell.firstUnit; u < cell.endUnit; ++u)
        rowsOfUnit[u].push_back({cell.firstSample, cell.endSample});
    }
    for (auto &rows : rowsOfUnit)
      std::sort(rows.begin(), rows.end());
    lists.push_back({0, 0, 0, {}}); // index 0: no list
  }

  void run();

private:
  Device &device;
  const Model &model;
  const bundle::Program &program;
  std::vector<IntervalMap<Content>> arenas;
  std::vector<ContributionList> lists;
  std::vector<std::vector<Range>> rowsOfUnit;
  std::vector<Logical> slots; ///< of all calls, in order
  int32_t step = 1;
  bool evaluating = false;
  int32_t current = -1; ///< index of the entry being replayed
  size_t nextSlot = 0;

  const bundle::Entry &entry() const { return program.entries(current); }
  bool fail(Code code, const std::string &message) { return device.report(code, current < 0 ? -1 : int64_t(entry().id()), (current < 0 ? std::string("after step ") + std::to_string(step) : device.where(entry())) + ": " + message); }

  int32_t stampOf(const Logical &value) const {
    switch (value.kind) {
    case bundle::Value::PARAMETERS:
    case bundle::Value::MOMENTS: return model.trainable(value.id) ? step - 1 + int32_t(value.version) : 0;
    case bundle::Value::OPTIMIZER_STEP: return step - 1 + int32_t(value.version);
    default: return step;
    }
  }
  static bool isState(bundle::Value::Kind kind) {
    return kind == bundle::Value::PARAMETERS || kind == bundle::Value::MOMENTS || kind == bundle::Value::GRADIENTS || kind == bundle::Value::REDUCED_GRADIENTS;
  }

  Content contentOf(const Logical &value, int64_t address) const {
    Content content;
    content.kind = value.kind;
    content.id = value.id;
    content.cut = value.kind == bundle::Value::MOMENTS || value.kind == bundle::Value::LOSS_ROWS ? value.cut : 0;
    content.stamp = stampOf(value);
    content.delta = value.begin * value.stride - address;
    if (value.kind == bundle::Value::SAVED_BLOCK) {
      content.begin = value.begin;
      content.end = value.end;
      content.delta = -address;
    }
    content.writer = current;
    return content;
  }
  static bool sameValue(const Content &a, const Content &b) {
    return a.kind == b.kind && a.id == b.id && a.cut == b.cut && a.delta == b.delta && a.begin == b.begin && a.end == b.end;
  }

  uint32_t newList(uint32_t arena, int64_t begin, int64_t end, std::vector<Contribution> items) {
    lists.push_back({arena, begin, end, std::move(items)});
    return uint32_t(lists.size() - 1);
  }

  std::string held(const Content &content) const;
  void writeBytes(uint32_t arena, int64_t begin, int64_t end, const Content &content) { arenas[arena].assign(begin, end, content); }
  void write(const bundle::Region &region, const Logical &value);
  void writeScalars(const bundle::Region &region);
  void scratch(const bundle::Region &region);
  bool require(const bundle::Region &region, const Logical &value);
  bool requireBytes(uint32_t arena, int64_t begin, int64_t end, const Content &expected, const Logical &value, int64_t parameter);
  bool requireScalars(const bundle::Region &region, bool decided);
  bool requireSums(const bundle::Region &region, bool global, bool norm, bool loss);
  bool accumulateBytes(uint32_t arena, int64_t begin, int64_t end, const Content &expected, const Contribution &contribution, bool overwrite, const std::string &name);
  bool checkGradient(const ContributionList &list, uint32_t parameter);
  bool checkValueGradient(const ContributionList &list, const Logical &value);
  bool checkNorm(const ContributionList &list);
  bool checkLoss(const ContributionList &list);
  bool compare(std::vector<Contribution> found, std::vector<Contribution> expected, Code code, const std::string &name, const char *unit);

  bool prepare();
  void call(const bundle::Call &call);
  void transfer();
  bool isUpdate(const bundle::Call &call) const;
  Logical shardOf(const bundle::Extents &extents, const Logical &group) const;
  void checkState(uint32_t version);
};

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
    return text + " as loaded before the first step";
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

void Replay::scratch(const bundle::Region &region) {
  Content content;
  content.writer = current;
  writeBytes(region.arena(), int64_t(region.offset()), int64_t(region.offset() + region.bytes()), content);
}

void Replay::writeScalars(const bundle::Region &region) {
  const uint32_t arena = region.arena();
  const int64_t base = int64_t(region.offset()), sums = base + Block::scalarsEnd;
  Content content;
  content.kind = bundle::Value::STEP_SCALARS;
  content.stamp = step;
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
bool Replay::requireBytes(uint32_t arena, int64_t begin, int64_t end, const Content &expected, const Logical &value, int64_t parameter) {
  bool good = true;
  uint32_t checked = 0;
  arenas[arena].forEach(begin, end, [&](int64_t from, int64_t to, const Content *found) {
    if (!good)
      return;
    auto bytes = [&] { return "bytes " + std::to_string(from) + "-" + std::to_string(to) + " of arena " + std::to_string(arena); };
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
    if (!found || found->kind == bundle::Value::NONE) {
      good = fail(Code::Undefined, expects() + ", which " + (found ? "hold " + held(*found) : "nothing has written"));
      return;
    }
    Content wanted = expected;
    bool local = value.kind == bundle::Value::REDUCED_GRADIENTS && found->kind == bundle::Value::GRADIENTS;
    if (local) { // the accumulator of the only contributor is the sum
      wanted.kind = bundle::Value::GRADIENTS;
      const auto &contributors = model.groupContributors[value.id];
      if (contributors.size() != 1 || contributors[0] != program.device()) {
        good = fail(Code::Contributions, expects() + ", which hold this device's accumulator only: " + held(*found));
        return;
      }
    }
    if (!sameValue(*found, wanted)) {
      good = fail(Code::WrongValue, expects() + ", which hold " + held(*found));
      return;
    }
    if (found->stamp != wanted.stamp) {
      bool versioned = isState(value.kind) || value.kind == bundle::Value::OPTIMIZER_STEP;
      good = fail(Code::Stale, expects() + (versioned && value.kind != bundle::Value::GRADIENTS && value.kind != bundle::Value::REDUCED_GRADIENTS
                                                ? " after " + std::to_string(wanted.stamp) + " updates, which have had " + std::to_string(found->stamp)
                                                : " of step " + std::to_string(wanted.stamp) + ", which are of step " + std::to_string(found->stamp)) +
                                  ": " + held(*found));
      return;
    }
    if (!found->list || found->list == checked)
      return;
    checked = found->list;
    if (found->kind == bundle::Value::ACTIVATION_GRADIENT)
      good = checkValueGradient(lists[found->list], value);
    else if (found->kind == bundle::Value::GRADIENTS)
      good = checkGradient(lists[found->list], uint32_t(parameter));
  });
  return good;
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
    arenas[region.arena()].forEach(base + begin, base + end, [&](int64_t, int64_t, const Content *found) {
      if (!good)
        return;
      auto what = [&] { return (global ? "reads the sums of all devices in bytes " : "reads this device's sums in bytes ") + std::to_string(base + begin) + "-" + std::to_string(base + end); };
      if (!found || found->kind == bundle::Value::NONE)
        good = fail(Code::Undefined, what() + ", which nothing has written");
      else if ((found->kind != bundle::Value::SUMS && found->kind != bundle::Value::GLOBAL_SUM) || found->delta != -base)
        good = fail(Code::WrongValue, what() + ", which hold " + held(*found));
      else if (found->stamp != step)
        good = fail(Code::Stale, what() + " of step " + std::to_string(step) + ", which are of step " + std::to_string(found->stamp) + ": " + held(*found));
      else if (found->kind == bundle::Value::GLOBAL_SUM && !global)
        good = fail(Code::WrongValue, what() + ", which hold those of all devices already: " + held(*found));
      else if (found->kind == bundle::Value::SUMS) {
        if (global)
          (isNorm ? device.getResult().readsOwnNormAsGlobal : device.getResult().readsOwnLossAsGlobal) = true;
        good = isNorm ? checkNorm(lists[found->list]) : checkLoss(lists[found->list]);
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
bool Replay::accumulateBytes(uint32_t arena, int64_t begin, int64_t end, const Content &expected, const Contribution &contribution, bool overwrite, const std::string &name) {
  if (begin >= end)
    return true;
  if (overwrite) {
    Content content = expected;
    content.list = newList(arena, begin, end, {contribution});
    writeBytes(arena, begin, end, content);
    return true;
  }
  bool good = true, whole = true;
  std::vector<uint32_t> taking;
  arenas[arena].forEach(begin, end, [&](int64_t, int64_t, const Content *found) {
    if (!good)
      return;
    if (!found || found->kind == bundle::Value::NONE)
      good = fail(Code::Undefined, "adds to " + name + ", where " + (found ? "there is " + held(*found) : "nothing was written") + "; the first contribution must overwrite");
    else if (!sameValue(*found, expected))
      good = fail(Code::WrongValue, "adds to " + name + ", where there is " + held(*found));
    else if (found->stamp != expected.stamp)
      good = fail(Code::Stale, "adds to " + name + " of step " + std::to_string(expected.stamp) + ", which is of step " + std::to_string(found->stamp) + "; the first contribution must overwrite");
    else if (taking.empty() || taking.back() != found->list) {
      taking.push_back(found->list);
      const auto &list = lists[found->list];
      whole = whole && list.arena == arena && begin <= list.begin && list.end <= end;
    }
  });
  if (!good)
    return false;
  std::sort(taking.begin(), taking.end());
  taking.erase(std::unique(taking.begin(), taking.end()), taking.end());
  std::map<uint32_t, uint32_t> copies;
  for (uint32_t list : taking) {
    uint32_t target = list;
    if (!whole) {
      target = newList(arena, begin, end, lists[list].items);
      copies[list] = target;
    }
    lists[target].items.push_back(contribution);
  }
  arenas[arena].change(begin, end, [&](Content &content, int64_t) {
    content.writer = current;
    if (!whole)
      content.list = copies[content.list];
  });
  return true;
}

/// Both are sorted; `found` must be `expected`. Adjacent ranges have been joined where the way they were cut does not matter.
bool Replay::compare(std::vector<Contribution> found, std::vector<Contribution> expected, Code code, const std::string &name, const char *unit) {
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  if (found == expected)
    return true;
  auto text = [&](const Contribution &c) {
    const auto &summary = model.summary;
    bool group = std::string(unit) == "group";
    std::string label = group ? (c.of < uint32_t(summary.groups_size()) ? summary.groups(int(c.of)).name() : "") : (c.of < uint32_t(summary.units_size()) ? summary.units(int(c.of)).name() : "");
    return std::string(unit) + " " + std::to_string(c.of) + (label.empty() ? "" : " '" + label + "'") +
           (c.begin < c.end ? std::string(group ? ", elements " : ", samples ") + std::to_string(c.begin) + "-" + std::to_string(c.end) : "");
  };
  size_t i = 0, j = 0;
  while (i < found.size() && j < expected.size() && found[i] == expected[j])
    ++i, ++j;
  if (i < found.size() && i && found[i] == found[i - 1])
    return fail(code, name + " holds the contribution of " + text(found[i]) + " twice");
  if (j < expected.size() && (i == found.size() || expected[j] < found[i]))
    return fail(code, name + " misses the contribution of " + text(expected[j]));
  return fail(code, name + " holds a contribution of " + text(found[i]) + " that it should not");
}

bool Replay::checkValueGradient(const ContributionList &list, const Logical &value) {
  std::vector<Contribution> expected;
  for (uint32_t unit : model.valueContributors[value.id])
    if (unit >= value.cut)
      expected.push_back({unit, 0, 0, 0});
  return compare(list.items, std::move(expected), Code::Contributions, "the gradient of value '" + model.summary.values(int(value.id)).name() + "'", "unit");
}

bool Replay::checkGradient(const ContributionList &list, uint32_t parameter) {
  std::vector<Contribution> expected;
  for (uint32_t unit : model.parameterContributors[parameter])
    for (const Range &rows : rowsOfUnit[unit])
      expected.push_back({unit, 0, rows.begin, rows.end});
  return compare(list.items, std::move(expected), Code::Contributions, "the gradient of parameter '" + model.summary.parameters(int(parameter)).name() + "'", "unit");
}

/// Joins adjacent ranges of equal (of, term). Overlaps stay as they are: the comparison then fails.
static std::vector<Contribution> joined(std::vector<Contribution> items) {
  std::sort(items.begin(), items.end());
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (kept && items[kept - 1].of == items[i].of && items[kept - 1].term == items[i].term && items[kept - 1].end == items[i].begin)
      items[kept - 1].end = items[i].end;
    else
      items[kept++] = items[i];
  }
  items.resize(kept);
  return items;
}

bool Replay::checkNorm(const ContributionList &list) {
  const auto &owned = device.getResult().owned;
  if (list.items.empty() && !model.commits()) {
    device.getResult().lacksNorm = !owned.empty(); // whether anyone computes it is known with all devices
    return true;
  }
  std::vector<Contribution> expected;
  for (const auto &extent : owned)
    model.forPieces(extent.group, extent.begin, extent.end, [&](int64_t begin, int64_t end, uint32_t) { expected.push_back({extent.group, 0, begin, end}); });
  return compare(joined(list.items), joined(std::move(expected)), Code::Norm, "the gradient norm", "group");
}

bool Replay::checkLoss(const ContributionList &list) {
  std::vector<Contribution> expected;
  for (int u = 0; u < model.summary.units_size(); ++u)
    for (uint32_t term : model.summary.units(u).loss_terms())
      for (const Range &rows : rowsOfUnit[u])
        expected.push_back({uint32_t(u), term, rows.begin, rows.end});
  return compare(joined(list.items), joined(std::move(expected)), Code::Loss, "the loss sum", "unit");
}

// ---------------------------------------------------------------------------------------------------------------------------------
// Entries.

void Replay::call(const bundle::Call &call) {
  const auto &body = model.bodies.bodies(int(call.body()));
  const Logical *values = &slots[nextSlot];
  nextSlot += size_t(call.slots_size());

  // Reads first: slots of one call do not overlap where one is written.
  for (int s = 0; s < call.slots_size(); ++s) {
    const auto &slot = body.slots(s);
    const auto &region = call.slots(s).region();
    if (slot.kind() == bundle::WORKSPACE || !region.bytes() || (slot.mode() != bundle::READ && slot.mode() != bundle::UPDATE))
      continue;
    if (slot.kind() == bundle::SCALARS)
      requireScalars(region, call.unit() < 0 && slot.mode() == bundle::READ && isUpdate(call));
    else if (slot.kind() == bundle::SUMS_SLOT) {
      if (slot.mode() == bundle::READ)
        requireSums(region, /*global=*/true, /*norm=*/true, /*loss=*/true);
    } else
      require(region, values[s]);
  }
  std::vector<Contribution> norm, loss;
  for (int s = 0; s < call.slots_size(); ++s) {
    if (body.slots(s).kind() == bundle::LOSS && call.unit() < 0)
      loss.push_back({values[s].id, values[s].cut, values[s].begin, values[s].end});
    if (body.slots(s).kind() == bundle::STATE && body.slots(s).index() == 1) {
      int64_t real = 0;
      model.forPieces(values[s].id, values[s].begin, values[s].end, [&](int64_t begin, int64_t end, uint32_t) {
        norm.push_back({values[s].id, 0, begin, end});
        real += end - begin;
      });
      if (call.body() == model.summary.norm_body() && real != values[s].end - values[s].begin)
        fail(Code::Norm, "takes the norm of padding, elements " + std::to_string(values[s].begin) + "-" + std::to_string(values[s].end) + " of group '" +
                             model.summary.groups(int(values[s].id)).name() + "': padding holds anything");
    }
  }
  for (int s = 0; s < call.slots_size(); ++s) {
    const auto &slot = body.slots(s);
    const auto &region = call.slots(s).region();
    bool overwrite = call.slots(s).overwrite() || slot.mode() == bundle::WRITE;
    if (!region.bytes())
      continue;
    int64_t base = int64_t(region.offset()), end = base + int64_t(region.bytes());
    if (slot.kind() == bundle::WORKSPACE) {
      scratch(region);
    } else if (slot.mode() == bundle::READ) {
      continue;
    } else if (slot.kind() == bundle::SUMS_SLOT) {
      bool isNorm = call.body() == model.summary.norm_body();
      Content sums;
      sums.kind = bundle::Value::SUMS;
      sums.stamp = step;
      sums.delta = -base;
      sums.writer = current;
      for (const Contribution &contribution : isNorm ? norm : loss) {
        accumulateBytes(region.arena(), isNorm ? base : base + Block::normBytes, isNorm ? base + Block::normBytes : end, sums, contribution, overwrite, "this device's sums");
        overwrite = false;
      }
    } else if (slot.kind() == bundle::SCALARS) { // the decision
      Logical decided;
      decided.kind = bundle::Value::STEP_SCALARS;
      Content content = contentOf(decided, base);
      content.id = 1;
      writeBytes(region.arena(), base + Block::decidedBegin, base + Block::decidedEnd, content);
    } else if (slot.kind() == bundle::PARAMETER_GRADIENT || slot.kind() == bundle::BOUNDARY_IN_GRADIENT) {
      bool parameter = slot.kind() == bundle::PARAMETER_GRADIENT;
      Contribution contribution{uint32_t(call.unit()), 0, parameter ? call.sample_base() : 0, parameter ? call.sample_base() + call.rows() : 0};
      accumulateBytes(region.arena(), base, end, contentOf(values[s], base), contribution, overwrite, "slot '" + slot.name() + "'");
    } else if (slot.mode() == bundle::UPDATE) {
      Logical next = values[s];
      if (slot.kind() == bundle::STATE || slot.kind() == bundle::OPTIMIZER_STEP_SLOT) {
        ++next.version;
        write(region, next);
      } else {
        scratch(region); // used up
      }
    } else {
      write(region, values[s]);
    }
  }
}

bool Replay::isUpdate(const bundle::Call &call) const { return call.body() == model.summary.update_body_decay() || call.body() == model.summary.update_body_plain(); }

void Replay::transfer() {
  const bundle::Entry &e = entry();
  const Logical &value = slots[nextSlot++];
  switch (e.what_case()) {
  case bundle::Entry::kCopy: {
    if (!require(e.copy().from(), value))
      return;
    write(e.copy().to(), value);
    return;
  }
  case bundle::Entry::kSend: require(e.send().region(), value); return;
  case bundle::Entry::kReceive: write(e.receive().region(), value); return;
  case bundle::Entry::kLoadInput: write(e.load_input().region(), value); return;
  case bundle::Entry::kLoadScalars: writeScalars(e.load_scalars().region()); return;
  case bundle::Entry::kAllGather: {
    const auto &gather = e.all_gather();
    if (gather.shard().bytes())
      require(gather.shard(), shardOf(gather.shards(), value));
    if (gather.full().bytes())
      write(gather.full(), value);
    return;
  }
  case bundle::Entry::kReduceScatter: {
    const auto &reduce = e.reduce_scatter();
    if (reduce.full().bytes()) {
      Logical accumulator = value;
      accumulator.kind = bundle::Value::GRADIENTS;
      require(reduce.full(), accumulator);
    }
    if (reduce.shard().bytes()) {
      Logical sum = shardOf(reduce.shards(), value);
      sum.kind = bundle::Value::REDUCED_GRADIENTS;
      write(reduce.shard(), sum);
    }
    return;
  }
  case bundle::Entry::kAllReduce: {
    const auto &region = e.all_reduce().region();
    if (!requireSums(region, /*global=*/false, true, true))
      return;
    Content sums;
    sums.kind = bundle::Value::GLOBAL_SUM;
    sums.stamp = step;
    sums.delta = -int64_t(region.offset());
    sums.writer = current;
    writeBytes(region.arena(), int64_t(region.offset()), int64_t(region.offset() + region.bytes()), sums);
    return;
  }
  case bundle::Entry::kBroadcast:
    e.broadcast().root() == program.device() ? (void)require(e.broadcast().region(), value) : write(e.broadcast().region(), value);
    return;
  case bundle::Entry::kReport: {
    const auto &region = e.report().region();
    auto &result = device.getResult();
    if (value.kind == bundle::Value::STEP_SCALARS) {
      requireScalars(region, /*decided=*/value.id == 1 && !evaluating);
      if (region.bytes() == uint64_t(Block::bytes)) {
        bundle::Region sums;
        sums.set_arena(region.arena());
        sums.set_offset(region.offset() + Block::scalarsEnd);
        sums.set_bytes(Block::sumsBytes);
        if (requireSums(sums, /*global=*/true, true, true))
          result.reportsLoss = true;
      }
    } else if (value.kind == bundle::Value::GLOBAL_SUM) {
      if (requireSums(region, /*global=*/true, true, true))
        result.reportsLoss = true;
    } else if (value.kind == bundle::Value::SUMS) {
      requireSums(region, /*global=*/false, true, true);
      result.reportsOwnLoss = true;
    } else {
      require(region, value);
    }
    return;
  }
  default: return;
  }
}

/// This device's extent of a group.
Logical Replay::shardOf(const bundle::Extents &extents, const Logical &group) const {
  Logical shard = group;
  for (int i = 0; i < extents.members_size(); ++i)
    if (extents.members(i) == program.device()) {
      shard.begin = extents.begin(i);
      shard.end = extents.end(i);
    }
  shard.bytes = (shard.end - shard.begin) * shard.stride;
  return shard;
}

/// Logical values of every slot and transfer, once for all steps. False after any finding: sizes are then not to be relied on.
bool Replay::prepare() {
  bool good = true;
  auto declared = [&](const bundle::Value &value, uint64_t bytes) {
    Logical logical;
    good = fromDeclared(device, entry(), value, bytes, logical) && good;
    slots.push_back(logical);
  };
  auto shard = [&](const bundle::Extents &extents, const bundle::Region &region, const bundle::Region &full, const Logical &group) {
    Logical own = shardOf(extents, group);
    bool member = std::find(extents.members().begin(), extents.members().end(), program.device()) != extents.members().end();
    int64_t expected = member ? own.bytes : 0;
    if (int64_t(region.bytes()) != expected)
      return fail(Code::Size, "its shard has " + std::to_string(region.bytes()) + " bytes, expects " + std::to_string(expected));
    bool overlaps = region.bytes() && full.bytes() && region.arena() == full.arena() && region.offset() < full.offset() + full.bytes() && full.offset() < region.offset() + region.bytes();
    if (overlaps && region.offset() != full.offset() + uint64_t(own.begin * own.stride))
      return fail(Code::Alias, "its shard lies inside the whole group, but not at its place");
    return true;
  };
  for (current = 0; current < program.entries_size() && !device.full(); ++current) {
    const bundle::Entry &e = entry();
    switch (e.what_case()) {
    case bundle::Entry::kCompute:
      for (const auto &call : e.compute().calls())
        for (int s = 0; s < call.slots_size(); ++s) {
          slots.emplace_back();
          good = fromSlot(device, e, call, s, slots.back()) && good;
        }
      break;
    case bundle::Entry::kCopy: declared(e.copy().value(), e.copy().from().bytes()); break;
    case bundle::Entry::kSend: declared(e.send().value(), e.send().region().bytes()); break;
    case bundle::Entry::kReceive: declared(e.receive().value(), e.receive().region().bytes()); break;
    case bundle::Entry::kLoadInput: {
      const auto &load = e.load_input();
      declared(load.value(), load.region().bytes());
      if (load.value().kind() != bundle::Value::INPUT_ROWS || load.value().id() != load.input() || load.value().begin() != load.sample_base() ||
          load.rows() < 0 || load.rows() > kMaxSize || load.sample_base() > kMaxSize || load.value().end() != load.sample_base() + load.rows())
        good = fail(Code::Declared, "loads samples " + std::to_string(load.sample_base()) + " + " + std::to_string(load.rows()) + " of input " + std::to_string(load.input()));
      break;
    }
    case bundle::Entry::kLoadScalars:
      declared(e.load_scalars().value(), e.load_scalars().region().bytes());
      if (slots.back().kind != bundle::Value::STEP_SCALARS || slots.back().id || slots.back().bytes != Block::bytes)
        good = fail(Code::Declared, "expects the step scalars, " + std::to_string(Block::bytes) + " bytes");
      break;
    case bundle::Entry::kAllGather:
    case bundle::Entry::kReduceScatter: {
      bool gather = e.what_case() == bundle::Entry::kAllGather;
      uint32_t group = gather ? e.all_gather().group() : e.reduce_scatter().group();
      const auto &value = gather ? e.all_gather().value() : e.reduce_scatter().value();
      const auto &full = gather ? e.all_gather().full() : e.reduce_scatter().full();
      const auto &members = gather ? e.all_gather().readers() : e.reduce_scatter().contributors();
      int64_t bytes = model.summary.groups(int(group)).elements() * model.groupElementSize(group);
      declared(value, uint64_t(bytes));
      bool kind = gather ? value.kind() == bundle::Value::PARAMETERS : value.kind() == bundle::Value::REDUCED_GRADIENTS || value.kind() == bundle::Value::GRADIENTS;
      if (!kind || value.id() != group || value.begin() != 0 || value.end() != model.summary.groups(int(group)).elements())
        good = fail(Code::Declared, "declares " + device.describe(value) + ", expects the whole group");
      bool member = std::find(members.begin(), members.end(), program.device()) != members.end();
      if (int64_t(full.bytes()) != (member ? bytes : 0))
        good = fail(Code::Size, "its whole group has " + std::to_string(full.bytes()) + " bytes, expects " + std::to_string(member ? bytes : 0));
      const auto &extents = gather ? e.all_gather().shards() : e.reduce_scatter().shards();
      const auto &region = gather ? e.all_gather().shard() : e.reduce_scatter().shard();
      good = shard(extents, region, full, slots.back()) && good;
      if (gather && region.bytes() && full.bytes() && !(region.arena() == full.arena() && region.offset() >= full.offset() && region.offset() < full.offset() + full.bytes()))
        good = fail(Code::Alias, "an owner that reads must hold its shard inside the whole group");
      break;
    }
    case bundle::Entry::kAllReduce: {
      const auto &reduce = e.all_reduce();
      declared(reduce.from(), reduce.region().bytes());
      if (reduce.from().kind() != bundle::Value::SUMS || reduce.to().kind() != bundle::Value::GLOBAL_SUM || reduce.type() != bundle::F64)
        good = fail(Code::Declared, "expects this device's sums to become those of all, in f64");
      break;
    }
    case bundle::Entry::kBroadcast: declared(e.broadcast().value(), e.broadcast().region().bytes()); break;
    case bundle::Entry::kReport: declared(e.report().value(), e.report().region().bytes()); break;
    default: break;
    }
    // Sums and gradients in the making stay on their device; whatever else crosses is a finished value.
    bool moves = e.has_send() || e.has_receive() || e.has_copy() || e.has_broadcast();
    if (moves && (slots.back().kind == bundle::Value::GRADIENTS || slots.back().kind == bundle::Value::SUMS || slots.back().kind == bundle::Value::STEP_SCALARS ||
                  slots.back().kind == bundle::Value::GLOBAL_SUM || slots.back().kind == bundle::Value::REDUCED_GRADIENTS))
      good = fail(Code::Unsupported, "such a value is not moved by transfers or copies");
  }
  return good;
}

void Replay::checkState(uint32_t version) {
  current = -1;
  for (const auto &state : program.state()) {
    Logical value;
    const auto &declared = state.value();
    value.kind = declared.kind();
    value.id = declared.id();
    value.cut = declared.cut();
    value.begin = declared.begin();
    value.end = declared.end();
    value.version = version;
    value.stride = value.kind == bundle::Value::OPTIMIZER_STEP ? 0 : model.groupElementSize(value.id);
    size_t before = device.getResult().findings.size();
    require(state.region(), value);
    for (size_t f = before; f < device.getResult().findings.size(); ++f)
      device.getResult().findings[f].code = Code::Update;
  }
}

void Replay::run() {
  if (!prepare())
    return;
  current = -1;
  for (const auto &state : program.state()) {
    Logical value;
    const auto &declared = state.value();
    value.kind = declared.kind();
    value.id = declared.id();
    value.cut = declared.cut();
    value.begin = declared.begin();
    value.end = declared.end();
    value.stride = value.kind == bundle::Value::OPTIMIZER_STEP ? 0 : model.groupElementSize(value.id);
    write(state.region(), value);
  }
  for (step = 1; step <= 3 && !device.full(); ++step) {
    evaluating = step == 3;
    nextSlot = 0;
    for (current = 0; current < program.entries_size() && !device.full(); ++current) {
      const bundle::Entry &e = entry();
      bool runs = !evaluating || e.phase() == bundle::LOAD || e.phase() == bundle::GATHER || e.phase() == bundle::FORWARD || e.phase() == bundle::REPORT;
      if (!e.has_compute()) {
        runs ? transfer() : (void)++nextSlot;
      } else {
        for (const auto &c : e.compute().calls())
          runs ? call(c) : (void)(nextSlot += size_t(c.slots_size()));
      }
    }
    if (device.full())
      return;
    checkState(evaluating ? 0 : 1);
    if (!device.getResult().findings.empty())
      return; // what follows in later steps follows from it
  }
}

} // namespace

void verify::replayValues(Device &device) { Replay(device).run(); }
