#include "Lexer.h"

#include <cctype>

using namespace zorse::emulator::ptx;

namespace {

bool beginsName(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '.' || c == '%' || c == '$' ||
         c == '_';
}
bool isInName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '$' || c == '_';
}

class Lexer {
public:
  explicit Lexer(const std::string &text) : text(text) {}

  std::vector<Word> run() {
    std::vector<Word> words;
    for (skipBlanks(); at < text.size(); skipBlanks()) {
      Word word;
      word.line = line;
      word.begin = at;
      const char c = text[at];
      if (beginsName(c))
        name(word);
      else if (std::isdigit(static_cast<unsigned char>(c)))
        number(word);
      else if (c == '"')
        string(word);
      else {
        word.kind = Word::Kind::Mark;
        ++at;
      }
      word.end = at;
      word.text = text.substr(word.begin, at - word.begin);
      words.push_back(word);
    }
    Word end;
    end.line = line;
    end.begin = end.end = text.size();
    words.push_back(end);
    return words;
  }

private:
  const std::string &text;
  size_t at = 0;
  uint32_t line = 1;

  void skipBlanks() {
    for (; at < text.size(); ++at) {
      if (text[at] == '\n')
        ++line;
      else if (text.compare(at, 2, "//") == 0)
        at = text.find('\n', at) - 1;
      else if (!std::isspace(static_cast<unsigned char>(text[at])))
        return;
      if (at == std::string::npos - 1) {
        at = text.size();
        return;
      }
    }
  }

  void name(Word &word) {
    word.kind = Word::Kind::Name;
    for (++at; at < text.size() && isInName(text[at]); ++at)
      ;
  }

  void string(Word &word) {
    word.kind = Word::Kind::String;
    at = text.find('"', at + 1);
    if (at == std::string::npos)
      throw Unreadable(line, "a string has no end");
    ++at;
  }

  /// Decimal, 0x hexadecimal, 0f and 0d for the bits of an f32 and an f64; an optional suffix U.
  void number(Word &word) {
    word.kind = Word::Kind::Number;
    const size_t begin = at;
    for (; at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])); ++at)
      ;
    std::string digits = text.substr(begin, at - begin);
    const bool isBits = digits.size() > 2 && digits[0] == '0' &&
                        std::string("fFdD").find(digits[1]) != std::string::npos;
    const bool isHex = digits.size() > 2 && digits[0] == '0' &&
                       (digits[1] == 'x' || digits[1] == 'X');
    if (isBits && digits.size() != (std::tolower(digits[1]) == 'f' ? 10u : 18u))
      throw Unreadable(line, "number '" + digits + "'");
    if (!isBits && digits.back() == 'U')
      digits.pop_back();
    size_t used = 0;
    const std::string plain = isBits || isHex ? digits.substr(2) : digits;
    try {
      word.number = std::stoull(plain, &used,
                                isBits || isHex                         ? 16
                                : digits[0] == '0' && digits.size() > 1 ? 8
                                                                        : 10);
    } catch (const std::exception &) {
      used = 0;
    }
    if (used == 0 || used != plain.size())
      throw Unreadable(line, "number '" + text.substr(begin, at - begin) + "'");
  }
};

} // namespace

std::vector<Word> zorse::emulator::ptx::wordsOf(const std::string &text) {
  return Lexer(text).run();
}
