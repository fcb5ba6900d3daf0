// From the step graph to serialised, verified programs.
#pragma once

#include "bundle.pb.h"

#include <functional>
#include <string>
#include <vector>

namespace zorse::step {
struct StepGraph;
}

namespace zorse::pipelines {

/// Writes the programs of all devices, on `threads` threads.
///
/// \param text  called with the text of every program, in the order of devices, if given.
/// \returns the serialised programs; empty when one of them is wrong, after a diagnostic.
std::vector<std::string> buildPrograms(const step::StepGraph &graph, const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies,
                                       unsigned threads, const std::function<void(size_t device, const std::string &text)> &text = {});

/// Verifies them as serialised (lib/Verify). Findings are printed as errors.
/// \param staged, direct  VerifyOptions
bool verifySerialized(const std::vector<std::string> &programs, const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies,
                      const std::string &planJson, unsigned threads, const std::vector<bool> &staged = {}, const std::vector<int32_t> &direct = {});

} // namespace zorse::pipelines
