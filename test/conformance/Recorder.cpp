#include "Recorder.h"

#include <cstdio>
#include <filesystem>

using namespace zorse;
using namespace zorse::conformance;

namespace {

class Recorder final : public Machine {
public:
  Recorder(std::string directory, const std::string &arch, bool timed)
      : Machine(arch), directory(std::move(directory)), timed(timed) {}
  ~Recorder() override { end(); }

  void begin(const std::string &name) override {
    end();
    file = CaseFile();
    file.name = name;
  }
  bool records() const override { return true; }
  bool needsResults() const override { return !timed; }
  std::string load(const codegen::CompiledFunctions &compiled) override {
    file.library = compiled.library;
    file.object = compiled.object;
    return "";
  }
  std::string run(int index, const Call &call) override {
    const bundle::CompiledFunction &function = file.library.functions(index);
    CaseRun &run = file.runs.emplace_back();
    run.rows = call.rows, run.sampleBase = call.sampleBase, run.rngIdBase = call.rngIdBase;
    run.overwrite = call.overwrite;
    run.overwrite.resize(size_t(function.arguments_size()), 1);
    for (int s = 0; s < function.arguments_size(); ++s) {
      run.bytes.push_back(uint64_t(function.arguments(s).bytes().fixed() +
                                   function.arguments(s).bytes().per_row() * call.rows));
      if (!timed)
        run.arguments.emplace_back(call.arguments[size_t(s)], run.bytes.back());
    }
    return "";
  }
  void expect(ExpectedResult result) override {
    file.runs.back().results.push_back(std::move(result));
  }

private:
  void end() {
    if (file.runs.empty())
      return;
    char number[16];
    std::snprintf(number, sizeof number, "%04d.case", written++);
    if (const std::string problem = file.write(directory + "/" + number); !problem.empty())
      std::fprintf(stderr, "%s\n", problem.c_str());
    file.runs.clear();
  }

  const std::string directory;
  const bool timed;
  CaseFile file;
  int written = 0;
};

struct Sequences {
  int64_t rows, length, heads, keyHeads, size;
};

Case attentionOver(const Sequences &a, const std::string &type, bool gradient) {
  Text t(type);
  t.shape('Q', {-1, a.length, a.heads, a.size})
      .shape('K', {-1, a.length, a.keyHeads, a.size})
      .shape('L', {-1, a.heads, a.length});
  t.narrowIn("%q", 'Q').narrowIn("%k", 'K').narrowIn("%v", 'K');
  const std::string how = "{scale = 0.125 : f64, causal}";
  if (!gradient) {
    t.line("%o, %l = zorse.attention %q, %k, %v " + how + " : (#Q, #K, #K) -> (#Q, $L)")
        .narrowOut("%o", 'Q')
        .wideOut("%l", 'L');
  } else {
    t.narrowIn("%do", 'Q').narrowIn("%o", 'Q').wideIn("%l", 'L');
    t.line("%dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l " + how +
           " : (#Q, #Q, #K, #K, #Q, $L) -> (#Q, #K, #K)");
    t.narrowOut("%dq", 'Q').narrowOut("%dk", 'K').narrowOut("%dv", 'K');
  }
  return {t.str(), a.rows,
          "b" + std::to_string(a.rows) + " s" + std::to_string(a.length) + " h" +
              std::to_string(a.heads) + "/" + std::to_string(a.keyHeads) + " d" +
              std::to_string(a.size)};
}

} // namespace

std::unique_ptr<Machine> conformance::makeRecorder(const std::string &directory,
                                                   const std::string &arch, bool timed) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  return std::make_unique<Recorder>(directory, arch, timed);
}

std::vector<KernelClass> conformance::timedAttention(bool emulated) {
  std::vector<KernelClass> classes;
  const std::vector<Sequences> sizes =
      emulated ? std::vector<Sequences>{{1, 32, 2, 1, 64}}
               : std::vector<Sequences>{{8, 1024, 12, 12, 64}, {2, 2048, 32, 8, 128}};
  for (const Sequences &a : sizes)
    for (const bool gradient : {false, true})
      classes.push_back({gradient ? "attention, gradient" : "attention",
                         [a, gradient](Sizes &, const std::string &type) {
                           return attentionOver(a, type, gradient);
                         },
                         true});
  return classes;
}
