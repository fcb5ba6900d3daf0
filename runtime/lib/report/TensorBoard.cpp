// Writes TensorBoard's event files: one Event message per record, in TFRecord framing.
//
//     uint64 length | uint32 masked CRC-32C of these 8 bytes
//     | the message | uint32 masked CRC-32C of the message
//
// The messages are defined in tensorflow/core/util/event.proto and core/framework/summary.proto.
// These fields are used:
//
//     Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//             SessionLog session_log = 7; }
//     Summary { repeated Value value = 1; }
//     Value { string tag = 1; float simple_value = 2; }
//     SessionLog { START = 1 in status = 1 }
#include "zorse/runtime/TensorBoard.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <unistd.h>

using namespace zorse::runtime;

namespace {

/// CRC-32C (Castagnoli polynomial, reflected).
uint32_t crc32c(const std::string &bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t = {};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0);
      t[i] = value;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes)
    crc = table[(crc ^ byte) & 0xff] ^ (crc >> 8);
  return ~crc;
}

template <typename T> std::string littleEndian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value); // x86-64 and AArch64 are both little-endian
  return bytes;
}

std::string masked(const std::string &bytes) {
  uint32_t crc = crc32c(bytes);
  return littleEndian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

// The wire format of protobuf.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += char(value | 0x80);
  return bytes + char(value);
}
std::string number(int field, uint64_t value) {
  return varint(uint64_t(field) << 3) + varint(value);
}
std::string real64(int field, double value) {
  return varint(uint64_t(field) << 3 | 1) + littleEndian(value);
}
std::string real32(int field, float value) {
  return varint(uint64_t(field) << 3 | 5) + littleEndian(value);
}
std::string blob(int field, const std::string &bytes) {
  return varint(uint64_t(field) << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string scalar(const std::string &tag, double value) {
  return blob(1, blob(1, tag) + real32(2, float(value)));
}

double secondsSinceEpoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

} // namespace

Result<std::unique_ptr<TensorBoardFile>> TensorBoardFile::open(const std::string &directory,
                                                               uint64_t lastStep, bool tokens) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  const double now = secondsSinceEpoch();
  // TensorBoard reads all event files of a directory in the order of their names.
  std::string path;
  FILE *file = nullptr;
  for (int attempt = 0; !file && attempt < 1000; ++attempt) {
    path = directory + "/events.out.tfevents." + std::to_string(uint64_t(now)) + "." + host + "." +
           std::to_string(::getpid()) + "." + std::to_string(attempt);
    file = std::fopen(path.c_str(), "wx");
    if (!file && errno != EEXIST)
      break;
  }
  if (!file)
    return userError("--tensorboard-dir " + directory + ": " + path +
                     " cannot be written: " + std::strerror(errno));
  std::unique_ptr<TensorBoardFile> writer(new TensorBoardFile(path, file, tokens));
  writer->record(real64(1, now) + blob(3, "brain.Event:2"));
  // A reader discards steps of earlier files that follow the step from which this run resumes.
  writer->record(real64(1, now) + number(2, lastStep + 1) + blob(7, number(1, 1)));
  std::fflush(file);
  return writer;
}

TensorBoardFile::~TensorBoardFile() {
  if (file_)
    std::fclose(file_);
}

void TensorBoardFile::record(const std::string &message) {
  std::string length = littleEndian<uint64_t>(message.size());
  std::string all = length + masked(length) + message + masked(message);
  if (std::fwrite(all.data(), 1, all.size(), file_) != all.size() && cause_ == 0)
    cause_ = errno;
}

void TensorBoardFile::step(const StepReport &r) {
  const std::string rate = tokens_ ? "tokens_per_second" : "samples_per_second";
  std::string values;
  if (r.evaluation) {
    values = scalar("eval_loss", r.loss);
  } else {
    values = scalar("loss", r.loss) + scalar("gradient_norm", r.gradientNorm) +
             scalar("learning_rate", r.learningRate) + scalar(rate, r.tokensPerSecond);
    if (r.lossScale > 0)
      values += scalar("loss_scale", r.lossScale);
  }
  record(real64(1, secondsSinceEpoch()) + number(2, r.step) + blob(5, values));
  if (std::fflush(file_) != 0 && cause_ == 0)
    cause_ = errno; // the run continues; close() reports the error
}

Status TensorBoardFile::close() {
  if (std::fclose(file_) != 0 && cause_ == 0)
    cause_ = errno;
  file_ = nullptr;
  return cause_ == 0 ? Status::success()
                     : Status(userError(path_ + ": cannot be written: " + std::strerror(cause_)));
}
