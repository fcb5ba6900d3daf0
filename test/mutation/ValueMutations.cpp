// Rows: which samples. Values: which tensor, and how it is added to. Tasks: work left out or done twice.
#include "Edit.h"
#include "Mutations.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::test;

namespace {

bundle::Call &randomCall(Programs &p, Place place, Random &r) {
  auto &compute = *entryAt(p, place).mutable_compute();
  return *compute.mutable_calls(int(r() % uint32_t(compute.calls_size())));
}

void addRows(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"rows", name, std::move(apply)}); };
  add("wrong samples in one call", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isUnitTask);
    if (!place)
      return false;
    auto &call = randomCall(p, place, r);
    const int64_t base = int64_t(r() % uint64_t(o.plan.batch));
    w = at(p, place);
    if (base == call.sample_base())
      return false;
    call.set_sample_base(base);
    return true;
  });
  add("wrong micro-batch", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // all calls of a task
    Place place = pickEntry(p, r, isUnitTask);
    if (!place)
      return false;
    const int64_t base = int64_t(r() % uint64_t(o.plan.batch));
    w = at(p, place);
    if (base == entryAt(p, place).compute().calls(0).sample_base())
      return false;
    for (auto &call : *entryAt(p, place).mutable_compute()->mutable_calls())
      call.set_sample_base(base);
    return true;
  });
  add("a row more or less over the same buffers", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isUnitTask);
    if (!place)
      return false;
    auto &call = randomCall(p, place, r);
    call.set_rows(call.rows() > 1 && r() % 2 ? call.rows() - 1 : call.rows() + 1);
    w = at(p, place);
    return true;
  });
  add("a row less, buffers and values with it", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return isUnitTask(e) && e.compute().calls(0).rows() > 1; });
    if (!place)
      return false;
    w = at(p, place);
    const bool all = r() % 2;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    const int only = int(r() % uint32_t(calls->size()));
    for (int c = 0; c < calls->size(); ++c) {
      if (!all && c != only)
        continue;
      auto &call = *calls->Mutable(c);
      const auto &body = o.model.bodies.bodies(int(call.body()));
      call.set_rows(call.rows() - 1);
      for (int s = 0; s < call.slots_size(); ++s)
        if (uint64_t row = uint64_t(body.slots(s).bytes().per_row())) {
          auto &slot = *call.mutable_slots(s);
          slot.mutable_region()->set_bytes(slot.region().bytes() - row);
          if (slot.value().end() > slot.value().begin())
            slot.mutable_value()->set_end(slot.value().end() - 1);
        }
    }
    return true;
  });
  add("tasks of two cells exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) { // the cells they name, and with it nothing else
    Place a = pickEntry(p, r, isUnitTask);
    if (!a)
      return false;
    const auto task = entryAt(p, a).compute().task();
    Place b = pickOther(p, r, a, [&](const Entry &e) { return isTask(e, task); });
    if (!b)
      return false;
    w = at(p, a) + " and " + at(p, b);
    auto &x = *entryAt(p, a).mutable_compute(), &y = *entryAt(p, b).mutable_compute();
    const int cell = x.cell();
    x.set_cell(y.cell());
    y.set_cell(cell);
    return true;
  });
  add("micro-batches of two tasks exchanged", [](Programs &p, const RealCase &, Random &r, std::string &w) { // rows and samples, buffers stay
    Place a = pickEntry(p, r, isUnitTask);
    if (!a)
      return false;
    const auto &first = entryAt(p, a).compute();
    Place b = pickOther(p, r, a, [&](const Entry &e) {
      return isTask(e, first.task()) && e.compute().calls(0).unit() == first.calls(0).unit() &&
             e.compute().calls(0).rows() == first.calls(0).rows() && e.compute().calls_size() == first.calls_size();
    });
    if (!b)
      return false;
    w = at(p, a) + " and " + at(p, b);
    for (int c = 0; c < first.calls_size(); ++c) {
      auto &x = *entryAt(p, a).mutable_compute()->mutable_calls(c), &y = *entryAt(p, b).mutable_compute()->mutable_calls(c);
      const int64_t base = x.sample_base();
      x.set_sample_base(y.sample_base());
      y.set_sample_base(base);
    }
    return true;
  });
  add("wrong samples loaded", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_input(); });
    if (!place)
      return false;
    auto &load = *entryAt(p, place).mutable_load_input();
    int64_t base = int64_t(r() % uint64_t(o.plan.batch));
    if (base == load.sample_base() || base + load.rows() > o.plan.batch)
      return false;
    load.set_sample_base(base);
    if (r() % 2) {
      load.mutable_value()->set_begin(base);
      load.mutable_value()->set_end(base + load.rows());
    }
    w = at(p, place);
    return true;
  });
  add("other rows sent or copied", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // declared alike at both ends
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() || e.has_copy(); });
    if (!place)
      return false;
    const auto value = entryAt(p, place).has_send() ? entryAt(p, place).send().value() : entryAt(p, place).copy().value();
    const int64_t by = r() % 2 ? 1 : -1;
    if (value.begin() + by < 0 || value.end() + by > o.plan.batch)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) {
      auto *v = e.has_send()      ? e.mutable_send()->mutable_value()
                : e.has_receive() ? e.mutable_receive()->mutable_value()
                                  : e.mutable_copy()->mutable_value();
      v->set_begin(v->begin() + by);
      v->set_end(v->end() + by);
    });
    return true;
  });
}

