// Parses PTX text into statements. It knows the grammar; Decode.h knows the instructions.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace zorse::emulator::ptx {

/// Thrown for text that the reader does not know. Nothing is skipped silently.
class Unreadable : public std::runtime_error {
public:
  Unreadable(uint32_t line, const std::string &what)
      : std::runtime_error("line " + std::to_string(line) + ": " + what) {}
};

struct Operand {
  enum class Kind { Register, Number, Symbol, Address, Vector, Sink };
  Kind kind = Kind::Sink;
  std::string name;              ///< a register or symbol; the base of an address, empty: none
  uint64_t number = 0;           ///< the value of a number; the offset of an address
  std::vector<Operand> elements; ///< elements of a vector
};

struct Statement {
  uint32_t line = 0;
  std::string guard; ///< a predicate; empty: always
  bool isNegated = false;
  std::string opcode; ///< with all modifiers
  std::vector<Operand> operands;
  uint64_t usedBytes = 0; ///< mask of the loaded bytes that are used (.pragma "used_bytes_mask");
                          ///< 0: all
  std::string text;
};

struct Variable {
  std::string space; ///< "global", "const" or "shared"
  std::string name;
  uint64_t bytes = 0, alignment = 1;
  std::vector<uint8_t> initial; ///< empty: zeros in global memory, undefined in shared memory
  bool isExternal = false;      ///< the launch sets its size
};

struct Parameter {
  std::string name;
  uint32_t bytes = 0;
};

struct Register {
  uint32_t index = 0;
  uint8_t bits = 0; ///< 1: a predicate
};

struct KernelText {
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t threads = 0; ///< .reqntid
  std::map<std::string, Register> registers;
  std::vector<uint8_t> widths; ///< by index of register
  std::vector<Statement> statements;
  std::map<std::string, uint32_t> labels; ///< index of the statement after each label
  std::vector<Variable> variables;        ///< declared in the kernel's body
};

struct ModuleText {
  std::string version, target;
  std::vector<Variable> variables;
  std::vector<KernelText> kernels;
};

/// Throws Unreadable.
ModuleText parse(const std::string &text);

} // namespace zorse::emulator::ptx
