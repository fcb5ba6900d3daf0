// Fuzzes the reader of NumPy's .npy format, for model inputs of several types and shapes.
#include "DataInputs.h"
#include "Fuzz.h"

#include "data/Files.h"

#include <cstring>

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const runtime::Bundle bundle = dataBundle(/*tokensOnly=*/false);
  static ScratchFile array("x.npy");
  runtime::Result<runtime::ArrayFile> file =
      runtime::ArrayFile::parse(runtime::DataFile::view("x.npy", bytes.data(), bytes.size()));
  if (file.failed()) {
    ZORSE_FUZZ_EXPECT(!file.message().empty());
    return false;
  }
  uint64_t count = uint64_t(runtime::elementCount(file->shape()).value_or(0));
  std::vector<std::byte> elements(count * runtime::bytesOf(file->type()));
  ZORSE_FUZZ_EXPECT(file->read(0, count, elements.data()).succeeded());
  if (!isOneIn(4, bytes)) // opening files takes longer than reading them
    return true;
  // Read it for every model input with this shape.
  const std::string &path = array.write(bytes);
  for (const bundle::GraphInput &input : bundle.summary.inputs()) {
    runtime::Bundle one;
    one.batch = bundle.batch;
    *one.summary.add_inputs() = input;
    readBatches(one, input.name() + "=" + path);
  }
  return true;
}

/// Mutates the header as text and corrects its length.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  static const std::vector<const char *> words = {"'descr'", "'fortran_order'",
                                                  "'shape'", ": ",
                                                  "'<f8'",   "'<f4'",
                                                  "'<f2'",   "'<i8'",
                                                  "'<i4'",   "'<i2'",
                                                  "'|i1'",   "'<u8'",
                                                  "'<u4'",   "'<u2'",
                                                  "'|u1'",   "'|b1'",
                                                  "False",   "True",
                                                  "(",       ")",
                                                  "{",       "}",
                                                  ", ",      "'"};
  fuzz::Random random(seed);
  uint16_t length = 0;
  if (size >= 10)
    memcpy(&length, data + 8, 2);
  if (size < 10u + length || random() % 4 == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string_view all(reinterpret_cast<char *>(data), size);
  std::string header = fuzz::mutateText(all.substr(10, length), words, random),
              rest(all.substr(10 + length));
  if (random() % 4 == 0)
    rest.resize(random() % (2 * rest.size() + 64));
  length = uint16_t(header.size());
  return fuzz::put(std::string(all.substr(0, 8)) +
                       std::string(reinterpret_cast<char *>(&length), 2) + header + rest,
                   data, maxSize);
}
