// Splits PTX text into words.
#pragma once

#include "PtxText.h"

namespace zorse::emulator::ptx {

struct Word {
  enum class Kind { Name, Number, Mark, String, End };
  Kind kind = Kind::End;
  std::string text;
  uint64_t number = 0;
  uint32_t line = 0;
  size_t begin = 0, end = 0; ///< in the text
};

/// Names begin with a letter or one of . % $ _ and may contain dots, so an opcode with its
/// modifiers is one word. Skips comments. Throws Unreadable.
std::vector<Word> wordsOf(const std::string &text);

} // namespace zorse::emulator::ptx
