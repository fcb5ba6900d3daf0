#include "PtxFaults.h"

#include "Routines.h"

#include <regex>
#include <utility>

using namespace zorse::conformance;

namespace {

PtxSubject ofCase(const std::string &name, const std::string &type, const Case &test) {
  return {name + ", " + type, [=](Machine &machine) { return runCase(test, type, machine, 7); }};
}

} // namespace

PtxSubject zorse::conformance::suiteSubject(const std::string &name, const std::string &type,
                                            int shape) {
  for (const KernelClass &kernels : kernelClasses())
    if (name == kernels.name) {
      Sizes sizes(shape, 0);
      return ofCase(name, type, kernels.make(sizes, type));
    }
  return {name + ": no such class", [](Machine &) { return Outcome{"no such class", 0, 0}; }};
}

PtxSubject zorse::conformance::columnSums() {
  Text t("f32");
  t.shape('X', {-1, 7, 40}).shape('C', {40}).shape('P', {7, 40}).shape('N', {}).in("%x", 'X');
  t.line("%a = zorse.reduce sum %x dims [0, 1] : $X -> $C")
      .line("%b = zorse.reduce sum %x dims [0] : $X -> $P");
  t.line("%d = zorse.reduce sum %x dims [0, 1, 2] : $X -> $N")
      .wideOut("%a", 'C')
      .wideOut("%b", 'P')
      .wideOut("%d", 'N');
  return ofCase("sums of 150 rows", "f32", {t.str(), 150, ""});
}

/// Attention forward and backward on tensor cores.
static PtxSubject attention(const std::string &name, int queries, int keys, int size,
                            const std::string &type, const std::string &attributes) {
  Text t(type);
  t.shape('Q', {-1, queries, 2, size}).shape('K', {-1, keys, 1, size}).shape('L', {-1, 2, queries});
  t.narrowIn("%q", 'Q').narrowIn("%k", 'K').narrowIn("%v", 'K').narrowIn("%do", 'Q');
  t.line("%o, %l = zorse.attention %q, %k, %v {" + attributes + "} : (#Q, #K, #K) -> (#Q, $L)");
  t.line("%dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l {" + attributes +
         "} : (#Q, #Q, #K, #K, #Q, $L) -> (#Q, #K, #K)");
  t.narrowOut("%o", 'Q')
      .wideOut("%l", 'L')
      .narrowOut("%dq", 'Q')
      .narrowOut("%dk", 'K')
      .narrowOut("%dv", 'K');
  return ofCase(name, type, {t.str(), 1, ""});
}

PtxSubject zorse::conformance::attentionSubject(int size, const std::string &type,
                                                const std::string &attributes) {
  return attention("attention with heads of " + std::to_string(size) + " {" + attributes + "}", 150,
                   150, size, type, attributes);
}

PtxSubject zorse::conformance::spreadAttention() {
  return attention("attention to far keys", 2, 70, 64, "bf16", "scale = 4.0 : f64");
}

/// Routines of a step over enough elements for several blocks.
static PtxSubject routines() {
  return {"routines of a step", [](Machine &machine) {
            Sizes sizes(20, 0);
            return runRoutines(sizes, "f32", machine);
          }};
}

std::vector<PtxSubject> zorse::conformance::synchronizedSubjects(bool quick) {
  std::vector<PtxSubject> all = {suiteSubject("layer norm", "f32", 22), columnSums(), routines(),
                                 attentionSubject(64, "bf16", "scale = 0.125 : f64, causal")};
  if (quick)
    return all;
  for (const char *name : {"layer norm, gradient", "rms norm", "softmax, gradient", "log-softmax",
                           "cross-entropy", "cross-entropy, gradient"})
    all.push_back(suiteSubject(name, "bf16", 23));
  all.push_back(suiteSubject("norms' parameters, gradient", "f32", 4));
  all.push_back(suiteSubject("scatter-add", "f32", 3));
  all.push_back(attentionSubject(80, "f16", "scale = 0.112 : f64"));
  all.push_back(attentionSubject(128, "bf16", "scale = 0.088 : f64, causal"));
  all.push_back(attentionSubject(256, "f16", "scale = 0.0625 : f64, causal"));
  all.push_back(attentionSubject(
      64, "bf16", "scale = 0.125 : f64, causal, dropout = 0.1 : f64, rng_id = 0 : i64"));
  return all;
}

bool zorse::conformance::isSynchronization(const std::string &line) {
  for (const char *opcode : {"bar.sync", "bar.warp.sync", "cp.async.wait_group",
                             "cp.async.commit_group", "fence.", "membar."})
    if (line.rfind(opcode, 0) == 0)
      return true;
  return false;
}

namespace {

/// Removes the text between `@PREDICATE bra LABEL;` and `LABEL:`.
std::string withoutGuarded(std::string text, const std::string &predicate) {
  const std::regex begin("@" + predicate + " bra \\t(\\$\\w+);");
  for (std::smatch match; std::regex_search(text, match, begin);) {
    const std::string label = match[1].str() + ":";
    const auto from = size_t(match.position());
    const size_t to = text.find(label, from);
    text.erase(from, to == std::string::npos ? std::string::npos : to + label.size() - from);
  }
  return text;
}

} // namespace

/// The barrier before a block counts itself is needed if several threads store partial results. It
/// is redundant if the counting thread is the only one that stores between the barriers before and
/// after it: its stores are in program order, and the other threads do not read them in between.
const char *zorse::conformance::whyHarmless(const std::string &text, size_t at) {
  const std::string mark = "bar.sync";
  const size_t before = text.rfind(mark, at - 1), here = text.find(mark, at),
               behind = text.find(mark, here + 1);
  const std::string earlier = text.substr(before, here - before),
                    later = text.substr(here, behind - here);
  std::smatch counts;
  if (before == std::string::npos || behind == std::string::npos ||
      !std::regex_search(
          later, counts,
          std::regex(
              "^bar\\.sync\\s+0;\\s+@(%p\\d+) bra "
              "\\t\\$\\w+;\\s+(?:fence\\.acq_rel\\.gpu|membar\\.gl);\\s+atom\\.global\\.inc")))
    return nullptr;
  const std::string predicate = counts[1].str();
  std::smatch stored;
  const bool isNamed =
      std::regex_search(later, stored, std::regex("st\\.shared\\.b32 \\t\\[([\\w$]+)\\]"));
  if (!isNamed || earlier.find(stored[1].str()) != std::string::npos ||
      withoutGuarded(earlier, predicate).find("st.") != std::string::npos ||
      withoutGuarded(later, predicate).find("st.") != std::string::npos)
    return nullptr;
  return "only the counting thread stores between the barriers before and after it, and no other "
         "thread reads these stores there";
}

bool PtxFault::plant(std::string &text) const {
  const std::regex wanted(pattern);
  if (occurrence == 0) {
    const std::string before = std::exchange(text, std::regex_replace(text, wanted, replacement));
    return text != before;
  }
  std::vector<std::smatch> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), wanted);
       at != std::sregex_iterator(); ++at)
    found.push_back(*at);
  const int index = occurrence > 0 ? occurrence - 1 : int(found.size()) + occurrence;
  if (index < 0 || index >= int(found.size()))
    return false;
  const std::smatch &match = found[size_t(index)];
  const std::string with = match.format(replacement);
  text = std::string(text.cbegin(), match[0].first) + with +
         std::string(match[0].second, text.cend());
  return true;
}