void addValues(MutationList &list) {
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"values", name, std::move(apply)}); };
  add("wrong input loaded", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_load_input(); });
    if (!place)
      return false;
    auto &load = *entryAt(p, place).mutable_load_input();
    load.set_input((load.input() + 1) % uint32_t(o.model.summary.inputs_size()));
    load.mutable_value()->set_id(load.input());
    w = at(p, place);
    return true;
  });
  add("another value sent or copied", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // declared alike at both ends
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() || e.has_copy(); });
    if (!place)
      return false;
    const uint32_t old = entryAt(p, place).has_send() ? entryAt(p, place).send().value().id() : entryAt(p, place).copy().value().id();
    const uint32_t fresh = uint32_t(r() % uint32_t(o.model.summary.values_size()));
    if (fresh == old)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) {
      (e.has_send()      ? e.mutable_send()->mutable_value()
       : e.has_receive() ? e.mutable_receive()->mutable_value()
                         : e.mutable_copy()->mutable_value())
          ->set_id(fresh);
    });
    return true;
  });
  add("gradient of other units sent or copied", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    auto gradient = [](const bundle::Value &v) { return v.kind() == bundle::Value::ACTIVATION_GRADIENT; };
    Place place =
        pickEntry(p, r, [&](const Entry &e) { return (e.has_send() && gradient(e.send().value())) || (e.has_copy() && gradient(e.copy().value())); });
    if (!place)
      return false;
    w = at(p, place);
    const uint32_t by = r() % 2 ? 1 : ~0u;
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) {
      auto *v = e.has_send()      ? e.mutable_send()->mutable_value()
                : e.has_receive() ? e.mutable_receive()->mutable_value()
                                  : e.mutable_copy()->mutable_value();
      v->set_cut(v->cut() + by);
    });
    return true;
  });
  add("another kind declared", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_send() || e.has_copy(); });
    if (!place)
      return false;
    w = at(p, place);
    forHalves(p, entryAt(p, place).id(), [&](bundle::Program &, Entry &e) {
      auto *v = e.has_send()      ? e.mutable_send()->mutable_value()
                : e.has_receive() ? e.mutable_receive()->mutable_value()
                                  : e.mutable_copy()->mutable_value();
      v->set_kind(v->kind() == bundle::Value::ACTIVATION ? bundle::Value::ACTIVATION_GRADIENT : bundle::Value::ACTIVATION);
    });
    return true;
  });
  const std::pair<const char *, std::vector<bundle::SlotKind>> swapped[] = {
      {"saved blocks of two tasks exchanged", {bundle::SAVED}},
      {"activations of two tasks exchanged", {bundle::BOUNDARY_IN, bundle::BOUNDARY_OUT, bundle::INPUT, bundle::LOSS}},
      {"gradients of two tasks exchanged", {bundle::BOUNDARY_IN_GRADIENT, bundle::BOUNDARY_OUT_GRADIENT, bundle::PARAMETER_GRADIENT}},
      {"parameters of two tasks exchanged", {bundle::PARAMETER}},
  };
  for (const auto &[name, kinds] : swapped)
    add(name, [kinds = kinds](Programs &p, const RealCase &o, Random &r, std::string &w) {
      auto wanted = [&](const Entry &, const bundle::Call &, const bundle::Slot &s) {
        return std::find(kinds.begin(), kinds.end(), s.kind()) != kinds.end();
      };
      for (int attempt = 0; attempt < 40; ++attempt) {
        SlotPlace a = pickSlot(p, o.model.bodies, r, wanted);
        if (!a)
          return false;
        SlotPlace b = pickSlot(p, o.model.bodies, r, wanted, a.place.program);
        auto *x = slotAt(p, a).mutable_region(), *y = slotAt(p, b).mutable_region();
        if (x->bytes() != y->bytes() || x->offset() == y->offset())
          continue;
        x->Swap(y);
        w = at(p, a.place) + " and " + at(p, b.place);
        return true;
      }
      return false;
    });
  add("overwrite and accumulate exchanged", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    SlotPlace s = pickSlot(p, o.model.bodies, r,
                           [](const Entry &, const bundle::Call &, const bundle::Slot &slot) { return slot.mode() == bundle::ACCUMULATE; });
    if (!s)
      return false;
    slotAt(p, s).set_overwrite(!slotAt(p, s).overwrite());
    w = at(p, s.place);
    return true;
  });
  add("contribution elsewhere", [](Programs &p, const RealCase &o, Random &r, std::string &w) { // its target becomes scratch
    SlotPlace s = pickSlot(p, o.model.bodies, r, [](const Entry &, const bundle::Call &, const bundle::Slot &slot) {
      return slot.kind() == bundle::PARAMETER_GRADIENT || slot.kind() == bundle::BOUNDARY_IN_GRADIENT || slot.kind() == bundle::SUMS_SLOT;
    });
    if (!s)
      return false;
    auto &region = *slotAt(p, s).mutable_region();
    region.set_offset(freshBytes(p[size_t(s.place.program)], region.arena(), region.bytes()));
    w = at(p, s.place);
    return true;
  });
  add("wrong body", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute(); });
    if (!place)
      return false;
    auto &call = randomCall(p, place, r);
    std::vector<uint32_t> fitting;
    for (int b = 0; b < o.model.bodies.bodies_size(); ++b)
      if (uint32_t(b) != call.body() && o.model.bodies.bodies(b).slots_size() == call.slots_size())
        fitting.push_back(uint32_t(b));
    if (fitting.empty())
      return false;
    call.set_body(fitting[r() % fitting.size()]);
    w = at(p, place);
    return true;
  });
  add("wrong unit", [](Programs &p, const RealCase &o, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isUnitTask);
    if (!place)
      return false;
    auto &call = randomCall(p, place, r);
    call.set_unit((call.unit() + 1) % o.model.summary.units_size());
    w = at(p, place);
    return true;
  });
  add("wrong random instances", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, isUnitTask);
    if (!place)
      return false;
    auto &call = randomCall(p, place, r);
    call.set_instance_base(call.instance_base() + 1 + r() % 3);
    w = at(p, place);
    return true;
  });
}

