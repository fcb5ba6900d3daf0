#include "KernelSet.h"

#include "KernelCache.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SHA256.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

using namespace llvm;
using namespace zorse::codegen;

/// Increase this whenever the lowering of an unchanged text changes. Objects of other versions are
/// then not found in the cache.
static constexpr const char *kLoweringVersion = "10";

KernelSet::~KernelSet() = default;

KernelSet::KernelSet(const CodegenOptions &options, std::string target)
    : options(options), target(std::move(target)), cache(KernelCache::open(options)) {}

/// Prints a self-contained module, independent of the printing options of the command line.
static std::string print(mlir::ModuleOp kernel) {
  mlir::OpPrintingFlags flags;
  flags.elideLargeElementsAttrs(std::numeric_limits<int64_t>::max())
      .printNameLocAsPrefix(false)
      .enableDebugInfo(false);
  std::string text;
  raw_string_ostream out(text);
  kernel->print(out, flags);
  return text;
}

std::string KernelSet::textOf(mlir::ModuleOp kernel) {
  mlir::OwningOpRef<mlir::ModuleOp> copy = kernel.clone(); // inside another operation, the values
                                                           // would be numbered with that operation
  copy->removeSymNameAttr();
  return print(*copy);
}

std::string KernelSet::add(StringRef hint, mlir::OwningOpRef<mlir::ModuleOp> kernel) {
  const std::string text = print(*kernel);
  SHA256 hash;
  for (StringRef part : {StringRef(kLoweringVersion), StringRef(LLVM_VERSION_STRING),
                         StringRef(target), StringRef(text)}) {
    hash.update(part);
    hash.update(StringRef("\0", 1));
  }
  hash.update(utostr(options.optimizationLevel));
  std::string symbol =
      (hint + "_" + toHex(ArrayRef<uint8_t>(hash.final()).take_front(12), /*LowerCase=*/true))
          .str();
  auto [place, isNew] = sources.try_emplace(symbol, *kernel);
  if (!isNew)
    return symbol;
  kernel->setSymName(symbol);
  if (!nursery)
    nursery = mlir::ModuleOp::create(kernel->getLoc());
  nursery->push_back(kernel.release());
  return symbol;
}

std::string KernelSet::dumpOf(const std::string &symbol) const {
  return options.dumpDir.empty() ? std::string() : options.dumpDir + "/" + symbol;
}

void KernelSet::moveTo(mlir::Block &block) {
  for (auto &[symbol, kernel] : sources)
    kernel->moveBefore(&block, block.end());
}

void KernelSet::refer(mlir::Block &block) {
  for (auto kernel : block.getOps<mlir::ModuleOp>())
    sources.try_emplace(kernel.getSymName()->str(), kernel);
}

Expected<std::string> KernelSet::link(unsigned &compiled) {
  if (!options.dumpDir.empty())
    if (auto error = sys::fs::create_directories(options.dumpDir))
      return createStringError(error, "cannot make " + options.dumpDir);
  Objects objects;
  std::vector<unsigned> missing;
  for (auto &[symbol, kernel] : sources)
    objects.push_back({symbol, {}});
  for (auto [index, object] : enumerate(objects)) {
    if (cache && options.dumpDir.empty())
      if (std::optional<std::string> cached = cache->find(object.first)) {
        object.second = std::move(*cached);
        continue;
      }
    missing.push_back(index);
  }
  compiled = missing.size();

  std::vector<std::string> errors(missing.size()), texts;
  for (unsigned index : missing)
    texts.push_back(textOf(sources.at(objects[index].first)));
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < missing.size();) {
      auto &object = objects[missing[i]];
      Expected<std::string> bytes = compile(object.first, texts[i]);
      if (!bytes) {
        errors[i] = toString(bytes.takeError());
        continue;
      }
      object.second = std::move(*bytes);
      if (cache)
        cache->keep(object.first, object.second);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(std::max(1u, options.threads), missing.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &error : errors)
    if (!error.empty())
      return createStringError(error);
  return join(objects);
}
