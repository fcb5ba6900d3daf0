#include "Calls.h"

#include <utility>

using namespace zorse;
using namespace zorse::verify;

bundle::Value Binding::value() const {
  bundle::Value value;
  value.set_kind(bundle::Value::Kind(kind));
  value.set_id(id);
  value.set_cut(cut);
  value.set_begin(begin);
  value.set_end(end);
  value.set_version(version);
  return value;
}

void Calls::clear() {
  bindings.clear();
  calls.clear();
  firstOfEntry.assign(1, 0);
}

void Calls::take(const bundle::Program &program) {
  clear();
  for (const auto &entry : program.entries()) {
    for (const auto &message : entry.compute().calls()) {
      Call call{message.body(),
                message.unit(),
                message.rows(),
                message.sample_base(),
                message.instance_base(),
                uint32_t(bindings.size()),
                uint32_t(message.slots_size())};
      calls.push_back(call);
      for (const auto &slot : message.slots()) {
        const auto &value = slot.value();
        Binding binding;
        binding.region = slot.region();
        binding.kind = value.kind();
        binding.id = value.id();
        binding.cut = value.cut();
        binding.version = value.version();
        binding.begin = value.begin();
        binding.end = value.end();
        binding.overwrite = slot.overwrite();
        bindings.push_back(binding);
      }
    }
    firstOfEntry.push_back(uint32_t(calls.size()));
  }
}

bool Calls::read(const std::string &bytes, bundle::Program &program) {
  if (bytes.size() <= size_t(INT32_MAX) && split(bytes) && program.ParseFromString(rest) && size_t(program.entries_size()) + 1 == firstOfEntry.size())
    return true;
  program.Clear();
  if (!program.ParseFromString(bytes))
    return false;
  take(program);
  return true;
}

namespace {

constexpr uint64_t kNumber = 0, kBytes = 2; ///< wire types
constexpr uint64_t tagOf(uint64_t field, uint64_t type) { return field << 3 | type; }

/// Reads fields one by one, and stops (`good` false) at anything that protobuf would not have written, or might understand in another way.
struct Cursor {
  const uint8_t *at, *end;
  bool good = true;

  explicit Cursor(std::string_view bytes) : at(reinterpret_cast<const uint8_t *>(bytes.data())), end(at + bytes.size()) {}
  bool more() const { return good && at < end; }

  uint64_t number() {
    if (at < end && *at < 0x80)
      return *at++;
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const uint8_t byte = *at++;
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) {
        good = good && (shift < 63 || byte == 1);
        return value;
      }
    }
    good = false;
    return 0;
  }
  uint64_t tag() {
    const uint64_t tag = number();
    good = good && tag >> 3 && tag >> 32 == 0;
    return tag;
  }
  std::string_view bytes() {
    const uint64_t size = number();
    if (!good || size > uint64_t(end - at)) {
      good = false;
      return {};
    }
    std::string_view found(reinterpret_cast<const char *>(at), size);
    at += size;
    return found;
  }
  void skip(uint64_t tag) {
    const size_t fixed = (tag & 7) == 1 ? 8 : 4;
    switch (tag & 7) {
    case kNumber:
      number();
      break;
    case kBytes:
      bytes();
      break;
    case 1:
    case 5:
      good = good && size_t(end - at) >= fixed;
      at += good ? fixed : 0;
      break;
    default:
      good = false;
    }
  }
};

