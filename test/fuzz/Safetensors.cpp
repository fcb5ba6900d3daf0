// Fuzzes checkpoints (safetensors): the reader, and loading parameters from accepted files into an
// executor that runs nothing.
#include "Fuzz.h"
#include "TwoDevices.h"

#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Safetensors.h"
#include "zorse/runtime/State.h"

#include <cstring>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Two devices that each own a half of w [4]. No file stores w transposed, and every valid
/// checkpoint contains it.
struct Loading {
  test::TwoDevices two{fuzz::scratchDirectory()};
  std::unique_ptr<Executor> executor;
  fuzz::ScratchFile file{"checkpoint.safetensors"};

  Loading() {
    two.bundle.functions.clear_objects();
    two.bundle.functions.clear_functions();
    for (bundle::Program &program : two.bundle.programs) {
      program.clear_instructions();
      program.clear_queues();
    }
    auto transports = makeLocalTransports(2);
    std::vector<LocalDevice> locals;
    for (uint32_t d = 0; d < 2; ++d)
      locals.push_back(
          {d, withThreads(std::move(*CpuDevice::create({}))), std::move(transports[d])});
    Result<std::unique_ptr<Executor>> made = Executor::create(two.bundle, std::move(locals), {});
    ZORSE_FUZZ_EXPECT(!made.failed());
    executor = std::move(*made);
  }
};

} // namespace

bool fuzz::readOne(std::string_view bytes) {
  Result<SafetensorsFile> file =
      SafetensorsFile::parse(MappedFile::view("c.safetensors", bytes.data(), bytes.size()));
  if (file.failed()) {
    ZORSE_FUZZ_EXPECT(!file.message().empty());
    return false;
  }
  for (const auto &[name, tensor] : file->tensors()) {
    ZORSE_FUZZ_EXPECT(uint64_t(elementCount(tensor.shape).value_or(-1)) * bytesOf(tensor.type) ==
                      tensor.bytes);
    touch(tensor.data, tensor.bytes);
  }
  static Loading loading;
  std::string note;
  Status status =
      loadState(*loading.executor, loading.two.bundle, loading.file.write(bytes), &note);
  ZORSE_FUZZ_EXPECT(status.succeeded() || !status.message().empty());
  return true;
}

/// Mutates the header in its format and corrects its length; sometimes also mutates the bytes after
/// it.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  fuzz::Random random(seed);
  uint64_t length = 0;
  if (size >= 8)
    memcpy(&length, data, 8);
  if (size < 8 || length > size - 8 || random() % 5 == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string_view all(reinterpret_cast<char *>(data), size);
  std::string header = fuzz::mutateJson(all.substr(8, length), random),
              rest(all.substr(8 + length));
  if (random() % 4 == 0)
    rest.resize(random() % (2 * rest.size() + 64));
  length = header.size();
  return fuzz::put(std::string(reinterpret_cast<char *>(&length), 8) + header + rest, data,
                   maxSize);
}
