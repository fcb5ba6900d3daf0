// A module of PTX text, ready to run.
#pragma once

#include "Grid.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace zorse::emulator::ptx {

/// Which bytes of operands are defined, by the address where an operand begins; all bytes of an operand that is not named are. Launches update it.
using Defined = std::map<uint64_t, std::vector<uint8_t>>;

class Program {
public:
  /// \returns null, and `error`, for text with an instruction, a modifier or a directive that is not known
  static std::unique_ptr<Program> load(const std::string &text, std::string &error);
  ~Program();

  /// Runs a launch. `grid.operands` are the memory that it may touch besides the module's variables.
  /// \param seed  gives the order of blocks, warps and lanes
  /// \returns findings; empty: none
  std::vector<std::string> run(const std::string &kernel, const GridLaunch &grid, Defined &defined, uint64_t seed);

  std::vector<std::string> kernels() const; ///< by name

  /// What launches have reached.
  struct Coverage {
    uint64_t statements = 0, reached = 0; ///< instructions of texts, and those of them that were executed
    uint64_t executed = 0;                ///< groups of lanes, summed over instructions
  };
  /// Adds what this program has, by opcode.
  void addCoverage(std::map<std::string, Coverage> &coverage) const;

private:
  Program();
  struct Implementation;
  std::unique_ptr<Implementation> impl;
};

} // namespace zorse::emulator::ptx
