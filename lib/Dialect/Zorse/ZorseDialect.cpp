#include "zorse/Dialect/Zorse/ZorseDialect.h"
#include "zorse/Dialect/Zorse/SampleOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace zorse;

#include "zorse/Dialect/Zorse/ZorseDialect.cpp.inc"
#include "zorse/Dialect/Zorse/ZorseEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "zorse/Dialect/Zorse/ZorseAttributes.cpp.inc"

//===----------------------------------------------------------------------===//
// Assembly: `?` for the size of a sample axis, the kind of a reduction as a word
//===----------------------------------------------------------------------===//

static ParseResult parseExtents(OpAsmParser &parser, DenseI64ArrayAttr &extents) {
  SmallVector<int64_t> values;
  auto parseOne = [&]() -> ParseResult {
    if (succeeded(parser.parseOptionalQuestion())) {
      values.push_back(ShapedType::kDynamic);
      return success();
    }
    return parser.parseInteger(values.emplace_back());
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square, parseOne))
    return failure();
  extents = parser.getBuilder().getDenseI64ArrayAttr(values);
  return success();
}

static void printExtents(OpAsmPrinter &printer, Operation *, DenseI64ArrayAttr extents) {
  printer << '[';
  llvm::interleaveComma(extents.asArrayRef(), printer, [&](int64_t extent) {
    if (ShapedType::isDynamic(extent))
      printer << '?';
    else
      printer << extent;
  });
  printer << ']';
}

static ParseResult parseReduceKind(OpAsmParser &parser, ReduceKindAttr &kind) {
  StringRef word;
  SMLoc place = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<ReduceKind> value = symbolizeReduceKind(word);
  if (!value)
    return parser.emitError(place, "expects a kind of reduction (sum, max, min or prod), got '")
           << word << "'";
  kind = ReduceKindAttr::get(parser.getContext(), *value);
  return success();
}

static void printReduceKind(OpAsmPrinter &printer, Operation *, ReduceKindAttr kind) {
  printer << stringifyReduceKind(kind.getValue());
}

#define GET_OP_CLASSES
#include "zorse/Dialect/Zorse/ZorseOps.cpp.inc"

#define GET_OP_CLASSES
#include "zorse/Dialect/Zorse/SampleOps.cpp.inc"

void ZorseDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "zorse/Dialect/Zorse/ZorseAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "zorse/Dialect/Zorse/ZorseOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "zorse/Dialect/Zorse/SampleOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Argument attributes
//===----------------------------------------------------------------------===//

ArgumentAttr zorse::attributeOfArgument(FunctionOpInterface function, unsigned argument) {
  return function.getArgAttrOfType<ArgumentAttr>(argument, attributes::kArgument);
}
ArgumentAttr zorse::attributeOfResult(FunctionOpInterface function, unsigned result) {
  return function.getResultAttrOfType<ArgumentAttr>(result, attributes::kArgument);
}

LogicalResult ArgumentAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArgumentKind kind,
                                   uint32_t index, ScalarField field) {
  if (field != ScalarField::LossSeed && kind != ArgumentKind::Scalars)
    return emitError() << "expects a field only for scalars, got '" << stringifyScalarField(field)
                       << "' for " << stringifyArgumentKind(kind);
  if (field != ScalarField::LossSeed && field != ScalarField::Known && index != 0)
    return emitError() << "expects index 0 of '" << stringifyScalarField(field)
                       << "', of which there is one, got " << index;
  return success();
}

static LogicalResult verifyArgument(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() == attributes::kArgument && !isa<ArgumentAttr>(attribute.getValue()))
    return op->emitOpError("expects zorse.argument to be #zorse.argument<kind, index>, got ")
           << attribute.getValue();
  return success();
}

LogicalResult ZorseDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned,
                                                     NamedAttribute attribute) {
  return verifyArgument(op, attribute);
}
LogicalResult ZorseDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                                        NamedAttribute attribute) {
  return verifyArgument(op, attribute);
}

Operation *ZorseDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type,
                                             Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

bool zorse::isGraphTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getEncoding() || !isa<IntegerType, FloatType>(tensor.getElementType()))
    return false;
  return tensor.getRank() == 0 ||
         llvm::none_of(tensor.getShape().drop_front(), ShapedType::isDynamic);
}

bool zorse::carriesSamples(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.isDynamicDim(0);
}

int64_t zorse::elementsPerRow(RankedTensorType type) {
  int64_t elements = 1;
  for (int64_t size : type.getShape())
    elements *= ShapedType::isDynamic(size) ? 1 : size;
  return elements;
}

Type zorse::statisticElementType(Type elementType) {
  return elementType.isF64() ? elementType : Float32Type::get(elementType.getContext());
}

RankedTensorType zorse::statisticType(RankedTensorType x) {
  return RankedTensorType::get(x.getShape().drop_back(), statisticElementType(x.getElementType()));
}

RankedTensorType zorse::statisticsOfEach(RankedTensorType x) {
  SmallVector<int64_t> shape(x.getShape());
  shape.push_back(2);
  return RankedTensorType::get(shape, x.getElementType());
}

bool zorse::isAddedMask(Value mask) {
  return mask && !getElementTypeOrSelf(mask.getType()).isInteger(1);
}

RankedTensorType zorse::attentionStatisticType(RankedTensorType q, Value mask) {
  auto one = RankedTensorType::get({q.getDimSize(0), q.getDimSize(2), q.getDimSize(1)},
                                   statisticElementType(q.getElementType()));
  return isAddedMask(mask) ? statisticsOfEach(one) : one;
}
