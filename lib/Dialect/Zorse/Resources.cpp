#include "zorse/Dialect/Zorse/Resources.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;

ElementsAttr zorse::bytesAttr(MLIRContext *context, llvm::StringRef name, std::string bytes) {
  auto type = RankedTensorType::get({int64_t(bytes.size())}, IntegerType::get(context, 8));
  auto *owned = new std::string(std::move(bytes));
  auto blob = UnmanagedAsmResourceBlob::allocateInferAlign(
      ArrayRef<char>(owned->data(), owned->size()),
      [owned](void *, size_t, size_t) { delete owned; });
  return DenseResourceElementsAttr::get(type, name, std::move(blob));
}

std::optional<llvm::StringRef> zorse::bytesOf(Attribute attribute) {
  auto resource = llvm::dyn_cast_if_present<DenseResourceElementsAttr>(attribute);
  AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
  return blob ? std::optional(llvm::StringRef(blob->getData().data(), blob->getData().size()))
              : std::nullopt;
}

Attribute zorse::fileAttr(MLIRContext *context, const FileText &file) {
  Builder b(context);
  return b.getDictionaryAttr({b.getNamedAttr("path", b.getStringAttr(file.path)),
                              b.getNamedAttr("text", b.getStringAttr(file.text))});
}

std::optional<zorse::FileText> zorse::fileOf(Attribute attribute) {
  auto file = llvm::dyn_cast_if_present<DictionaryAttr>(attribute);
  auto path = file ? file.getAs<StringAttr>("path") : StringAttr(),
       text = file ? file.getAs<StringAttr>("text") : StringAttr();
  return path && text ? std::optional(FileText{path.str(), text.str()}) : std::nullopt;
}
