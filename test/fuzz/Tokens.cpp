// Fuzzes the readers of token files: llm.c's .bin, .bin of integers, and bytes.
#include "DataInputs.h"
#include "Fuzz.h"

#include "data/Files.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const runtime::Bundle bundle = dataBundle(/*tokensOnly=*/true);
  static ScratchFile tokens("tokens.bin"), text("tokens.txt");
  bool good = false;
  for (const char *name : {"t.bin", "t.txt"}) {
    runtime::Result<runtime::TokenFile> file =
        runtime::TokenFile::parse(runtime::DataFile::view(name, bytes.data(), bytes.size()), {});
    if (file.failed())
      continue;
    std::vector<int64_t> all(file->count());
    ZORSE_FUZZ_EXPECT(file->read(0, all.size(), all.data()).succeeded());
    for (int64_t token : all)
      ZORSE_FUZZ_EXPECT(token >= 0 && token <= int64_t(UINT32_MAX));
    good = true;
    if (isOneIn(16, bytes)) // opening files takes longer than reading them
      (void)readBatches(bundle,
                        name[2] == 'b' ? tokens.write(bytes) : "bytes:" + text.write(bytes));
  }
  return good;
}
