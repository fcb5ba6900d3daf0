#include "ExecSyntax.h"

#include "mlir/IR/Builders.h"

#include <charconv>
#include <cmath>

using namespace mlir;
using namespace zorse::exec;

// The .inc files call these with the parser they have.
namespace {

/// An enumeration's keyword; the error lists nothing because the words are those of the op's description.
template <typename Enum> ParseResult parseWord(AsmParser &parser, Enum &value, std::optional<Enum> (*symbolize)(StringRef), StringRef what) {
  SMLoc place = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Enum> found = symbolize(word);
  if (!found)
    return parser.emitError(place, "expected ") << what << ", got '" << word << "'";
  value = *found;
  return success();
}

ParseResult parseRange(AsmParser &parser, int64_t &begin, int64_t &end) {
  return failure(parser.parseInteger(begin) || parser.parseColon() || parser.parseInteger(end));
}

IntegerAttr i64(AsmParser &parser, int64_t value) { return parser.getBuilder().getI64IntegerAttr(value); }

/// The shortest text that reads back as the same double.
std::string shortest(double value) {
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string result(text, end);
  if (result.find_first_of(".n") == std::string::npos) { // MLIR's floats have a point; "inf" and "nan" never get here
    size_t exponent = result.find('e');
    result.insert(exponent == std::string::npos ? result.size() : exponent, ".0");
  }
  return result;
}

} // namespace

namespace zorse::exec {

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

ParseResult parseMemoryKind(AsmParser &parser, MemoryKindAttr &attr) {
  MemoryKind kind;
  if (parseWord<MemoryKind>(parser, kind, symbolizeMemoryKind, "a memory kind (device, pinned_host, host, nvme)"))
    return failure();
  attr = MemoryKindAttr::get(parser.getContext(), kind);
  return success();
}
void printMemoryKind(AsmPrinter &printer, MemoryKindAttr attr) { printer << stringifyMemoryKind(attr.getValue()); }

ParseResult parsePhase(AsmParser &parser, PhaseAttr &attr) {
  Phase phase;
  if (parseWord<Phase>(parser, phase, symbolizePhase, "a phase (load, gather, forward, backward, reduce, commit, update, report)"))
    return failure();
  attr = PhaseAttr::get(parser.getContext(), phase);
  return success();
}
void printPhase(AsmPrinter &printer, PhaseAttr attr) { printer << stringifyPhase(attr.getValue()); }

ParseResult parseOrder(AsmParser &parser, OrderAttr &attr) {
  Order order;
  if (parseWord<Order>(parser, order, symbolizeOrder, "an order (ranked, transport)"))
    return failure();
  attr = OrderAttr::get(parser.getContext(), order);
  return success();
}
void printOrder(AsmPrinter &printer, OrderAttr attr) { printer << stringifyOrder(attr.getValue()); }

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

ParseResult parseQueue(AsmParser &parser, QueueAttr &attr) {
  SMLoc place = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  StringRef name = word.rtrim("0123456789");
  int64_t id;
  std::optional<QueueKind> kind = symbolizeQueueKind(name);
  if (!kind || word.drop_front(name.size()).getAsInteger(10, id))
    return parser.emitError(place, "expected a queue, kind and id, such as 'compute0' or 'send2', got '") << word << "'";
  attr = QueueAttr::get(parser.getContext(), *kind, id);
  return success();
}
void printQueue(AsmPrinter &printer, QueueAttr attr) { printer << stringifyQueueKind(attr.getKind()) << attr.getId(); }

ParseResult parseRegion(AsmParser &parser, RegionAttr &attr) {
  int64_t arena, offset, bytes;
  if (parser.parseInteger(arena) || parser.parseColon() || parser.parseInteger(offset) || parser.parsePlus() || parser.parseInteger(bytes))
    return failure();
  attr = RegionAttr::get(parser.getContext(), arena, offset, bytes);
  return success();
}
void printRegion(AsmPrinter &printer, RegionAttr attr) { printer << attr.getArena() << ':' << attr.getOffset() << '+' << attr.getBytes(); }

ParseResult parseValue(AsmParser &parser, ValueAttr &attr) {
  ValueKind kind{};
  int64_t id = 0, cut = 0, begin = 0, end = 0, version = 0;
  std::string name;
  if (parseWord<ValueKind>(parser, kind, symbolizeValueKind, "a kind of value (activation, parameters, ...)"))
    return failure();
  if (OptionalParseResult given = parser.parseOptionalInteger(id); given.has_value() && failed(*given))
    return failure();
  (void)parser.parseOptionalString(&name);
  if (succeeded(parser.parseOptionalKeyword("cut")) && parser.parseInteger(cut))
    return failure();
  if (succeeded(parser.parseOptionalLSquare()) && (parseRange(parser, begin, end) || parser.parseRSquare()))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("version")) && parser.parseInteger(version))
    return failure();
  attr = ValueAttr::get(parser.getContext(), kind, id, cut, begin, end, version, name);
  return success();
}
void printValue(AsmPrinter &printer, ValueAttr attr) {
  printer << stringifyValueKind(attr.getKind());
  bool single = attr.getKind() == ValueKind::None || attr.getKind() >= ValueKind::Sums || attr.getKind() == ValueKind::Scalars;
  if (attr.getId() || !single)
    printer << ' ' << attr.getId();
  if (!attr.getName().empty()) {
    printer << ' ';
    printer.printString(attr.getName());
  }
  if (attr.getCut())
    printer << " cut " << attr.getCut();
  if (attr.getBegin() || attr.getEnd())
    printer << " [" << attr.getBegin() << ':' << attr.getEnd() << ']';
  if (attr.getVersion())
    printer << " version " << attr.getVersion();
}

