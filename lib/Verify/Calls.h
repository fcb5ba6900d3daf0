// The calls of a program: nearly all of it, as every cell binds the slots of every body it calls. Rows of numbers, in place of some million small
// messages.
//
// The names are those of the messages (bundle.proto): bundle::Call, SlotBinding, Region, Value.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::verify {

struct Region {
  uint32_t arena = 0;
  uint64_t offset = 0, bytes = 0;
  Region() = default;
  Region(const bundle::Region &region) : arena(region.arena()), offset(region.offset()), bytes(region.bytes()) {}
};

struct Binding {
  Region region;
  int32_t kind = 0; ///< with the next five: bundle::Value
  uint32_t id = 0, cut = 0, version = 0;
  int64_t begin = 0, end = 0;
  bool overwrite = false;

  bundle::Value value() const; ///< for messages to people, and for the few that are read as transfers are
};

struct Call {
  uint32_t body = 0;
  int32_t unit = 0;
  int64_t rows = 0, sampleBase = 0;
  uint64_t instanceBase = 0;
  uint32_t firstSlot = 0, slots = 0; ///< in Calls::bindings
};

class Calls {
public:
  /// Those of a program in memory.
  void take(const bundle::Program &program);

  /// Those of a serialised program, and the program without them. Only what is written as protobuf writes it is read here; everything else is left to
  /// protobuf: what it makes of the bytes is what they mean, as the runtime reads them in this way.
  /// \returns false if the bytes are no program.
  bool read(const std::string &bytes, bundle::Program &program);

  struct Range {
    const Call *first, *last;
    const Call *begin() const { return first; }
    const Call *end() const { return last; }
    size_t size() const { return size_t(last - first); }
  };
  Range of(int entry) const { return {calls.data() + firstOfEntry[size_t(entry)], calls.data() + firstOfEntry[size_t(entry) + 1]}; }
  const Binding *slotsOf(const Call &call) const { return bindings.data() + call.firstSlot; }

  std::vector<Binding> bindings; ///< of all calls, in order
  std::vector<Call> calls;
  std::vector<uint32_t> firstOfEntry; ///< in `calls`, and the end

private:
  std::string rest, entry, compute; ///< scratch of `read`: serialised messages without their calls

  void clear();
  bool split(std::string_view bytes);
  bool splitEntry(std::string_view bytes);
  bool splitCompute(std::string_view bytes);
  bool readCall(std::string_view bytes);
};

} // namespace zorse::verify