void addTasks(MutationList &list) {
  using Wanted = std::function<bool(const Entry &)>;
  auto add = [&](const char *name, decltype(Mutation::apply) apply) { list.push_back({"tasks", name, std::move(apply)}); };
  auto dropping = [&](const char *name, Wanted wanted) {
    add(name, [wanted](Programs &p, const RealCase &, Random &r, std::string &w) { return dropEntry(p, r, w, wanted); });
  };
  auto doubling = [&](const char *name, Wanted wanted) {
    add(name, [wanted](Programs &p, const RealCase &, Random &r, std::string &w) { return doubleEntry(p, r, w, wanted); });
  };
  auto isCommit = [](const Entry &e) { return isTask(e, Compute::NORM) || isTask(e, Compute::DECIDE) || isTask(e, Compute::SUM_LOSS); };
  auto isReport = [](const Entry &e) { return e.has_report(); };
  dropping("forward dropped", [](const Entry &e) { return isTask(e, Compute::F); });
  dropping("backward dropped", [](const Entry &e) { return isTask(e, Compute::B); });
  dropping("norm, decision or loss sum dropped", isCommit);
  dropping("report dropped", isReport);
  doubling("forward doubled", [](const Entry &e) { return isTask(e, Compute::F); });
  doubling("backward doubled", [](const Entry &e) { return isTask(e, Compute::B); });
  doubling("norm, decision or loss sum doubled", isCommit);
  doubling("report doubled", isReport);
  doubling("load doubled", [](const Entry &e) { return e.has_load_input() || e.has_load_scalars(); });
  add("report on another device", [](Programs &p, const RealCase &, Random &r, std::string &w) { // besides the one there is
    Place load = pickEntry(p, r, [](const Entry &e) { return e.has_load_scalars(); });
    Place report = pickEntry(p, r, [](const Entry &e) { return e.has_report(); });
    if (!load || !report || load.program == report.program)
      return false;
    auto &program = p[size_t(load.program)];
    Entry copy = entryAt(p, report);
    uint32_t last = 0;
    for (const auto &other : p)
      for (const auto &entry : other.entries())
        last = std::max(last, entry.id());
    copy.set_id(last + 1);
    copy.set_queue(entryAt(p, load).queue());
    copy.clear_waits();
    *copy.mutable_report()->mutable_region() = entryAt(p, load).load_scalars().region();
    for (int q = 0; q < program.queues_size(); ++q) { // behind everything
      uint32_t length = 0;
      for (const auto &entry : program.entries())
        length += entry.queue() == uint32_t(q);
      if (length && uint32_t(q) != copy.queue()) {
        auto *wait = copy.add_waits();
        wait->set_queue(uint32_t(q));
        wait->set_position(length - 1);
      }
    }
    const bool moved = r() % 2;
    w = "device " + std::to_string(program.device());
    *program.add_entries() = copy;
    if (moved)
      eraseEntry(p[size_t(report.program)], report.entry);
    return true;
  });
  add("call dropped", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute() && e.compute().calls_size() > 1; });
    if (!place)
      return false;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    calls->DeleteSubrange(int(r() % uint32_t(calls->size())), 1);
    w = at(p, place);
    return true;
  });
  add("call doubled", [](Programs &p, const RealCase &, Random &r, std::string &w) {
    Place place = pickEntry(p, r, [](const Entry &e) { return e.has_compute(); });
    if (!place)
      return false;
    auto *calls = entryAt(p, place).mutable_compute()->mutable_calls();
    bundle::Call copy = calls->Get(int(r() % uint32_t(calls->size())));
    *calls->Add() = copy;
    w = at(p, place);
    return true;
  });
  add("task on another device", [](Programs &p, const RealCase &, Random &r, std::string &w) { // the entry moves; its buffers do not
    Place place = pickEntry(p, r, isUnitTask);
    if (!place || p.size() < 2)
      return false;
    size_t target = r() % p.size();
    if (int(target) == place.program || p[target].queues_size() == 0)
      return false;
    Entry copy = entryAt(p, place);
    w = at(p, place) + " to " + std::to_string(p[target].device());
    eraseEntry(p[size_t(place.program)], place.entry);
    copy.clear_waits();
    copy.set_queue(copy.queue() % uint32_t(p[target].queues_size()));
    int index = 0;
    while (index < p[target].entries_size() && p[target].entries(index).id() < copy.id())
      ++index;
    insertEntry(p[target], index, copy);
    return true;
  });
}

} // namespace

void test::addValueMutations(MutationList &list) {
  addRows(list);
  addValues(list);
  addTasks(list);
}
