// Token files: llm.c's .bin, uint16 .bin, and bytes.
#include "DataInputs.h"
#include "Fuzz.h"

#include "data/Files.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const runtime::Bundle bundle = dataBundle(/*tokensOnly=*/true);
  static ScratchFile tokens("tokens.bin"), text("tokens.txt");
  bool good = false;
  for (const char *name : {"t.bin", "t.txt"}) {
    runtime::Result<runtime::TokenFile> file = runtime::TokenFile::parse(runtime::MappedFile::view(name, bytes.data(), bytes.size()));
    if (file.failed())
      continue;
    for (uint64_t i = 0; i < file->count(); ++i)
      ZORSE_FUZZ_EXPECT(file->at(i) >= 0 && file->at(i) <= int64_t(UINT32_MAX));
    good |= readBatches(bundle, (name[2] == 'b' ? tokens : text).write(bytes));
  }
  return good;
}
