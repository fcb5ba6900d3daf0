#include "PtxFile.h"

#include "zorse/runtime/abi/CudaAbi.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace zorse::inspect {

namespace {

/// Maximum bytes of a list of needs; more operands than a launch can have.
constexpr int64_t kMaxBounds = 1 << 16;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t\r;") - first + 1);
}

/// Removes and returns the text before `end`.
std::string_view take(std::string_view &text, char end) {
  const size_t at = text.find(end);
  std::string_view part = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return part;
}

bool numberIn(std::string_view text, int64_t &number) {
  text = trimmed(text);
  return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc();
}

std::vector<std::string_view> parts(std::string_view text, char between) {
  std::vector<std::string_view> all;
  while (!text.empty())
    all.push_back(take(text, between));
  return all;
}

/// Returns the register names ("%rd1", ...) in order.
std::vector<std::string_view> registersIn(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%', at + 1)) {
    const size_t end = text.find_first_of(" ,;]}|+", at);
    all.push_back(text.substr(at, end == std::string_view::npos ? end : end - at));
  }
  return all;
}

/// Parses `.visible .global .align 8 .b8 NAME_needs[152] = {4, 0, ...};`: the bytes of 64-bit
/// numbers, without trailing zeros.
void readBounds(std::string_view line, std::map<std::string, PtxKernel> &kernels) {
  constexpr std::string_view suffix = "_needs[";
  const size_t end = line.find(suffix), list = line.find('{');
  int64_t size = 0;
  if (end == std::string_view::npos || list == std::string_view::npos ||
      line.find(".b8 ") == std::string_view::npos ||
      !numberIn(line.substr(end + suffix.size()), size) || size < 0 || size > kMaxBounds)
    return;
  std::vector<uint64_t> numbers(size_t(size) / 8);
  size_t byte = 0;
  for (std::string_view part : parts(line.substr(list + 1, line.find('}') - list - 1), ',')) {
    int64_t value = 0;
    if (byte / 8 >= numbers.size() || !numberIn(part, value))
      return;
    numbers[byte / 8] |= (uint64_t(value) & 255) << 8 * (byte % 8);
    ++byte;
  }
  if (numbers.size() < 3 || numbers[0] != (numbers.size() - 3) / 4)
    return;
  const size_t begin = line.rfind(' ', end) + 1;
  std::vector<PtxKernel::Operand> &operands =
      kernels[std::string(line.substr(begin, end - begin))].operands;
  for (size_t i = 3; i + 3 < numbers.size(); i += 4)
    operands.push_back({int64_t(numbers[i]), int64_t(numbers[i + 1]), int64_t(numbers[i + 2])});
}

/// Instructions of one kernel.
class Body {
public:
  explicit Body(PtxKernel &kernel) : kernel(kernel) {}

  void line(std::string_view text) {
    text = trimmed(text);
    if (text.size() > 1 && text[0] == '$' && text.back() == ':')
      labels.insert(text.substr(0, text.size() - 1));
    if (text.empty() || text[0] == '.' || text[0] == '$' || text[0] == '/' || text[0] == '{' ||
        text[0] == '}')
      return;
    if (text[0] == '@') {
      take(text, ' ');
      text = trimmed(text);
    }
    std::string_view rest = text, mnemonic = take(rest, ' ');
    if (const size_t tab = mnemonic.find('\t'); tab != std::string_view::npos) {
      rest = text.substr(tab + 1);
      mnemonic = mnemonic.substr(0, tab);
    }
    std::vector<std::string_view> words = parts(mnemonic, '.');
    if (words.empty())
      return;
    auto has = [&](std::string_view word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (words[0] == "bra" && labels.count(trimmed(rest)))
      loops = true;
    else if ((words[0] == "ld" || words[0] == "st") && has("global"))
      access(words, rest);
    else if (words[0] == "cp" && has("async") && has("global"))
      copy(rest);
    else if (words[0] == "ld" && has("param"))
      parameter(rest);
    else
      compute(words, rest);
  }

  void finish() {
    // Addresses in loops depend on registers that are written later in the text.
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto &[to, from] : moves) {
        uint64_t &known = origins[to];
        const uint64_t found = known | origins[from];
        changed |= found != known;
        known = found;
      }
    }
    for (const auto &[address, store] : accesses)
      (store ? kernel.stored : kernel.loaded) |= origins[address];
    if (loops)
      kernel.flops = -1;
  }

