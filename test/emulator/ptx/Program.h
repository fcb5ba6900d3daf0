// A module of PTX text, ready to run.
#pragma once

#include "Grid.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace zorse::emulator::ptx {

/// Defined bytes of operands, by the address of the operand. All bytes of an operand without an
/// entry are defined. Launches update it.
using Defined = std::map<uint64_t, std::vector<uint8_t>>;

class Program {
public:
  /// \returns null, and sets `error`, for text with an unknown instruction, modifier or directive
  static std::unique_ptr<Program> load(const std::string &text, std::string &error);
  ~Program();

  /// Runs a launch. It may access `grid.operands` and the module's variables.
  /// \param seed  determines the order of blocks, warps and lanes
  /// \returns findings; empty: none
  std::vector<std::string> run(const std::string &kernel, const GridLaunch &grid, Defined &defined,
                               uint64_t seed);

  std::vector<std::string> kernels() const; ///< sorted by name

  /// Coverage by launches.
  struct Coverage {
    uint64_t statements = 0, reached = 0; ///< instructions of texts, and those that were executed
    uint64_t executed = 0; ///< executions by groups of lanes, summed over instructions
  };
  /// Adds the coverage of this program, by opcode.
  void addCoverage(std::map<std::string, Coverage> &coverage) const;

private:
  Program();
  struct Implementation;
  std::unique_ptr<Implementation> impl;
};

} // namespace zorse::emulator::ptx