void appendNumber(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

void appendBytes(std::string &out, uint64_t field, const std::string &bytes) {
  appendNumber(out, tagOf(field, kBytes));
  appendNumber(out, bytes.size());
  out += bytes;
}

bool readRegion(std::string_view bytes, Region &region) {
  Cursor cursor(bytes);
  while (cursor.more())
    switch (cursor.tag()) {
    case tagOf(1, kNumber):
      region.arena = uint32_t(cursor.number());
      break;
    case tagOf(2, kNumber):
      region.offset = cursor.number();
      break;
    case tagOf(3, kNumber):
      region.bytes = cursor.number();
      break;
    default:
      return false;
    }
  return cursor.good;
}

bool readValue(std::string_view bytes, Binding &binding) {
  Cursor cursor(bytes);
  while (cursor.more())
    switch (cursor.tag()) {
    case tagOf(1, kNumber):
      binding.kind = int32_t(cursor.number());
      break;
    case tagOf(2, kNumber):
      binding.id = uint32_t(cursor.number());
      break;
    case tagOf(3, kNumber):
      binding.cut = uint32_t(cursor.number());
      break;
    case tagOf(4, kNumber):
      binding.begin = int64_t(cursor.number());
      break;
    case tagOf(5, kNumber):
      binding.end = int64_t(cursor.number());
      break;
    case tagOf(6, kNumber):
      binding.version = uint32_t(cursor.number());
      break;
    default:
      return false;
    }
  return cursor.good;
}

bool readBinding(std::string_view bytes, Binding &binding) {
  Cursor cursor(bytes);
  bool region = false, value = false; // protobuf merges messages that come twice
  while (cursor.more())
    switch (cursor.tag()) {
    case tagOf(1, kBytes):
      if (std::exchange(region, true) || !readRegion(cursor.bytes(), binding.region))
        return false;
      break;
    case tagOf(2, kBytes):
      if (std::exchange(value, true) || !readValue(cursor.bytes(), binding))
        return false;
      break;
    case tagOf(3, kNumber):
      binding.overwrite = cursor.number() != 0;
      break;
    default:
      return false;
    }
  return cursor.good;
}

} // namespace

bool Calls::readCall(std::string_view bytes) {
  Cursor cursor(bytes);
  Call call;
  call.firstSlot = uint32_t(bindings.size());
  while (cursor.more())
    switch (cursor.tag()) {
    case tagOf(1, kNumber):
      call.body = uint32_t(cursor.number());
      break;
    case tagOf(2, kNumber):
      call.unit = int32_t(cursor.number());
      break;
    case tagOf(3, kNumber):
      call.rows = int64_t(cursor.number());
      break;
    case tagOf(4, kNumber):
      call.sampleBase = int64_t(cursor.number());
      break;
    case tagOf(5, kNumber):
      call.instanceBase = cursor.number();
      break;
    case tagOf(6, kBytes):
      bindings.emplace_back();
      if (!readBinding(cursor.bytes(), bindings.back()))
        return false;
      break;
    default:
      return false;
    }
  call.slots = uint32_t(bindings.size()) - call.firstSlot;
  calls.push_back(call);
  return cursor.good;
}

bool Calls::splitCompute(std::string_view bytes) {
  Cursor cursor(bytes);
  compute.clear();
  while (cursor.more()) {
    const uint8_t *begin = cursor.at;
    const uint64_t tag = cursor.tag();
    if (tag == tagOf(4, kBytes)) {
      if (!readCall(cursor.bytes()))
        return false;
    } else {
      cursor.skip(tag);
      compute.append(begin, cursor.at);
    }
  }
  return cursor.good;
}

bool Calls::splitEntry(std::string_view bytes) {
  Cursor cursor(bytes);
  entry.clear();
  bool what = false; // the last one of several counts, and merges with one of its kind
  while (cursor.more()) {
    const uint8_t *begin = cursor.at;
    const uint64_t tag = cursor.tag(), field = tag >> 3;
    if (field >= 5 && field <= 15 && (std::exchange(what, true) || (tag & 7) != kBytes))
      return false;
    if (field == 5) {
      if (!splitCompute(cursor.bytes()))
        return false;
      appendBytes(entry, 5, compute);
    } else {
      cursor.skip(tag);
      entry.append(begin, cursor.at);
    }
  }
  return cursor.good;
}

/// The calls of a program; `rest` becomes the program without them.
bool Calls::split(std::string_view bytes) {
  clear();
  rest.clear();
  Cursor cursor(bytes);
  while (cursor.more()) {
    const uint8_t *begin = cursor.at;
    const uint64_t tag = cursor.tag();
    if (tag == tagOf(5, kBytes)) {
      if (!splitEntry(cursor.bytes()))
        return false;
      appendBytes(rest, 5, entry);
      firstOfEntry.push_back(uint32_t(calls.size()));
    } else {
      cursor.skip(tag);
      rest.append(begin, cursor.at);
    }
  }
  return cursor.good;
}
