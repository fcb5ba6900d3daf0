#include "PtxFaults.h"

#include <regex>

using namespace zorse::conformance;

std::vector<PtxSubject> zorse::conformance::synchronizedSubjects(bool quick) {
  std::vector<PtxSubject> all = {
      {"layer norm", "f32", 22}, {"sums over rows", "f32", 3}, {"tensor cores", "bf16", 4}, {"routines of a step", "f32", 20}};
  if (!quick)
    all.insert(all.end(), {{"layer norm, gradient", "bf16", 23},
                           {"softmax, gradient", "f32", 23},
                           {"cross-entropy", "f32", 23},
                           {"cross-entropy, gradient", "f16", 23},
                           {"norms' parameters, gradient", "f32", 4},
                           {"scatter-add", "f32", 3},
                           {"tensor cores", "f16", 0},
                           {"tensor cores, gradient", "bf16", 0},
                           {"tensor cores, gradient", "bf16", 1},
                           {"tensor cores, gradient", "f16", 4}});
  return all;
}

bool zorse::conformance::isSynchronization(const std::string &line) {
  for (const char *opcode : {"bar.sync", "bar.warp.sync", "cp.async.wait_group", "cp.async.commit_group", "fence.", "membar."})
    if (line.rfind(opcode, 0) == 0)
      return true;
  return false;
}

const char *zorse::conformance::whyHarmless(const std::string &, const std::string &, size_t) { return nullptr; }

bool PtxFault::plant(std::string &text) const {
  const std::regex wanted(pattern);
  std::vector<std::smatch> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), wanted); at != std::sregex_iterator(); ++at)
    found.push_back(*at);
  const int index = occurrence > 0 ? occurrence - 1 : int(found.size()) + occurrence;
  if (index < 0 || index >= int(found.size()))
    return false;
  const std::smatch &match = found[size_t(index)];
  const std::string with = match.format(replacement);
  text = std::string(text.cbegin(), match[0].first) + with + std::string(match[0].second, text.cend());
  return true;
}

std::vector<PtxFault> zorse::conformance::ptxFaults() { return {}; }
