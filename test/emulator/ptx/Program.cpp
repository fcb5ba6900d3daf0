#include "Program.h"

#include "Launch.h"

#include <algorithm>
#include <cstring>

using namespace zorse::emulator;
using namespace zorse::emulator::ptx;

namespace {

struct alignas(128) Line {
  uint8_t bytes[128];
};

/// A variable in global memory.
struct Global {
  std::string name;
  uint64_t size = 0;
  std::vector<Line> lines;
  bool isTable = false; ///< has an initializer and is never written

  uint64_t begin() const { return reinterpret_cast<uint64_t>(lines.data()); }
};

} // namespace

struct Program::Implementation {
  std::vector<Global> globals;
  std::map<std::string, Kernel> kernels;

  void place(const ModuleText &module, std::map<std::string, uint64_t> &symbols) {
    for (const Variable &v : module.variables) {
      if (v.space == "shared")
        continue;
      if (v.space != "global" || v.isExternal || v.alignment > sizeof(Line))
        throw Unreadable(0, "variable " + v.name + " in ." + v.space);
      Global global;
      global.name = v.name;
      global.size = v.bytes;
      global.lines.resize(v.bytes / sizeof(Line) + 1);
      std::memset(static_cast<void *>(global.lines.data()), 0, global.lines.size() * sizeof(Line));
      if (!v.initial.empty())
        std::memcpy(static_cast<void *>(global.lines.data()), v.initial.data(), v.initial.size());
      global.isTable = !v.initial.empty();
      globals.push_back(std::move(global));
      symbols[v.name] = globals.back().begin();
    }
  }
};

Program::Program() : impl(new Implementation) {}
Program::~Program() = default;

std::unique_ptr<Program> Program::load(const std::string &text, std::string &error) {
  std::unique_ptr<Program> program(new Program);
  try {
    const ModuleText module = parse(text);
    std::map<std::string, uint64_t> symbols;
    program->impl->place(module, symbols);
    for (const KernelText &kernel : module.kernels)
      program->impl->kernels[kernel.name] = decode(kernel, module, symbols);
  } catch (const Unreadable &unreadable) {
    error = std::string("PTX: ") + unreadable.what();
    return nullptr;
  }
  return program;
}

std::vector<std::string> Program::kernels() const {
  std::vector<std::string> names;
  for (const auto &[name, kernel] : impl->kernels)
    names.push_back(name);
  return names;
}

void Program::addCoverage(std::map<std::string, Coverage> &coverage) const {
  for (const auto &[name, kernel] : impl->kernels)
    for (const Instruction &instruction : kernel.code) {
      Coverage &of = coverage[instruction.opcode];
      ++of.statements;
      of.reached += instruction.reached > 0;
      of.executed += instruction.reached;
    }
}

std::vector<std::string> Program::run(const std::string &symbol, const GridLaunch &grid,
                                      Defined &defined, uint64_t seed) {
  auto kernel = impl->kernels.find(symbol);
  if (kernel == impl->kernels.end())
    return {"kernel " + symbol + " is not there"};
  // Operands with the same address share one region.
  std::map<uint64_t, Region> operands;
  for (size_t i = 0; i < grid.operands.size(); ++i) {
    const Range &range = grid.operands[i];
    Region &region = operands[range.begin];
    region.name += (region.name.empty() ? "operand " : " and ") + std::to_string(i);
    region.begin = range.begin;
    region.end = std::max<uint64_t>(region.end, range.end);
    region.bytes = reinterpret_cast<uint8_t *>(range.begin); // NOLINT(performance-no-int-to-ptr):
                                                             // launches name memory by numbers
    region.isWritable |= range.writable;
  }
  Memory memory;
  for (auto &[begin, region] : operands) {
    if (auto known = defined.find(begin); known != defined.end())
      region.defined = std::move(known->second);
    region.defined.resize(region.end - region.begin, 1);
    memory.add(std::move(region));
  }
  // The variables' values from earlier launches are defined only for atomic operations.
  for (Global &global : impl->globals) {
    Region region;
    region.name = global.name;
    region.begin = global.begin();
    region.end = region.begin + global.size;
    region.bytes = reinterpret_cast<uint8_t *>(global.lines.data());
    region.isWritable = !global.isTable;
    region.defined.assign(global.size, global.isTable);
    memory.add(std::move(region));
  }
  std::vector<std::string> findings = Launch(kernel->second, grid, memory, seed).run();
  for (Region &region : memory.all())
    if (operands.count(region.begin))
      defined[region.begin] = std::move(region.defined);
  return findings;
}
