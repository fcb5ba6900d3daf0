#include "Diagnostics.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/WithColor.h"

using namespace mlir;

namespace zorse::pipelines {

namespace {

/// Returns the names of the ONNX nodes of a location; for a fused location of many names, the
/// first.
std::string nameOf(Location location) {
  return llvm::TypeSwitch<LocationAttr, std::string>(location)
      .Case([](NameLoc loc) { return loc.getName().str(); })
      .Case([](FusedLoc loc) {
        for (Location part : loc.getLocations())
          if (std::string name = nameOf(part); !name.empty())
            return name;
        return std::string();
      })
      .Case([](CallSiteLoc loc) { return nameOf(loc.getCallee()); })
      .Case([](FileLineColLoc loc) {
        return loc.getFilename().str() + ":" + std::to_string(loc.getLine()) + ":" +
               std::to_string(loc.getColumn());
      })
      .Default([](LocationAttr) { return std::string(); });
}

void print(const Diagnostic &diagnostic, StringRef file, bool note) {
  llvm::raw_ostream &os = llvm::errs();
  switch (diagnostic.getSeverity()) {
  case DiagnosticSeverity::Error:
    llvm::WithColor::error(os);
    break;
  case DiagnosticSeverity::Warning:
    llvm::WithColor::warning(os);
    break;
  case DiagnosticSeverity::Note:
  case DiagnosticSeverity::Remark:
    os << (note ? "  " : "");
    llvm::WithColor::note(os);
    break;
  }
  std::string message = diagnostic.str();
  std::string name = nameOf(diagnostic.getLocation());
  StringRef base = llvm::sys::path::filename(file);
  if (!StringRef(message).contains(base) && !StringRef(name).contains(base))
    os << file << ": ";
  if (!name.empty() && !StringRef(message).contains("'" + name + "'"))
    os << "'" << name << "': ";
  os << message << '\n';
  for (const Diagnostic &inner : diagnostic.getNotes())
    print(inner, file, true);
}

} // namespace

DiagnosticPrinter::DiagnosticPrinter(MLIRContext *context, std::string file) : context(context) {
  handler = context->getDiagEngine().registerHandler(
      [this, file = std::move(file)](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == DiagnosticSeverity::Remark)
          remarks += (remarks.empty() ? "" : ", ") + diagnostic.str();
        else
          print(diagnostic, file, false);
        return success();
      });
}

DiagnosticPrinter::~DiagnosticPrinter() { context->getDiagEngine().eraseHandler(handler); }

void printError(const std::string &message) {
  SmallVector<StringRef> lines;
  StringRef(message).split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (StringRef line : lines)
    line.starts_with(" ") ? llvm::errs() << line << '\n'
                          : llvm::WithColor::error(llvm::errs()) << line << '\n';
}

LogicalResult told(const Status &status) {
  if (status.failed())
    printError(status.message());
  return success(status.succeeded());
}

std::string counted(size_t count, const char *word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

std::string megabytes(uint64_t bytes) {
  return bytes < (1 << 20) ? llvm::formatv("{0:f0} KiB", bytes / 1024.0).str()
                           : llvm::formatv("{0:f1} MiB", bytes / double(1 << 20)).str();
}

} // namespace zorse::pipelines
