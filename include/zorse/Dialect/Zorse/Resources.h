// Data in a module: texts of files; and bytes, which are large and have a schema of their own, such as bodies, machine code and programs.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace zorse {

/// A resource that takes `bytes` over, which are freed with the context. \param name  of it in texts; one that is taken gets a number.
mlir::ElementsAttr bytesAttr(mlir::MLIRContext *context, llvm::StringRef name, std::string bytes);

/// The bytes of such an attribute, which live as long as the context; nothing where it is null, of another kind, or was left out of a text.
std::optional<llvm::StringRef> bytesOf(mlir::Attribute attribute);

/// Reads the serialised message that such an attribute holds; false: it holds none.
template <typename Message> bool parseBytes(mlir::Attribute attribute, Message &message) {
  const std::optional<llvm::StringRef> bytes = bytesOf(attribute);
  return bytes && message.ParseFromArray(bytes->data(), int(bytes->size()));
}

/// A file, with its path for messages: {path = "...", text = "..."}.
struct FileText {
  std::string path, text;
};
mlir::Attribute fileAttr(mlir::MLIRContext *context, const FileText &file);
/// Nothing where the attribute is null or another one.
std::optional<FileText> fileOf(mlir::Attribute attribute);

} // namespace zorse