private:
  PtxKernel &kernel;
  bool loops = false;
  std::set<std::string_view> labels;
  std::map<std::string_view, uint64_t> origins; ///< register → operands that its value depends on
  std::vector<std::pair<std::string_view, std::string_view>> moves;
  std::vector<std::pair<std::string_view, bool>> accesses;

  /// Bits of a type such as "b32"; 0 if `word` is not a type.
  static int64_t bitsOf(std::string_view word) {
    int64_t bits = 0;
    return word.size() > 1 && std::string_view("bsuf").find(word[0]) != std::string_view::npos &&
                   numberIn(word.substr(1), bits)
               ? bits
               : 0;
  }

  void access(const std::vector<std::string_view> &words, std::string_view rest) {
    int64_t bits = 0, count = 1;
    for (std::string_view word : words) {
      bits = std::max(bits, bitsOf(word));
      if (int64_t lanes = 0; word.size() == 2 && word[0] == 'v' && numberIn(word.substr(1), lanes))
        count = lanes;
    }
    const bool store = words[0] == "st";
    if (bits >= 8 && bits <= 128)
      ++(store ? kernel.stores : kernel.loads)[int(count * bits / 8)];
    const size_t address = rest.find('[');
    if (address == std::string_view::npos)
      return;
    for (std::string_view name : registersIn(rest.substr(address, rest.find(']') - address)))
      accesses.emplace_back(name, store);
  }

  /// `[%rd9], [%rd4+128], 16, %r7`: copy from global to shared memory
  void copy(std::string_view rest) {
    std::vector<std::string_view> operands = parts(rest, ',');
    int64_t bytes = 0;
    if (operands.size() < 3 || !numberIn(operands[2], bytes) || bytes < 4 || bytes > 16)
      return;
    ++kernel.loads[int(bytes)];
    for (std::string_view name : registersIn(operands[1]))
      accesses.emplace_back(name, false);
  }

  /// `%rd7, [NAME_param_4]`
  void parameter(std::string_view rest) {
    constexpr std::string_view infix = "_param_";
    const size_t at = rest.rfind(infix);
    std::vector<std::string_view> names = registersIn(rest);
    int64_t number = 0;
    if (at == std::string_view::npos || names.size() != 1 ||
        !numberIn(rest.substr(at + infix.size()), number))
      return;
    if (number -= abi::kCudaLeadingParameters; number >= 0 && number < 64)
      origins[names[0]] |= uint64_t(1) << number;
  }

  void compute(const std::vector<std::string_view> &words, std::string_view rest) {
    static const std::set<std::string_view> arithmetic = {"add", "sub", "mul", "fma",  "mad",
                                                          "div", "min", "max", "sqrt", "rsqrt",
                                                          "rcp", "ex2", "lg2"};
    if (words.size() > 1 && arithmetic.count(words[0]))
      for (std::string_view word : words)
        if (word == "f32" || word == "f64" || word == "f32x2")
          kernel.flops += (words[0] == "fma" || words[0] == "mad" ? 2 : 1) *
                          (word == "f32x2" ? 2 : 1);
    std::vector<std::string_view> names = registersIn(rest);
    for (size_t i = 1; i < names.size(); ++i)
      if (names[0].substr(0, 3) == "%rd") // addresses have 64 bits
        moves.emplace_back(names[0], names[i]);
  }
};

} // namespace

std::map<std::string, PtxKernel> readPtx(std::string_view text) {
  std::map<std::string, PtxKernel> kernels;
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    if (line.find("_needs[") != std::string_view::npos)
      readBounds(line, kernels);
    constexpr std::string_view entry = ".entry ";
    const size_t at = line.find(entry);
    if (at == std::string_view::npos)
      continue;
    std::string_view name = line.substr(at + entry.size());
    PtxKernel &kernel = kernels[std::string(trimmed(take(name, '(')))];
    Body body(kernel);
    bool inside = false; // inside the braces of the code; braces of lists open and close within a
                         // line
    while (!text.empty()) {
      line = take(text, '\n');
      if (!inside)
        inside = line.substr(0, 1) == "{";
      else if (line.substr(0, 1) == "}")
        break;
      else
        body.line(line);
    }
    body.finish();
  }
  return kernels;
}

} // namespace zorse::inspect
