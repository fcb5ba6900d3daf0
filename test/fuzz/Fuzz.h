// What every fuzz target is made of (docs/fuzzing.md): a reader under test, and mutators that know the format.
//
// A target defines readOne(); Entry.cpp calls it for libFuzzer, Replay.cpp in builds without libFuzzer. A target whose format a blind change would
// only break defines LLVMFuzzerCustomMutator by one of the mutators below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class Message;
}

extern "C" {
/// libFuzzer's own changes of bytes; Replay.cpp has its own where there is no libFuzzer.
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);
/// Defined by targets that know their format.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t oneSize, const uint8_t *other, size_t otherSize, uint8_t *out, size_t outMaxSize,
                                 unsigned seed);
}

namespace zorse::fuzz {

using Random = std::minstd_rand;

/// Defined by each target: hands the bytes to the reader, and what it accepts to whatever relies on it.
///
/// \returns whether the reader accepted them: the share is printed at the end, and shows that inputs get past the first checks.
bool readOne(std::string_view bytes);

/// What holds of the reader whatever the input. Prints and aborts: a finding.
#define ZORSE_FUZZ_EXPECT(condition) ((condition) ? (void)0 : ::zorse::fuzz::broken(#condition, __FILE__, __LINE__))
[[noreturn]] void broken(const char *condition, const char *file, int line);

/// Whether an input is one of those, one in n, that get what would take too long for all; decided by its bytes, so that it gets the same again.
bool isOneIn(unsigned n, std::string_view bytes);

/// Reads every byte, so that a view beyond its memory is seen.
uint64_t touch(const void *data, size_t size);

/// A copy of bytes in memory of exactly that size: reading behind it is seen. Kept until the object dies.
class ExactCopy {
public:
  explicit ExactCopy(std::string_view bytes);
  ~ExactCopy() { delete[] data_; }
  ExactCopy(const ExactCopy &) = delete;
  const char *data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }

private:
  char *data_;
  size_t size_;
};

/// A file in memory (tmpfs) that is rewritten for every input; removed at the end.
class ScratchFile {
public:
  /// \param name  its name, suffix included, in a directory of this process's own.
  explicit ScratchFile(const std::string &name);
  const std::string &write(std::string_view bytes);
  const std::string &path() const { return path_; }

private:
  std::string path_;
  int handle_ = -1; // open until the process ends
};
/// That directory, ending with '/'.
const std::string &scratchDirectory();

// Mutators. Each makes one to four changes and keeps the format; about one time in ten they change plain bytes instead.

/// Bytes of one serialised message of the prototype's type: fields and elements are set, removed, repeated, exchanged and moved about, numbers take
/// values near their own, of other fields or at the borders of types.
size_t mutateMessage(const google::protobuf::Message &prototype, uint8_t *data, size_t size, size_t maxSize, unsigned seed);
void mutateMessage(google::protobuf::Message &message, Random &random);
/// Puts parts of `other` where `one` has parts of the same type.
size_t crossMessages(const google::protobuf::Message &prototype, const uint8_t *one, size_t oneSize, const uint8_t *other, size_t otherSize,
                     uint8_t *out, size_t outMaxSize, unsigned seed);

std::string mutateJson(std::string_view text, Random &random);

/// Words, numbers, lines and indentation of a text format are exchanged among each other and for `words`.
std::string mutateText(std::string_view text, const std::vector<const char *> &words, Random &random);

/// libFuzzer's changes of a string, to at most `maxSize` bytes.
std::string mutateBytes(std::string_view bytes, size_t maxSize);

/// Writes a mutator's result where libFuzzer wants it.
size_t put(const std::string &bytes, uint8_t *data, size_t maxSize);

/// Numbers at which readers err: borders of types, powers of two, small ones.
int64_t oddNumber(Random &random);

} // namespace zorse::fuzz
