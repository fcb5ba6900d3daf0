#include "Decode.h"

#include <algorithm>
#include <functional>

using namespace zorse::emulator::ptx;

namespace {

std::vector<std::string> partsOf(const std::string &opcode) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= opcode.size();) {
    const size_t end = std::min(opcode.find('.', at), opcode.size());
    parts.push_back(opcode.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

class Decoder {
public:
  Decoder(const KernelText &text, const ModuleText &module, std::map<std::string, uint64_t> symbols)
      : text(text), module(module), symbols(std::move(symbols)) {}

  Kernel run() {
    kernel.name = text.name;
    kernel.threads = text.threads;
    kernel.widths = text.widths;
    for (const Parameter &parameter : text.parameters) {
      parameters[parameter.name] = 8 * kernel.parameterBytes.size();
      kernel.parameterBytes.push_back(parameter.bytes);
    }
    placeShared();
    for (const Statement &s : text.statements)
      kernel.code.push_back(instruction(s));
    for (const auto &[name, at] : text.labels)
      if (at > kernel.code.size())
        throw Unreadable(0, "label " + name + " is beyond the kernel");
    return std::move(kernel);
  }

private:
  const KernelText &text;
  const ModuleText &module;
  std::map<std::string, uint64_t> symbols, parameters;
  Kernel kernel;
  const Statement *statement = nullptr;

  [[noreturn]] void fail(const std::string &what) const {
    throw Unreadable(statement ? statement->line : 0,
                     what + (statement ? ", in '" + statement->text + "'" : ""));
  }
  [[noreturn]] void unknown() const {
    fail("instruction '" + statement->opcode + "' is not known");
  }

  /// Places variables with gaps, so that accesses beyond a variable are detected.
  void placeShared() {
    constexpr uint64_t kApart = 128;
    auto place = [&](const Variable &v) {
      const uint64_t alignment = std::max<uint64_t>(v.alignment, 16);
      const uint64_t begin = (kernel.sharedEnd + kApart + alignment - 1) / alignment * alignment;
      symbols[v.name] = begin;
      if (v.isExternal) {
        kernel.launchShared = begin;
      } else {
        kernel.shared.push_back({v.name, begin, begin + v.bytes});
        kernel.sharedEnd = begin + v.bytes;
      }
    };
    std::vector<const Variable *> all;
    all.reserve(text.variables.size());
    for (const Variable &v : text.variables)
      all.push_back(&v);
    for (const Variable &v : module.variables)
      if (v.space == "shared" && isNamed(v.name))
        all.push_back(&v);
    std::stable_sort(all.begin(), all.end(), [](const Variable *a, const Variable *b) {
      return a->isExternal < b->isExternal;
    });
    for (const Variable *v : all) {
      if (v->isExternal && kernel.launchShared)
        fail("two variables of shared memory that launches give");
      place(*v);
    }
  }

  bool isNamed(const std::string &symbol) const {
    std::function<bool(const Operand &)> names = [&](const Operand &o) {
      return o.name == symbol || std::any_of(o.elements.begin(), o.elements.end(), names);
    };
    return std::any_of(text.statements.begin(), text.statements.end(), [&](const Statement &s) {
      return std::any_of(s.operands.begin(), s.operands.end(), names);
    });
  }

  // ---- Operands.

  const Operand &operand(size_t i) const {
    if (i >= statement->operands.size())
      fail("an operand is missing");
    return statement->operands[i];
  }
  void expectOperands(size_t count) const {
    if (statement->operands.size() != count)
      fail("expected " + std::to_string(count) + " operands, found " +
           std::to_string(statement->operands.size()));
  }
  const Register &registerOf(const Operand &o) const {
    auto found = text.registers.find(o.name);
    if (o.kind != Operand::Kind::Register || found == text.registers.end())
      fail("expected a register, found '" + o.name + "'");
    return found->second;
  }
  /// \param takesWider  the register may have more bits
  void checkWidth(const Register &r, const std::string &name, uint32_t width,
                  bool takesWider) const {
    if (r.bits != width && !(takesWider && r.bits > width && width > 1))
      fail("register " + name + " has " + std::to_string(r.bits) + " bits instead of " +
           std::to_string(width));
  }
  int32_t result(const Operand &o, uint32_t width, bool takesWider = false) const {
    if (o.kind == Operand::Kind::Sink)
      return -1;
    const Register &r = registerOf(o);
    checkWidth(r, o.name, width, takesWider);
    return int32_t(r.index);
  }
  Source source(const Operand &o, uint32_t width, bool takesWider = false) const {
    if (o.kind == Operand::Kind::Number) // a predicate is true for any number except 0
      return {-1, width == 1    ? uint64_t(o.number != 0)
                  : width == 64 ? o.number
                                : o.number & ((uint64_t(1) << width) - 1)};
    if (o.kind == Operand::Kind::Symbol)
      return {-1, symbol(o.name)};
    const Register &r = registerOf(o);
    checkWidth(r, o.name, width, takesWider);
    return {int32_t(r.index), 0};
  }
  uint64_t symbol(const std::string &name) const {
    auto found = symbols.find(name);
    if (found == symbols.end())
      fail("'" + name + "' is not declared");
    return found->second;
  }
  void address(Instruction &i, const Operand &o) const {
    if (o.kind != Operand::Kind::Address)
      fail("expected an address");
    i.offset = o.number;
    if (o.name.empty())
      fail("address without a base");
    if (auto r = text.registers.find(o.name); r != text.registers.end()) {
      checkWidth(r->second, o.name, 64, false);
      i.address = {int32_t(r->second.index), 0};
    } else {
      i.address = {-1, symbol(o.name)};
    }
  }
  std::vector<const Operand *> elements(const Operand &o, size_t count) const {
    std::vector<const Operand *> all;
    if (count == 1 && o.kind != Operand::Kind::Vector)
      all.push_back(&o);
    else if (o.kind == Operand::Kind::Vector && o.elements.size() == count)
      for (const Operand &element : o.elements)
        all.push_back(&element);
    else
      fail("expected " + std::to_string(count) + " registers");
    return all;
  }

  // ---- Instructions.

  Instruction instruction(const Statement &s) {
    statement = &s;
    Instruction i;
    i.line = s.line;
    i.opcode = s.opcode;
    i.text = s.text;
    if (!s.guard.empty()) {
      const Register &guard = text.registers.at(s.guard);
      checkWidth(guard, s.guard, 1, false);
      i.guard = int32_t(guard.index);
      i.isNegated = s.isNegated;
    }
    if (!move(i) && !scalar(i))
      other(i);
    i.usedBytes = s.usedBytes;
    if (i.usedBytes && i.kind != Kind::Load)
      fail("a mask of used bytes before what is no load");
    return i;
  }

  bool scalar(Instruction &i) {
    const ScalarOperation *operation = findScalar(statement->opcode);
    if (!operation)
      return false;
    expectOperands(operation->sources + 1u);
    i.scalar = operation;
    i.results = {result(operand(0), operation->resultBits, operation->takesWider)};
    for (uint8_t k = 0; k < operation->sources; ++k)
      i.sources.push_back(source(operand(k + 1u), operation->sourceBits[k], operation->takesWider));
    return true;
  }

  /// Moves, except those between two registers.
  bool move(Instruction &i) {
    const std::vector<std::string> parts = partsOf(statement->opcode);
    if (parts[0] != "mov" || parts.size() != 2)
      return false;
    expectOperands(2);
    const Operand &to = operand(0), &from = operand(1);
    const bool packs = from.kind == Operand::Kind::Vector,
               unpacks = to.kind == Operand::Kind::Vector;
    if (packs || unpacks) {
      const uint32_t width = parts[1] == "b32" ? 32 : parts[1] == "b64" ? 64 : 0;
      const auto &vector = packs ? from.elements : to.elements;
      if (!width || packs == unpacks || (vector.size() != 2 && vector.size() != 4))
        unknown();
      i.bits = uint8_t(width / vector.size());
      i.kind = packs ? Kind::Pack : Kind::Unpack;
      for (const Operand &o : vector)
        packs ? i.sources.push_back(source(o, i.bits)) : i.results.push_back(result(o, i.bits));
      packs ? i.results.push_back(result(to, width)) : i.sources.push_back(source(from, width));
      return true;
    }
    if (from.kind != Operand::Kind::Symbol || from.name[0] != '%')
      return false;
    static const std::map<std::string, Special> specials = {{"%tid.x", Special::Thread},
                                                            {"%ctaid.x", Special::Block},
                                                            {"%ntid.x", Special::Threads},
                                                            {"%nctaid.x", Special::Blocks}};
    auto found = specials.find(from.name);
    if (found == specials.end() || parts[1] != "u32")
      fail("register '" + from.name + "' is not known");
    i.kind = Kind::Special;
    i.special = found->second;
    i.results = {result(to, 32)};
    return true;
  }

  void other(Instruction &i) {
    const std::string &opcode = statement->opcode;
    const std::vector<std::string> parts = partsOf(opcode);
    if (parts[0] == "ld" || parts[0] == "st")
      return memory(i, parts);
    if (opcode == "bra" || opcode == "bra.uni")
      return branch(i);
    if (opcode == "cp.async.ca.shared.global" || opcode == "cp.async.cg.shared.global")
      return copy(i, parts[2] == "cg");
    if (warpOperation(i))
      return;
    auto none = [&](Kind kind) {
      expectOperands(0);
      i.kind = kind;
    };
    if (opcode == "ret")
      return none(Kind::Return);
    if (opcode == "fence.acq_rel.gpu" || opcode == "membar.gl")
      return none(Kind::Fence);
    if (opcode == "cp.async.commit_group")
      return none(Kind::Commit);
    if (opcode == "cp.async.wait_group") {
      expectOperands(1);
      i.kind = Kind::Wait;
      i.sources = {number(operand(0))};
    } else if (opcode == "bar.sync") {
      expectOperands(1);
      i.kind = Kind::BlockBarrier;
      if (number(operand(0)).value != 0)
        fail("a barrier other than 0");
    } else if (opcode == "atom.global.inc.u32") {
      expectOperands(3);
      i.kind = Kind::Increment;
      i.access = AccessKind::Atomic;
      i.bits = 32;
      kernel.granule = std::min(kernel.granule, 4u);
      i.results = {result(operand(0), 32)};
      address(i, operand(1));
      i.sources = {source(operand(2), 32)};
    } else {
      unknown();
    }
  }

  Source number(const Operand &o) const {
    if (o.kind != Operand::Kind::Number)
      fail("expected a number");
    return {-1, o.number};
  }

  void branch(Instruction &i) {
    expectOperands(1);
    i.kind = Kind::Branch;
    auto label = text.labels.find(operand(0).name);
    if (label == text.labels.end())
      fail("label " + operand(0).name + " is not there");
    i.target = label->second;
  }

  void copy(Instruction &i, bool isWhole) {
    if (statement->operands.size() != 3)
      expectOperands(4);
    i.kind = Kind::Copy;
    address(i, operand(0));
    Instruction from;
    address(from, operand(1));
    const Source bytes = number(operand(2));
    if (isWhole ? bytes.value != 16 : bytes.value != 4 && bytes.value != 8 && bytes.value != 16)
      fail("a copy of " + std::to_string(bytes.value) + " bytes");
    // Source address, its offset, size in bytes, and number of copied bytes; the other bytes become
    // 0.
    i.sources = {from.address,
                 {-1, from.offset},
                 bytes,
                 statement->operands.size() == 4 ? source(operand(3), 32) : bytes};
    kernel.granule = std::min(kernel.granule, 4u);
  }

  // ld.volatile.global.b32, ld.global.nc.v4.b32, st.shared.v2.b64, ld.param.b64, ...
  void memory(Instruction &i, const std::vector<std::string> &parts) {
    size_t at = 1;
    auto take = [&](const char *part) {
      return at < parts.size() && parts[at] == part ? ++at, true : false;
    };
    const bool loads = parts[0] == "ld", isVolatile = take("volatile"),
               isParameter = !isVolatile && loads && take("param");
    if (!isParameter) {
      if (take("shared"))
        i.space = Space::Shared;
      else if (!take("global"))
        unknown();
    }
    const bool isConstant = loads && !isVolatile && !isParameter && i.space == Space::Global &&
                            take("nc");
    const size_t count = take("v2") ? 2 : take("v4") ? 4 : take("v8") ? 8 : 1;
    if (at + 1 != parts.size())
      unknown();
    static const std::map<std::string, uint8_t> types = {
        {"b8", 8},   {"u8", 8},   {"s8", 8},   {"b16", 16}, {"u16", 16}, {"s16", 16}, {"b32", 32},
        {"u32", 32}, {"s32", 32}, {"f32", 32}, {"b64", 64}, {"u64", 64}, {"s64", 64}, {"f64", 64}};
    auto type = types.find(parts[at]);
    if (type == types.end() || type->second / 8 * count > (count == 8 ? 32 : 16))
      unknown();
    i.bits = type->second;
    i.isSigned = parts[at][0] == 's';
    expectOperands(2);
    if (isParameter)
      return parameter(i, count);
    kernel.granule = std::min(kernel.granule, i.bits / 8u);
    i.kind = loads ? Kind::Load : Kind::Store;
    i.access = !loads       ? AccessKind::Store
               : isConstant ? AccessKind::ConstantLoad
                            : AccessKind::Load;
    address(i, operand(loads ? 1 : 0));
    for (const Operand *o : elements(operand(loads ? 0 : 1), count))
      loads ? i.results.push_back(result(*o, i.bits, true))
            : i.sources.push_back(source(*o, i.bits, true));
  }

  void parameter(Instruction &i, size_t count) {
    const Operand &from = operand(1);
    auto found = parameters.find(from.name);
    if (from.kind != Operand::Kind::Address || found == parameters.end())
      fail("'" + from.name + "' is no parameter");
    const uint32_t size = kernel.parameterBytes[found->second / 8];
    if (from.number + count * i.bits / 8 > size)
      fail("reads beyond a parameter of " + std::to_string(size) + " bytes");
    i.kind = Kind::LoadParameter;
    i.address = {-1, found->second};
    i.offset = from.number;
    for (const Operand *o : elements(operand(0), count))
      i.results.push_back(result(*o, i.bits, true));
  }

  bool warpOperation(Instruction &i) {
    const std::string &opcode = statement->opcode;
    auto registers = [&](const Operand &o, size_t count) {
      for (const Operand *element : elements(o, count))
        i.sources.push_back(source(*element, 32));
    };
    auto four = [&](const Operand &o) {
      for (const Operand *element : elements(o, 4))
        i.results.push_back(result(*element, 32));
    };
    const bool isHalf = opcode == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
    const bool isTransposed = opcode == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
    if (opcode == "bar.warp.sync") {
      expectOperands(1);
      i.kind = Kind::WarpBarrier;
      i.sources = {source(operand(0), 32)};
    } else if (opcode == "shfl.sync.bfly.b32") { // value, lanes, clamp and segments, members
      expectOperands(5);
      i.kind = Kind::Exchange;
      i.results = {result(operand(0), 32)};
      for (size_t k = 1; k < 5; ++k)
        i.sources.push_back(source(operand(k), 32));
    } else if (opcode == "vote.sync.ballot.b32") {
      expectOperands(3);
      i.kind = Kind::Ballot;
      i.results = {result(operand(0), 32)};
      i.sources = {source(operand(1), 1), source(operand(2), 32)};
    } else if (isHalf || opcode == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
      expectOperands(4);
      i.kind = Kind::Multiply;
      i.isHalf = isHalf;
      four(operand(0));
      registers(operand(1), 4);
      registers(operand(2), 2);
      registers(operand(3), 4);
    } else if (isTransposed || opcode == "ldmatrix.sync.aligned.m8n8.x4.shared.b16") {
      expectOperands(2);
      i.kind = Kind::LoadMatrices;
      i.isTransposed = isTransposed;
      i.space = Space::Shared;
      i.bits = 16;
      kernel.granule = std::min(kernel.granule, 4u);
      four(operand(0));
      address(i, operand(1));
    } else {
      return false;
    }
    return true;
  }
};

} // namespace

Kernel zorse::emulator::ptx::decode(const KernelText &text, const ModuleText &module,
                                    const std::map<std::string, uint64_t> &symbols) {
  return Decoder(text, module, symbols).run();
}
