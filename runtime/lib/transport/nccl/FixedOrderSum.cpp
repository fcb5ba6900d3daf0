#include "FixedOrderSum.h"

#include <algorithm>

using namespace zorse::runtime;

namespace {

/// Numbers that begin `stride` bytes apart.
struct Places {
  DeviceAddress begin;
  uint64_t stride;
  DeviceAddress at(size_t i) const { return begin + i * stride; }
};

Status call(uint32_t function, const std::vector<DeviceAddress> &addresses, int64_t elements,
            WorkStream &stream) {
  FunctionCall call;
  call.function = function;
  call.arguments.rows = elements;
  call.arguments.addresses = addresses.data();
  return stream.call(call);
}

/// Adds `count` terms in their order, at most `max` operands at a time.
/// \param functionOf  of a number of operands, the first of which may be the sum so far
template <typename FunctionOf>
Status addInOrder(Places terms, size_t count, Places partials, size_t max, DeviceAddress sum,
                  int64_t elements, WorkStream &stream, FunctionOf functionOf) {
  if (count < 2 || max < 2)
    return internalError("no function adds " + std::to_string(count) + " terms");
  size_t next = 0, latest = 1; // partial sum
  while (next < count) {
    std::vector<DeviceAddress> addresses;
    const bool continues = next > 0;
    if (continues)
      addresses = {partials.at(latest)};
    while (addresses.size() < max && next < count)
      addresses.push_back(terms.at(next++));
    latest = 1 - latest;
    addresses.push_back(next == count ? sum : partials.at(latest));
    if (Status status =
            call(functionOf(addresses.size() - 1, continues), addresses, elements, stream);
        status.failed())
      return status;
  }
  return Status::success();
}

} // namespace

Status nccl::addTerms(const DeviceSums &sums, NumberType type, DeviceAddress terms, uint64_t stride,
                      size_t count, DeviceAddress sum, int64_t elements, WorkStream &stream) {
  const Places places{terms, stride};
  return addInOrder(places, count, {places.at(count), stride}, sums.max(type), sum, elements,
                    stream,
                    [&](size_t operands, bool) { return sums.function(type, uint32_t(operands)); });
}

Status nccl::addRoundedTerms(const RoundedSumFunctions &sums, DeviceAddress terms, uint64_t stride,
                             size_t count, DeviceAddress partials, uint64_t partialStride,
                             DeviceAddress sum, int64_t elements, WorkStream &stream) {
  return addInOrder({terms, stride}, count, {partials, partialStride}, sums.maxTerms(), sum,
                    elements, stream, [&](size_t operands, bool continues) {
                      return (continues ? sums.next : sums.first)[operands - 2];
                    });
}

Status nccl::roundTerm(const RoundedSumFunctions &sums, DeviceAddress term, DeviceAddress rounded,
                       int64_t elements, WorkStream &stream) {
  return call(sums.round, {term, rounded}, elements, stream);
}
