#include "PtxHarness.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::emulator;

std::string test::ptxKernel(const std::string &body, const std::string &variables) {
  return ".version 7.0\n.target sm_80\n.address_size 64\n" + variables +
         "\n.visible .entry k(.param .u64 out, .param .u64 in)\n{\n"
         ".reg .pred %p<16>;\n.reg .b16 %rs<16>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<32>;\n"
         "ld.param.b64 %rd1, [out];\nld.param.b64 %rd2, [in];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 "
         "%rd3, %r1, 4;\n" +
         body + "\nret;\n}\n";
}

bool test::PtxRun::hasOnly(const std::string &kind) const {
  return !findings.empty() &&
         std::all_of(findings.begin(), findings.end(),
                     [&](const std::string &f) { return f.rfind(kind + ":", 0) == 0; });
}

test::PtxRun test::runPtx(const std::string &text, const PtxGrid &grid) {
  PtxRun run;
  std::string error;
  auto program = ptx::Program::load(text, error);
  if (!program) {
    run.findings.push_back(error);
    return run;
  }
  struct alignas(128) Line {
    uint32_t words[32] = {};
  };
  std::vector<Line> out(grid.out / 32 + 1), in(grid.in.size() / 32 + 1);
  std::copy(grid.in.begin(), grid.in.end(), in[0].words);
  const auto outBegin = reinterpret_cast<uintptr_t>(out.data()),
             inBegin = reinterpret_cast<uintptr_t>(in.data());
  GridLaunch launch;
  launch.blocks = grid.blocks;
  launch.threads = grid.threads;
  launch.parameters = {outBegin, inBegin};
  launch.operands = {{outBegin, outBegin + 4 * grid.out, true},
                     {inBegin, inBegin + 4 * grid.in.size(), false}};
  ptx::Defined defined;
  if (!grid.outIsDefined)
    defined[outBegin].assign(4 * grid.out, 0);
  run.findings = program->run("k", launch, defined, grid.seed);
  run.out.assign(out[0].words, out[0].words + grid.out);
  return run;
}
