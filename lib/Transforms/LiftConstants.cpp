#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

namespace zorse {
#define GEN_PASS_DEF_LIFTCONSTANTS
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

/// Returns a name that depends on the content: equal constants have equal names in every model and
/// process.
static std::string nameOf(ElementsAttr value) {
  std::string type;
  llvm::raw_string_ostream(type) << value.getShapedType();
  uint64_t hash = llvm::xxh3_64bits(type);
  auto mix = [&](ArrayRef<char> bytes) {
    hash = hash * 0x9E3779B97F4A7C15ull ^ llvm::xxh3_64bits(StringRef(bytes.data(), bytes.size()));
  };
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    mix(dense.getRawData());
  else if (AsmResourceBlob *blob = cast<DenseResourceElementsAttr>(value).getRawHandle().getBlob())
    mix(blob->getData());
  return "const." + llvm::utohexstr(hash, /*LowerCase=*/true, /*Width=*/16);
}

/// Returns the elements of a causal mask that did not become an attribute of an attention.
static ElementsAttr materialise(CausalMaskOp op) {
  auto type = cast<RankedTensorType>(op.getY().getType());
  int64_t queries = type.getDimSize(0), keys = type.getDimSize(1);
  int64_t window = op.getWindow() ? static_cast<int64_t>(*op.getWindow()) : keys;
  SmallVector<bool> open;
  for (int64_t query = 0; query < queries; ++query)
    for (int64_t key = 0, last = query + keys - queries; key < keys; ++key)
      open.push_back(key <= last && key > last - window);
  if (type.getElementType().isInteger(1))
    return DenseElementsAttr::get(type, open);
  auto element = cast<FloatType>(type.getElementType());
  APFloat zero = APFloat::getZero(element.getFloatSemantics()), hidden(op.getHidden());
  bool losesInfo = false;
  hidden.convert(element.getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
  SmallVector<APFloat> values;
  for (bool isOpen : open)
    values.push_back(isOpen ? zero : hidden);
  return DenseElementsAttr::get(type, values);
}

namespace {
struct LiftConstants : zorse::impl::LiftConstantsBase<LiftConstants> {
  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model || model.isExternal())
      return;
    NamedAttrList table;
    if (auto known = getOperation()->getAttrOfType<DictionaryAttr>(kConstantValueAttr))
      table.append(known.getValue());
    Builder builder(&getContext());
    llvm::StringMap<BlockArgument> lifted;
    for (unsigned i = 0; i < model.getNumArguments(); ++i)
      if (auto name = model.getArgAttrOfType<StringAttr>(i, attributes::kParameter))
        lifted[name.getValue()] = model.getArgument(i);

    SmallVector<Operation *> constants;
    model.walk([&](Operation *op) {
      if (isa<arith::ConstantOp, CausalMaskOp>(op))
        constants.push_back(op);
    });
    for (Operation *op : constants) {
      if (op->use_empty()) {
        op->erase();
        continue;
      }
      ElementsAttr value;
      if (auto mask = dyn_cast<CausalMaskOp>(op))
        value = materialise(mask);
      else
        value = dyn_cast<ElementsAttr>(cast<arith::ConstantOp>(op).getValue());
      if (!value || value.getShapedType().getRank() == 0 ||
          (isa<DenseElementsAttr>(value) && cast<DenseElementsAttr>(value).isSplat()))
        continue;
      if (auto resource = dyn_cast<DenseResourceElementsAttr>(value);
          resource && !resource.getRawHandle().getBlob()) {
        op->emitError("expects the elements of this constant, but the text left them out; print it "
                      "in full (zorse-import --full)");
        return signalPassFailure();
      }
      std::string name = nameOf(value);
      BlockArgument &argument = lifted[name];
      if (!argument) {
        DictionaryAttr described = builder.getDictionaryAttr(
            {builder.getNamedAttr(attributes::kParameter, builder.getStringAttr(name)),
             builder.getNamedAttr(attributes::kTrainable, builder.getBoolAttr(false)),
             builder.getNamedAttr(attributes::kConstant, builder.getUnitAttr())});
        unsigned index = model.getNumArguments();
        if (failed(model.insertArgument(index, value.getShapedType(), described, op->getLoc())))
          return signalPassFailure();
        argument = model.getArgument(index);
        table.set(name, value);
      }
      op->getResult(0).replaceAllUsesWith(argument);
      op->erase();
    }
    if (!table.empty())
      getOperation()->setAttr(kConstantValueAttr, table.getDictionary(&getContext()));
  }
};
} // namespace
