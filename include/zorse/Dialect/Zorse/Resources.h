// Data in module attributes: texts of files, and large binary data with a separate schema, such as
// compiled functions, machine code and programs.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace zorse {

/// Creates a resource that owns `bytes`; they are freed with the context.
///
/// \param name  its name in textual IR; a number is appended if the name is in use.
mlir::ElementsAttr bytesAttr(mlir::MLIRContext *context, llvm::StringRef name, std::string bytes);

/// Returns the bytes of such an attribute, which live as long as the context. Returns nullopt if
/// the attribute is null or of another kind, or if its bytes were elided from a text.
std::optional<llvm::StringRef> bytesOf(mlir::Attribute attribute);

/// Parses the serialized message in such an attribute. Returns false if it contains none.
template <typename Message> bool parseBytes(mlir::Attribute attribute, Message &message) {
  const std::optional<llvm::StringRef> bytes = bytesOf(attribute);
  return bytes && message.ParseFromArray(bytes->data(), int(bytes->size()));
}

/// A file, with its path for messages: {path = "...", text = "..."}.
struct FileText {
  std::string path, text;
};
mlir::Attribute fileAttr(mlir::MLIRContext *context, const FileText &file);
/// Returns nullopt if the attribute is null or of another kind.
std::optional<FileText> fileOf(mlir::Attribute attribute);

} // namespace zorse
