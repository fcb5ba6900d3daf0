// Finds and changes entries of programs, and expects findings.
#pragma once

#include "EditedSlot.h"
#include "VerifyTestSupport.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace zorse::test {

/// Expects a finding with this code and a text that contains all words.
inline void expectFinding(const Case &test, verify::Code code, std::initializer_list<const char *> words = {}) {
  std::string all;
  for (const auto &finding : test.findings()) {
    std::string text = verify::toString(finding, test.view);
    bool fits = finding.code == code;
    for (const char *word : words)
      fits = fits && text.find(word) != std::string::npos;
    if (fits)
      return;
    all += text + "\n";
  }
  ADD_FAILURE() << "expects a finding [" << verify::name(code) << "]" << (words.size() ? std::string(" with '") + *words.begin() + "'" : "")
                << ", found:\n"
                << all;
}

template <typename Wanted> bundle::Entry &find(Case &test, int program, Wanted wanted, int nth = 0) {
  for (auto &entry : *test.programs[program].mutable_entries())
    if (wanted(entry) && nth-- == 0)
      return entry;
  ADD_FAILURE() << "no such entry";
  return *test.programs[program].mutable_entries(0);
}
inline auto task(bundle::Compute::Task t) {
  return [t](const bundle::Entry &e) { return e.has_compute() && e.compute().task() == t; };
}
inline bool isSend(const bundle::Entry &e) { return e.has_send(); }
inline bool isReceive(const bundle::Entry &e) { return e.has_receive(); }
inline bool isReduction(const bundle::Entry &e) { return e.has_reduce_scatter(); }

/// A slot of an entry of the first program.
inline EditedSlot slot(Case &test, bundle::Entry &entry, bundle::SlotKind kind, int call = 0, uint32_t index = 0) {
  auto &c = *entry.mutable_compute()->mutable_calls(call);
  const auto &body = test.model.bodies.bodies(int(c.body()));
  for (int s = 0; s < body.slots_size(); ++s)
    if (body.slots(s).kind() == kind && body.slots(s).index() == index)
      return {test.programs[0], c, s};
  ADD_FAILURE() << "no such slot";
  return {test.programs[0], c, 0};
}

inline void erase(bundle::Program &program, const bundle::Entry &entry) {
  for (int e = 0; e < program.entries_size(); ++e)
    if (program.entries(e).id() == entry.id()) {
      // Its waiters now wait for the previous entry of its queue.
      uint32_t queue = entry.queue(), position = 0;
      for (int before = 0; before < e; ++before)
        position += program.entries(before).queue() == queue;
      program.mutable_entries()->DeleteSubrange(e, 1);
      for (auto &other : *program.mutable_entries())
        for (auto &wait : *other.mutable_waits())
          if (wait.queue() == queue && wait.position() >= position && wait.position() > 0)
            wait.set_position(wait.position() - 1);
      return;
    }
}

} // namespace zorse::test
