#include "Fuzz.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>

using namespace zorse::fuzz;
using nlohmann::ordered_json;

size_t zorse::fuzz::put(const std::string &bytes, uint8_t *data, size_t maxSize) {
  size_t size = std::min(bytes.size(), maxSize);
  if (size)
    memcpy(data, bytes.data(), size);
  return size;
}

int64_t zorse::fuzz::oddNumber(Random &random) {
  switch (random() % 4) {
  case 0:
    return int64_t(random() % 17) - 1;
  case 1: {
    uint64_t power = uint64_t(1) << random() % 64;
    return int64_t(power + random() % 3 - 1);
  }
  case 2: {
    static constexpr int64_t borders[] = {
        INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, UINT32_MAX, int64_t(UINT32_MAX) + 1, -1, 0, 1};
    return borders[random() % std::size(borders)];
  }
  default:
    return int64_t(random() % 1000);
  }
}

std::string zorse::fuzz::mutateBytes(std::string_view bytes, size_t maxSize) {
  std::string buffer(bytes.substr(0, maxSize));
  buffer.resize(std::max<size_t>(maxSize, 1));
  buffer.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(buffer.data()),
                                 std::min(bytes.size(), maxSize), buffer.size()));
  return buffer;
}

namespace {

void collect(ordered_json &node, std::vector<ordered_json *> &nodes) {
  nodes.push_back(&node);
  if (node.is_structured())
    for (auto &child : node)
      collect(child, nodes);
}

ordered_json oddValue(Random &random) {
  switch (random() % 12) {
  case 0:
    return nullptr;
  case 1:
    return random() % 2 == 0;
  case 2:
    return "";
  case 3:
    return ordered_json::array();
  case 4:
    return ordered_json::object();
  case 5:
    return 1.5;
  case 6:
    return random() % 2 ? 1e308 : -1e-308;
  case 7:
    return uint64_t(oddNumber(random));
  default:
    return oddNumber(random);
  }
}

void changeJson(ordered_json &root, Random &random) {
  std::vector<ordered_json *> nodes;
  collect(root, nodes);
  ordered_json &node = *nodes[random() % nodes.size()];
  const ordered_json other = *nodes[random() % nodes.size()];
  switch (random() % 8) {
  case 0: // remove a child
    if (node.is_structured() && !node.empty()) {
      size_t i = random() % node.size();
      if (node.is_array())
        node.erase(i);
      else
        node.erase(std::next(node.begin(), i).key());
    }
    break;
  case 1: // repeat a child
    if (node.is_array() && !node.empty() && node.size() < 64)
      node.insert(node.begin() + random() % node.size(),
                  ordered_json(node[random() % node.size()]));
    else if (node.is_object() && !node.empty())
      node[std::next(node.begin(), random() % node.size()).key() + "x"] = other;
    break;
  case 2: // swap children
    if (node.is_array() && node.size() > 1)
      std::swap(node[random() % node.size()], node[random() % node.size()]);
    break;
  case 3:
    node = other;
    break;
  case 4: // a number close to the old one
    if (node.is_number_integer())
      node = int64_t(uint64_t(node.get<int64_t>()) + random() % 5 - 2);
    else if (node.is_number_float())
      node = node.get<double>() * (random() % 2 ? 2 : -0.5);
    else
      node = oddValue(random);
    break;
  case 5:
    if (node.is_string()) {
      std::string text = mutateBytes(node.get<std::string>(), 64);
      std::transform(text.begin(), text.end(), text.begin(), [](char c) { return char(c & 0x7f); });
      node = text;
      break;
    }
    [[fallthrough]];
  default:
    node = oddValue(random);
  }
}

} // namespace

std::string zorse::fuzz::mutateJson(std::string_view text, Random &random) {
  ordered_json root =
      ordered_json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (root.is_discarded() || random() % 10 == 0)
    return mutateBytes(text, text.size() + 64);
  for (unsigned times = random() % 3 ? 1 : 1 + random() % 3; times > 0; --times)
    changeJson(root, random);
  return root.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string zorse::fuzz::mutateText(std::string_view text, const std::vector<const char *> &words,
                                    Random &random) {
  if (random() % 8 == 0)
    return mutateBytes(text, text.size() + 64);
  // Tokens: words, runs of spaces, and single other characters.
  std::vector<std::string> tokens;
  auto classOf = [](char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.' ? 1 : c == ' ' ? 2 : 0;
  };
  for (char c : text) {
    int kind = classOf(c);
    if (tokens.empty() || kind == 0 || classOf(tokens.back()[0]) != kind)
      tokens.emplace_back();
    tokens.back() += c;
  }
  if (tokens.empty())
    tokens.emplace_back();
  for (unsigned times = random() % 3 ? 1 : 1 + random() % 4; times > 0; --times) {
    size_t at = random() % tokens.size(), from = random() % tokens.size(),
           length = 1 + random() % std::min<size_t>(tokens.size(), 24);
    switch (random() % 8) {
    case 0:
      tokens[at] = words[random() % words.size()];
      break;
    case 1:
      tokens.insert(tokens.begin() + at, words[random() % words.size()]);
      break;
    case 2:
      tokens[at] = std::to_string(oddNumber(random));
      break;
    case 3:
      tokens[at] = tokens[from];
      break;
    case 4: { // repeat a run
      std::vector<std::string> run(tokens.begin() + from,
                                   tokens.begin() + std::min(tokens.size(), from + length));
      tokens.insert(tokens.begin() + at, run.begin(), run.end());
      break;
    }
    case 5:
      if (tokens.size() > length)
        tokens.erase(tokens.begin() + std::min(at, tokens.size() - length),
                     tokens.begin() + std::min(at, tokens.size() - length) + length);
      break;
    case 6:
      std::swap(tokens[at], tokens[from]);
      break;
    default:
      if (tokens[at][0] == ' ')
        tokens[at].resize(random() % 12, ' ');
      else
        tokens[at] = mutateBytes(tokens[at], tokens[at].size() + 8);
      if (tokens[at].empty())
        tokens[at] = " ";
    }
  }
  std::string out;
  for (const std::string &token : tokens)
    out += token;
  return out;
}
