#include "PtxText.h"

#include "Lexer.h"

#include <algorithm>
#include <set>
#include <utility>

using namespace zorse::emulator::ptx;

namespace {

/// Number of bits of a type such as ".b32"; 0: not a type.
uint32_t bitsOf(const std::string &type) {
  if (type == ".pred")
    return 1;
  static const std::set<std::string> letters = {"b", "u", "s", "f"};
  if (type.size() < 3 || type[0] != '.' || !letters.count(type.substr(1, 1)))
    return 0;
  const std::string size = type.substr(2);
  return size == "8" ? 8 : size == "16" ? 16 : size == "32" ? 32 : size == "64" ? 64 : 0;
}

class Parser {
public:
  explicit Parser(const std::string &text) : text(text), words(wordsOf(text)) {}

  ModuleText run() {
    while (word().kind != Word::Kind::End)
      directive();
    if (module.version.empty() || module.target.empty())
      fail("no .version or no .target");
    return std::move(module);
  }

private:
  const std::string &text;
  std::vector<Word> words;
  size_t at = 0;
  ModuleText module;
  KernelText *kernel = nullptr;
  std::vector<std::map<std::string, std::string>> scopes; ///< names that braces inside a body
                                                          ///< declare
  uint32_t scopeCount = 0;
  uint64_t usedBytes = 0; ///< mask of the next load

  const Word &word(size_t ahead = 0) const { return words[std::min(at + ahead, words.size() - 1)]; }
  [[noreturn]] void fail(const std::string &what) const { throw Unreadable(word().line, what); }
  [[noreturn]] void unknown() const { fail("'" + word().text + "' is not known here"); }
  bool is(const char *mark) const { return word().text == mark; }
  bool take(const char *mark) {
    if (!is(mark))
      return false;
    ++at;
    return true;
  }
  void expect(const char *mark) {
    if (!take(mark))
      fail(std::string("expected '") + mark + "', found '" + word().text + "'");
  }
  std::string name() {
    if (word().kind != Word::Kind::Name)
      fail("expected a name, found '" + word().text + "'");
    return words[at++].text;
  }
  uint64_t number() {
    const bool minus = take("-");
    if (word().kind != Word::Kind::Number)
      fail("expected a number, found '" + word().text + "'");
    const uint64_t value = words[at++].number;
    return minus ? 0 - value : value;
  }
  uint32_t type() {
    const uint32_t bits = bitsOf(word().text);
    if (!bits)
      unknown();
    ++at;
    return bits;
  }

  // ---- Module scope.

  void directive() {
    if (take(".version")) {
      // "7.8" is read as two words, because names may begin with a dot.
      module.version = words[at++].text;
      if (word().kind == Word::Kind::Name && word().text[0] == '.' &&
          word().begin == words[at - 1].end)
        module.version += words[at++].text;
    } else if (take(".target")) {
      module.target = name();
      if (take(","))
        fail("target option '" + word().text + "'");
    } else if (take(".address_size")) {
      if (number() != 64)
        fail("addresses of other than 64 bits");
    } else {
      const bool isExternal = take(".extern");
      if (!isExternal)
        take(".visible");
      if (take(".entry"))
        return entry();
      module.variables.push_back(variable(isExternal));
    }
  }

  Variable variable(bool isExternal) {
    Variable v;
    v.isExternal = isExternal;
    if (!is(".global") && !is(".const") && !is(".shared"))
      unknown();
    v.space = words[at++].text.substr(1);
    if (take(".align"))
      v.alignment = number();
    const uint64_t element = type() / 8;
    v.alignment = std::max(v.alignment, element);
    v.name = name();
    v.bytes = element;
    if (take("[")) {
      v.bytes = is("]") ? 0 : element * number();
      expect("]");
      if (v.bytes == 0 && !isExternal)
        fail("variable without a size");
    }
    if (take("=")) {
      if (v.space == "shared")
        fail("shared memory with an initializer");
      initialize(v, element);
    }
    expect(";");
    return v;
  }

  void initialize(Variable &v, uint64_t element) {
    v.initial.assign(v.bytes, 0);
    size_t to = 0;
    auto one = [&] {
      const uint64_t value = number();
      for (uint64_t i = 0; i < element; ++i, ++to)
        if (to < v.bytes)
          v.initial[to] = uint8_t(value >> 8 * i);
        else
          fail("initializer is longer than its variable");
    };
    if (!take("{"))
      return one();
    do
      one();
    while (take(","));
    expect("}");
  }