ParseResult parseWait(AsmParser &parser, WaitAttr &attr) {
  QueueAttr queue;
  int64_t position;
  if (parseQueue(parser, queue) || parser.parseColon() || parser.parseInteger(position))
    return failure();
  attr = WaitAttr::get(parser.getContext(), queue, position, succeeded(parser.parseOptionalKeyword("previous")));
  return success();
}
void printWait(AsmPrinter &printer, WaitAttr attr) {
  printQueue(printer, attr.getQueue());
  printer << ':' << attr.getPosition();
  if (attr.getPreviousStep())
    printer << " previous";
}

ParseResult parseBinding(AsmParser &parser, BindingAttr &attr) {
  Access access{};
  ValueAttr value;
  RegionAttr region;
  if (parseWord<Access>(parser, access, symbolizeAccess, "an access (read, write, update, add, use)"))
    return failure();
  bool overwrite = succeeded(parser.parseOptionalKeyword("overwriting"));
  if (parseValue(parser, value) || parser.parseKeyword("at") || parseRegion(parser, region))
    return failure();
  attr = BindingAttr::get(parser.getContext(), access, overwrite, value, region);
  return success();
}
void printBinding(AsmPrinter &printer, BindingAttr attr) {
  printer << stringifyAccess(attr.getAccess()) << ' ';
  if (attr.getOverwrite())
    printer << "overwriting ";
  printValue(printer, attr.getValue());
  printer << " at ";
  printRegion(printer, attr.getRegion());
}

ParseResult parseExtent(AsmParser &parser, ExtentAttr &attr) {
  FlatSymbolRefAttr member;
  int64_t begin, end;
  if (parser.parseAttribute(member) || parseRange(parser, begin, end))
    return failure();
  attr = ExtentAttr::get(parser.getContext(), member, begin, end);
  return success();
}
void printExtent(AsmPrinter &printer, ExtentAttr attr) {
  printer.printAttribute(attr.getMember());
  printer << ' ' << attr.getBegin() << ':' << attr.getEnd();
}

