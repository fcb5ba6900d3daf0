#include "FixedOrderSum.h"

#include <algorithm>

using namespace zorse::runtime;

Status nccl::addTerms(const DeviceSums &sums, NumberType type, DeviceAddress terms, uint64_t stride,
                      size_t count, DeviceAddress sum, int64_t elements, WorkStream &stream) {
  const size_t max = sums.max(type);
  if (count < 2 || max < 2)
    return internalError("no function adds " + std::to_string(count) + " terms");
  std::vector<DeviceAddress> addresses;
  size_t next = 0;
  bool other = false; // which of the two partial sums is the latest
  while (next < count) {
    if (next > 0)
      addresses = {terms + (count + (other ? 1 : 0)) * stride}; // the sum so far
    while (addresses.size() < max && next < count)
      addresses.push_back(terms + next++ * stride);
    other = !other;
    addresses.push_back(next == count ? sum : terms + (count + (other ? 1 : 0)) * stride);
    FunctionCall call;
    call.function = sums.function(type, uint32_t(addresses.size() - 1));
    call.arguments.rows = elements;
    call.arguments.addresses = addresses.data();
    if (Status status = stream.call(call); status.failed())
      return status;
    addresses.clear();
  }
  return Status::success();
}
