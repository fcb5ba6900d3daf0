// Fuzzes bundles: the runtime's reader, descriptions of the bundles that it accepts, and the tools'
// reader.
#include "BundleInput.h"
#include "Fuzz.h"

#include "zorse/Bundle/BundleReader.h"
#include "zorse/runtime/Bundle.h"

#include <memory>

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  std::map<std::string, std::string> files;
  if (!bundleFiles(bytes, files))
    return false;

  std::map<std::string, std::unique_ptr<ExactCopy>> open;
  auto find = [&](const std::string &path) {
    return path.rfind("b/", 0) == 0 ? files.find(path.substr(2)) : files.end();
  };
  runtime::Result<runtime::Bundle> loaded = runtime::loadBundle(
      "b", [&](const std::string &path) -> runtime::Result<runtime::MappedFile> {
        auto file = find(path);
        if (file == files.end())
          return runtime::userError(path + ": cannot be read");
        std::unique_ptr<ExactCopy> &copy = open[path];
        if (!copy)
          copy = std::make_unique<ExactCopy>(file->second);
        return runtime::MappedFile::view(path, copy->data(), copy->size());
      });
  if (loaded.failed()) {
    ZORSE_FUZZ_EXPECT(!loaded.message().empty());
  } else {
    // Users of a Bundle may use its numbers as indices.
    for (uint32_t d = 0; d < loaded->programs.size(); ++d)
      for (const bundle::Instruction &instruction : loaded->programs[d].instructions())
        ZORSE_FUZZ_EXPECT(!runtime::describeInstruction(*loaded, d, instruction).empty());
    ZORSE_FUZZ_EXPECT(loaded->weights.size() == size_t(loaded->summary.parameters_size()));
  }

  if (!isOneIn(4, bytes)) // the second reader takes the same time
    return !loaded.failed();
  Result<bundle::BundleView> view =
      bundle::readBundle("b", [&](const std::string &path) -> Result<std::string> {
        auto file = find(path);
        if (file == files.end())
          return userError(path + ": cannot be read");
        return file->second;
      });
  ZORSE_FUZZ_EXPECT(!view.failed() || !view.message().empty());
  for (size_t d = 0; !view.failed() && d < view->devices.size() && d < 8; ++d)
    if (Result<bundle::Program> program = bundle::readProgram(*view, int(d)); program.failed())
      ZORSE_FUZZ_EXPECT(!program.message().empty());
  return !loaded.failed();
}
