// The logical value behind a region: what bundle::Value says, with sizes from the summary.
#pragma once

#include "Device.h"

namespace zorse::verify {

struct Logical {
  bundle::Value::Kind kind = bundle::Value::NONE;
  uint32_t id = 0, cut = 0;
  int64_t begin = 0, end = 0; ///< elements of state, samples of the rest
  uint32_t version = 0;
  int64_t stride = 0;         ///< bytes per element or sample; 0: indivisible
  int64_t bytes = 0;          ///< of the whole value
  int64_t parameter = -1;     ///< the one parameter whose elements it is
  Intervals intervals;        ///< of its region; set by the replay
};

/// Sizes of a declared value. Reports a finding and returns false when the value does not exist or `bytes` is not its size.
bool fromDeclared(Device &device, const bundle::Entry &entry, const bundle::Value &value, uint64_t bytes, Logical &out);

/// What a slot of a call must hold: from plan and summary for unit functions, from the declared value's extent for updates, norms and loss sums.
/// Reports a finding and returns false when the slot makes no sense there or its size is not its value's.
bool fromSlot(Device &device, const bundle::Entry &entry, const bundle::Call &call, int slot, Logical &out);

} // namespace zorse::verify
