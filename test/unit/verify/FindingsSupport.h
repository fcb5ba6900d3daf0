// Finds and changes instructions of programs, and expects findings.
#pragma once

#include "EditedArgument.h"
#include "VerifyTestSupport.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace zorse::test {

/// Expects a finding with this code and a text that contains all words.
inline void expectFinding(const Case &test, verify::Code code,
                          std::initializer_list<const char *> words = {}) {
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
  ADD_FAILURE() << "expects a finding [" << verify::name(code) << "]"
                << (words.size() ? std::string(" with '") + *words.begin() + "'" : "")
                << ", found:\n"
                << all;
}

template <typename Wanted>
bundle::Instruction &find(Case &test, int program, Wanted wanted, int nth = 0) {
  for (auto &instruction : *test.programs[program].mutable_instructions())
    if (wanted(instruction) && nth-- == 0)
      return instruction;
  ADD_FAILURE() << "no such instruction";
  return *test.programs[program].mutable_instructions(0);
}
inline auto task(bundle::Compute::Task t) {
  return [t](const bundle::Instruction &e) { return e.has_compute() && e.compute().task() == t; };
}
inline bool isSend(const bundle::Instruction &e) { return e.has_send(); }
inline bool isReceive(const bundle::Instruction &e) { return e.has_receive(); }
inline bool isReduction(const bundle::Instruction &e) { return e.has_reduce_scatter(); }

/// An argument of an instruction of the first program.
inline EditedArgument argument(Case &test, bundle::Instruction &instruction,
                               bundle::ArgumentKind kind, int call = 0, uint32_t index = 0) {
  auto &c = *instruction.mutable_compute()->mutable_calls(call);
  const auto &function = test.model.functions.functions(int(c.function()));
  for (int s = 0; s < function.arguments_size(); ++s)
    if (function.arguments(s).kind() == kind && function.arguments(s).index() == index)
      return {test.programs[0], c, s};
  ADD_FAILURE() << "no such argument";
  return {test.programs[0], c, 0};
}

inline void erase(bundle::Program &program, const bundle::Instruction &instruction) {
  for (int e = 0; e < program.instructions_size(); ++e)
    if (program.instructions(e).id() == instruction.id()) {
      // Its waiters now wait for the previous instruction of its queue.
      uint32_t queue = instruction.queue(), position = 0;
      for (int before = 0; before < e; ++before)
        position += program.instructions(before).queue() == queue;
      program.mutable_instructions()->DeleteSubrange(e, 1);
      for (auto &other : *program.mutable_instructions())
        for (auto &wait : *other.mutable_waits())
          if (wait.queue() == queue && wait.position() >= position && wait.position() > 0)
            wait.set_position(wait.position() - 1);
      return;
    }
}

} // namespace zorse::test