  void entry() {
    kernel = &module.kernels.emplace_back();
    kernel->name = name();
    if (take("(")) {
      while (!take(")")) {
        parameter();
        take(",");
      }
    }
    for (; !is("{");) {
      if (take(".reqntid")) {
        kernel->threads = uint32_t(number());
        while (take(","))
          if (number() != 1)
            fail("blocks of several dimensions");
      } else if (take(".minnctapersm") || take(".maxntid") || take(".maxnreg")) {
        number(); // limits for the assembler's register allocation
      } else {
        unknown();
      }
    }
    expect("{");
    body();
    kernel = nullptr;
  }

  void parameter() {
    expect(".param");
    Parameter p;
    p.bytes = type() / 8;
    if (take(".ptr")) {
      if (!take(".global"))
        unknown();
      if (take(".align"))
        number(); // an alignment guaranteed by the caller
    }
    p.name = name();
    if (is("["))
      fail("parameter that is an array");
    kernel->parameters.push_back(p);
  }

  // ---- Kernel bodies.

  void body() {
    for (;;) {
      if (take("}")) {
        if (scopes.empty())
          return;
        scopes.pop_back();
      } else if (take("{")) {
        scopes.emplace_back();
      } else if (take(".reg")) {
        registers();
      } else if (is(".shared")) {
        kernel->variables.push_back(variable(false));
      } else if (take(".pragma")) {
        pragma();
      } else if (word().kind == Word::Kind::Name && word(1).text == ":") {
        if (!kernel->labels.emplace(word().text, uint32_t(kernel->statements.size())).second)
          fail("label " + word().text + " is defined twice");
        at += 2;
      } else {
        statement();
      }
    }
  }

  void pragma() {
    const std::string mask = "\"used_bytes_mask 0x", text = word().text;
    if (text.rfind(mask, 0) == 0 && text.size() < mask.size() + 18 &&
        text.find_first_not_of("0123456789abcdef", mask.size()) == text.size() - 1)
      usedBytes = std::stoull(text.substr(mask.size()), nullptr, 16);
    else if (text != "\"nounroll\"")
      unknown();
    ++at;
    expect(";");
  }

  void declare(const std::string &name, uint32_t bits) {
    const auto index = uint32_t(kernel->widths.size());
    if (!kernel->registers.emplace(name, Register{index, uint8_t(bits)}).second)
      fail("register " + name + " is declared twice");
    kernel->widths.push_back(uint8_t(bits));
  }

  void registers() {
    const uint32_t bits = type();
    do {
      const std::string base = name();
      if (take("<")) {
        const uint64_t count = number();
        expect(">");
        for (uint64_t i = 0; i < count; ++i)
          declare(base + std::to_string(i), bits);
        continue;
      }
      std::string unique = base;
      if (!scopes.empty()) {
        unique += "#" + std::to_string(scopeCount++);
        scopes.back()[base] = unique;
      }
      declare(unique, bits);
    } while (take(","));
    expect(";");
  }

  std::string resolve(const std::string &name) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
      if (auto found = scope->find(name); found != scope->end())
        return found->second;
    return name;
  }

  void statement() {
    Statement s;
    s.line = word().line;
    s.usedBytes = std::exchange(usedBytes, 0);
    const size_t begin = word().begin;
    if (take("@")) {
      s.isNegated = take("!");
      s.guard = name();
      if (!kernel->registers.count(s.guard))
        fail("guard " + s.guard + " is not declared");
    }
    s.opcode = name();
    if (s.opcode[0] == '.' || s.opcode[0] == '%')
      fail("'" + s.opcode + "' is not known here");
    if (!is(";"))
      do
        s.operands.push_back(operand());
      while (take(","));
    s.text = text.substr(begin, word().begin - begin);
    for (char &c : s.text)
      c = c == '\n' || c == '\t' ? ' ' : c;
    expect(";");
    kernel->statements.push_back(std::move(s));
  }

  Operand operand() {
    Operand o;
    if (take("{")) {
      o.kind = Operand::Kind::Vector;
      do
        o.elements.push_back(operand());
      while (take(","));
      expect("}");
    } else if (take("[")) {
      o.kind = Operand::Kind::Address;
      if (word().kind == Word::Kind::Name)
        o.name = resolve(name());
      else
        o.number = number();
      if (take("+"))
        o.number += number();
      expect("]");
    } else if (word().kind == Word::Kind::Number || is("-")) {
      o.kind = Operand::Kind::Number;
      o.number = number();
    } else {
      o.name = resolve(name());
      o.kind = o.name == "_"                     ? Operand::Kind::Sink
               : kernel->registers.count(o.name) ? Operand::Kind::Register
                                                 : Operand::Kind::Symbol;
    }
    return o;
  }
};

} // namespace

ModuleText zorse::emulator::ptx::parse(const std::string &text) { return Parser(text).run(); }
