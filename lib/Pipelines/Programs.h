// Conversion of the step graph to serialized, verified programs.
#pragma once

#include "zorse/Bundle/ProgramText.h"
#include "zorse/Step/Plan.h"

#include "bundle.pb.h"

#include <string>
#include <vector>

namespace zorse::step {
struct StepGraph;
}

namespace zorse::pipelines {

/// Writes the programs of all devices, on `threads` threads.
/// \returns the serialized programs; empty if one of them is wrong, after a diagnostic
std::vector<std::string> buildPrograms(const step::StepGraph &graph,
                                       const bundle::FunctionLibrary &library, unsigned threads);

/// Returns the names for the text of programs. The summary and the compiled functions must outlive
/// them.
bundle::ProgramNames programNames(const step::Plan &plan, const bundle::ModelSummary &summary,
                                  const bundle::FunctionLibrary &library);

/// Returns a serialized program as text; empty after a diagnostic.
std::string programText(const std::string &program, const bundle::ProgramNames &names);

/// Verifies serialized programs (lib/Verify). Findings are printed as errors.
/// \param staged, direct  VerifyOptions
bool verifySerialized(const std::vector<std::string> &programs, const bundle::ModelSummary &summary,
                      const bundle::FunctionLibrary &library, const std::string &planJson,
                      unsigned threads, const std::vector<bool> &staged = {},
                      const std::vector<int32_t> &direct = {});

} // namespace zorse::pipelines