ParseResult parseExtents(AsmParser &parser, ArrayAttr &attr) {
  SmallVector<Attribute> extents;
  auto parseOne = [&]() -> ParseResult {
    ExtentAttr extent;
    if (parseExtent(parser, extent))
      return failure();
    extents.push_back(extent);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return failure();
  attr = parser.getBuilder().getArrayAttr(extents);
  return success();
}
void printExtents(AsmPrinter &printer, ArrayAttr attr) {
  printer << '[';
  llvm::interleaveComma(attr, printer, [&](Attribute extent) { printExtent(printer, cast<ExtentAttr>(extent)); });
  printer << ']';
}

ParseResult parseInstance(AsmParser &parser, IntegerAttr &attr) {
  int64_t instance = 0;
  if (succeeded(parser.parseOptionalKeyword("instance")) && parser.parseInteger(instance))
    return failure();
  attr = i64(parser, instance);
  return success();
}
void printInstance(AsmPrinter &printer, IntegerAttr attr) {
  if (attr.getInt())
    printer << " instance " << attr.getInt();
}

//===----------------------------------------------------------------------===//
// Parts of ops
//===----------------------------------------------------------------------===//

ParseResult parseWhen(OpAsmParser &parser, ArrayAttr &waits, FloatAttr &start, FloatAttr &finish) {
  if (succeeded(parser.parseOptionalKeyword("after"))) {
    SmallVector<Attribute> list;
    auto parseOne = [&]() -> ParseResult {
      WaitAttr wait;
      if (parseWait(parser, wait))
        return failure();
      list.push_back(wait);
      return success();
    };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
      return failure();
    waits = parser.getBuilder().getArrayAttr(list);
  }
  if (succeeded(parser.parseOptionalKeyword("time"))) {
    double from, to;
    SMLoc place = parser.getCurrentLocation();
    if (parser.parseLSquare() || parser.parseFloat(from) || parser.parseComma() || parser.parseFloat(to) || parser.parseRSquare())
      return failure();
    if (std::signbit(from) || std::signbit(to))
      return parser.emitError(place) << "expects times from 0 on";
    start = parser.getBuilder().getF64FloatAttr(from);
    finish = parser.getBuilder().getF64FloatAttr(to);
  }
  return success();
}
void printWhen(OpAsmPrinter &printer, Operation *, ArrayAttr waits, FloatAttr start, FloatAttr finish) {
  if (waits && !waits.empty()) {
    printer << " after [";
    llvm::interleaveComma(waits, printer, [&](Attribute wait) { printWait(printer, cast<WaitAttr>(wait)); });
    printer << "]";
  }
  if (start && finish)
    printer << " time [" << shortest(start.getValueAsDouble()) << ", " << shortest(finish.getValueAsDouble()) << "]";
}

ParseResult parseTask(OpAsmParser &parser, TaskAttr &task, IntegerAttr &cell, IntegerAttr &group) {
  Task kind;
  if (parseWord<Task>(parser, kind, symbolizeTask, "a task (F, B, W, R, norm, decide, update, sum_loss, cast)"))
    return failure();
  task = TaskAttr::get(parser.getContext(), kind);
  int64_t number;
  if (succeeded(parser.parseOptionalKeyword("cell"))) {
    if (parser.parseInteger(number))
      return failure();
    cell = i64(parser, number);
  }
  if (succeeded(parser.parseOptionalKeyword("group"))) {
    if (parser.parseInteger(number))
      return failure();
    group = i64(parser, number);
  }
  return success();
}
void printTask(OpAsmPrinter &printer, Operation *, TaskAttr task, IntegerAttr cell, IntegerAttr group) {
  printer << stringifyTask(task.getValue());
  if (cell && cell.getInt() >= 0)
    printer << " cell " << cell.getInt();
  if (group && group.getInt() >= 0)
    printer << " group " << group.getInt();
}

ParseResult parseCallee(OpAsmParser &parser, IntegerAttr &body, StringAttr &name, IntegerAttr &unit, StringAttr &unitName) {
  int64_t number;
  std::string text, unitText;
  if (parser.parseInteger(number))
    return failure();
  body = i64(parser, number);
  (void)parser.parseOptionalString(&text);
  if (succeeded(parser.parseOptionalKeyword("unit"))) {
    if (parser.parseInteger(number))
      return failure();
    unit = i64(parser, number);
    (void)parser.parseOptionalString(&unitText);
  }
  name = parser.getBuilder().getStringAttr(text);
  unitName = parser.getBuilder().getStringAttr(unitText);
  return success();
}
void printCallee(OpAsmPrinter &printer, Operation *, IntegerAttr body, StringAttr name, IntegerAttr unit, StringAttr unitName) {
  printer << body.getInt();
  if (!name.getValue().empty()) {
    printer << ' ';
    printer.printString(name.getValue());
  }
  if (!unit || unit.getInt() < 0)
    return;
  printer << " unit " << unit.getInt();
  if (!unitName.getValue().empty()) {
    printer << ' ';
    printer.printString(unitName.getValue());
  }
}

ParseResult parseRows(OpAsmParser &parser, IntegerAttr &base, IntegerAttr &rows) {
  int64_t begin, end, count;
  SMLoc place = parser.getCurrentLocation();
  if (parser.parseLSquare() || parseRange(parser, begin, end) || parser.parseRSquare())
    return failure();
  if (__builtin_sub_overflow(end, begin, &count))
    return parser.emitError(place) << "rows [" << begin << ':' << end << "] are more than a 64-bit number counts";
  base = i64(parser, begin);
  rows = i64(parser, count);
  return success();
}
void printRows(OpAsmPrinter &printer, Operation *, IntegerAttr base, IntegerAttr rows) {
  // An operation that does not verify is printed as well: the sum may wrap.
  printer << '[' << base.getInt() << ':' << static_cast<int64_t>(static_cast<uint64_t>(base.getInt()) + static_cast<uint64_t>(rows.getInt())) << ']';
}

ParseResult parseSlots(OpAsmParser &parser, ArrayAttr &slots) {
  SmallVector<Attribute> list;
  auto parseOne = [&]() -> ParseResult {
    BindingAttr binding;
    if (parseBinding(parser, binding))
      return failure();
    list.push_back(binding);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::OptionalParen, parseOne))
    return failure();
  slots = parser.getBuilder().getArrayAttr(list);
  return success();
}
void printSlots(OpAsmPrinter &printer, Operation *, ArrayAttr slots) {
  if (slots.empty())
    return;
  printer << " (";
  printer.increaseIndent();
  for (auto [index, binding] : llvm::enumerate(slots)) {
    if (index)
      printer << ',';
    printer.printNewline();
    printBinding(printer, cast<BindingAttr>(binding));
  }
  printer.decreaseIndent();
  printer << ')';
}

//===----------------------------------------------------------------------===//
// The generic form of attributes: the same text between angle brackets.
//===----------------------------------------------------------------------===//

#define ZORSE_EXEC_ATTR(Name)                                                                                                                        \
  Attribute Name##Attr::parse(AsmParser &parser, Type) {                                                                                             \
    Name##Attr attr;                                                                                                                                 \
    if (parser.parseLess() || parse##Name(parser, attr) || parser.parseGreater())                                                                    \
      return {};                                                                                                                                     \
    return attr;                                                                                                                                     \
  }                                                                                                                                                  \
  void Name##Attr::print(AsmPrinter &printer) const {                                                                                                \
    printer << '<';                                                                                                                                  \
    print##Name(printer, *this);                                                                                                                     \
    printer << '>';                                                                                                                                  \
  }
ZORSE_EXEC_ATTR(Queue)
ZORSE_EXEC_ATTR(Region)
ZORSE_EXEC_ATTR(Value)
ZORSE_EXEC_ATTR(Wait)
ZORSE_EXEC_ATTR(Binding)
ZORSE_EXEC_ATTR(Extent)
#undef ZORSE_EXEC_ATTR

} // namespace zorse::exec
