#include "ConstantTable.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/APFloat.h"

#include <cstring>

using namespace mlir;
using namespace zorse;

std::optional<ConstantTable> ConstantTable::read(const View &view) {
  Attribute attribute;
  if (!matchPattern(view.base, m_Constant(&attribute)))
    return std::nullopt;
  ConstantTable table;
  table.view = view;
  if (auto dense = dyn_cast<DenseElementsAttr>(attribute)) {
    table.elements = dense;
    table.splat = dense.isSplat();
    table.bytes = dense.getRawData();
  } else if (auto resource = dyn_cast<DenseResourceElementsAttr>(attribute)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    if (!blob)
      return std::nullopt;
    table.elements = resource;
    table.bytes = blob->getData();
  } else {
    return std::nullopt;
  }
  table.type = table.elements.getElementType();
  unsigned width = table.type.getIntOrFloatBitWidth();
  if (width != 1 && width != 16 && width != 32 && width != 64)
    return std::nullopt;
  if (width == 1 && isa<DenseElementsAttr>(attribute))
    return table; // read element by element: only the attribute knows how booleans are packed
  size_t needed = (width == 1 ? 1 : width / 8) *
                  (table.splat ? 1 : table.elements.getNumElements());
  return table.bytes.size() >= needed ? std::optional(table) : std::nullopt;
}

double ConstantTable::element(int64_t index) const {
  if (splat)
    index = 0;
  unsigned width = type.getIntOrFloatBitWidth();
  if (width == 1) {
    if (auto dense = dyn_cast<DenseElementsAttr>(elements))
      return dense.getValues<bool>()[index] ? 1 : 0;
    return bytes[index] ? 1 : 0;
  }
  const char *place = bytes.data() + index * (width / 8);
  if (type.isF32()) {
    float value;
    std::memcpy(&value, place, sizeof(value));
    return value;
  }
  if (type.isF64()) {
    double value;
    std::memcpy(&value, place, sizeof(value));
    return value;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, place, width / 8); // little-endian, like all data here
  if (auto floating = dyn_cast<FloatType>(type)) {
    llvm::APFloat value(floating.getFloatSemantics(), llvm::APInt(width, bits));
    bool lost;
    value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
    return value.convertToDouble();
  }
  return static_cast<double>(llvm::APInt(width, bits).getSExtValue());
}

double ConstantTable::at(ArrayRef<int64_t> indices) const {
  int64_t index = view.offset;
  for (auto [position, dimension] : llvm::zip(indices, view.dimensions)) {
    int64_t rest = position;
    for (const ViewFactor &factor : llvm::reverse(dimension)) {
      index += rest % factor.size * factor.stride;
      rest /= factor.size;
    }
  }
  return element(index);
}
