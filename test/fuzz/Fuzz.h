// The parts of a fuzz target (docs/internals/testing.md): a reader under test, and mutators that
// know the format.
//
// A target defines readOne(). Entry.cpp calls it for libFuzzer, Replay.cpp in builds without
// libFuzzer. If changes of bytes would only break the format, the target also defines
// LLVMFuzzerCustomMutator with one of the mutators below.
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
/// libFuzzer's changes of bytes. Replay.cpp defines a replacement for builds without libFuzzer.
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);
/// Defined by targets that know their format.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t oneSize, const uint8_t *other,
                                 size_t otherSize, uint8_t *out, size_t outMaxSize, unsigned seed);
}

namespace zorse::fuzz {

using Random = std::minstd_rand;

/// Defined by each target. Passes the bytes to the reader, and the accepted result to the code that
/// relies on it.
///
/// \returns whether the reader accepted the bytes. The fraction is printed at the end and shows
/// that inputs pass the first checks.
bool readOne(std::string_view bytes);

/// A condition that must hold for every input. If it does not, prints it and aborts, which is a
/// finding.
#define ZORSE_FUZZ_EXPECT(condition)                                                               \
  ((condition) ? (void)0 : ::zorse::fuzz::broken(#condition, __FILE__, __LINE__))
[[noreturn]] void broken(const char *condition, const char *file, int line);

/// Whether an input is one of every `n` inputs. Used for checks that are too slow for all inputs.
/// The result depends only on the bytes, so that it is reproducible.
bool isOneIn(unsigned n, std::string_view bytes);

/// Reads every byte, so that a sanitizer detects a view beyond its memory.
uint64_t touch(const void *data, size_t size);

/// Owns a copy of bytes in an allocation of exactly this size, so that a sanitizer detects reads
/// beyond the end.
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

/// A file in memory (tmpfs) that is rewritten for every input and removed at the end.
class ScratchFile {
public:
  /// \param name  file name with suffix, in a directory of this process.
  explicit ScratchFile(const std::string &name);
  const std::string &write(std::string_view bytes);
  const std::string &path() const { return path_; }

private:
  std::string path_;
  int handle_ = -1; // open until the process ends
};
/// The directory of scratch files, ending with '/'.
const std::string &scratchDirectory();

// Mutators. Each makes one to four changes and keeps the format. About one time in ten, it changes
// plain bytes instead.

/// Mutates one serialized message of the prototype's type. Sets, removes, repeats, swaps and moves
/// fields and elements; replaces numbers by close values, values of other fields or limits of
/// types.
size_t mutateMessage(const google::protobuf::Message &prototype, uint8_t *data, size_t size,
                     size_t maxSize, unsigned seed);
void mutateMessage(google::protobuf::Message &message, Random &random);
/// Replaces parts of `one` by parts of `other` with the same type.
size_t crossMessages(const google::protobuf::Message &prototype, const uint8_t *one, size_t oneSize,
                     const uint8_t *other, size_t otherSize, uint8_t *out, size_t outMaxSize,
                     unsigned seed);

std::string mutateJson(std::string_view text, Random &random);

/// Mutates a text: swaps words, numbers, lines and indentation, and inserts `words`.
std::string mutateText(std::string_view text, const std::vector<const char *> &words,
                       Random &random);

/// Applies libFuzzer's changes to a string; the result has at most `maxSize` bytes.
std::string mutateBytes(std::string_view bytes, size_t maxSize);

/// Copies a mutator's result to libFuzzer's buffer.
size_t put(const std::string &bytes, uint8_t *data, size_t maxSize);

/// A number at which readers often have errors: limits of types, powers of two, small numbers.
int64_t oddNumber(Random &random);

} // namespace zorse::fuzz
