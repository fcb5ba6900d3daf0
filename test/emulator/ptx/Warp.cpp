#include "Warp.h"

using namespace zorse::emulator::ptx;

void Warp::reset(uint32_t firstThread, size_t registers) {
  first = firstThread;
  turn = 0;
  steps = 0;
  for (Lane &lane : lanes)
    lane = Lane();
  values.assign(registers * 32, 0);
  undefinedBits.assign(registers * 32, ~uint64_t(0));
  undefinedLanes.assign(registers, ~0u);
}

namespace {

/// The undefined bits of a result.
uint64_t undefinedOf(const Warp &warp, const Instruction &i, uint32_t lane) {
  const ScalarOperation &operation = *i.scalar;
  uint64_t values[3] = {}, undefined[3] = {}, any = 0;
  for (uint8_t k = 0; k < operation.sources; ++k) {
    values[k] = warp.valueOf(i.sources[k], lane);
    undefined[k] = warp.undefinedOf(i.sources[k], lane) & maskOf(operation.sourceBits[k]);
    any |= undefined[k];
  }
  const uint64_t all = maskOf(operation.resultBits);
  switch (operation.definedness) {
  case Definedness::Strict:
    return any ? all : 0;
  case Definedness::And: // a defined 0 gives a defined result
    return (undefined[0] | undefined[1]) & (undefined[0] | values[0]) & (undefined[1] | values[1]) &
           all;
  case Definedness::Or:
    return (undefined[0] | undefined[1]) & (undefined[0] | ~values[0]) &
           (undefined[1] | ~values[1]) & all;
  case Definedness::Xor:
    return any & all;
  case Definedness::Routed:
    break;
  }
  uint64_t routed[3] = {};
  for (uint8_t k = 0; k < operation.sources; ++k)
    if (k >= operation.data && undefined[k])
      return all;
    else
      routed[k] = k < operation.data ? undefined[k] : values[k];
  return operation.function(routed[0], routed[1], routed[2]) & all;
}

} // namespace

void zorse::emulator::ptx::executeScalar(Warp &warp, const Instruction &i, uint32_t lanes) {
  const ScalarOperation &operation = *i.scalar;
  if (i.results[0] < 0)
    return;
  const uint64_t *from[3] = {&i.sources[0].value, &i.sources[0].value, &i.sources[0].value};
  uint32_t stride[3] = {}, undefined = 0;
  for (uint8_t k = 0; k < operation.sources; ++k) {
    const Source &source = i.sources[k];
    from[k] = source.index < 0 ? &source.value : warp.value(source.index);
    stride[k] = source.index >= 0;
    undefined |= source.index >= 0 ? warp.undefinedLanes[size_t(source.index)] : 0;
  }
  uint64_t *to = warp.value(i.results[0]);
  const ScalarFunction function = operation.function;
  uint32_t &undefinedResults = warp.undefinedLanes[size_t(i.results[0])];
  if (undefined & lanes) {
    uint64_t undefinedBits[32];
    forLanes(lanes, [&](uint32_t lane) { undefinedBits[lane] = undefinedOf(warp, i, lane); });
    forLanes(lanes, [&](uint32_t lane) {
      warp.set(
          i.results[0], lane,
          function(from[0][lane * stride[0]], from[1][lane * stride[1]], from[2][lane * stride[2]]),
          undefinedBits[lane]);
    });
    return;
  }
  undefinedResults &= ~lanes;
  if (lanes == ~0u)
    for (uint32_t lane = 0; lane < 32; ++lane)
      to[lane] =
          function(from[0][lane * stride[0]], from[1][lane * stride[1]], from[2][lane * stride[2]]);
  else
    forLanes(lanes, [&](uint32_t lane) {
      to[lane] =
          function(from[0][lane * stride[0]], from[1][lane * stride[1]], from[2][lane * stride[2]]);
    });
}

void zorse::emulator::ptx::executePack(Warp &warp, const Instruction &i, uint32_t lanes) {
  forLanes(lanes, [&](uint32_t lane) {
    uint64_t value = 0, undefined = 0;
    for (size_t k = 0; k < i.sources.size(); ++k) {
      value |= (warp.valueOf(i.sources[k], lane) & maskOf(i.bits)) << k * i.bits;
      undefined |= (warp.undefinedOf(i.sources[k], lane) & maskOf(i.bits)) << k * i.bits;
    }
    warp.set(i.results[0], lane, value, undefined);
  });
}

void zorse::emulator::ptx::executeUnpack(Warp &warp, const Instruction &i, uint32_t lanes) {
  forLanes(lanes, [&](uint32_t lane) {
    const uint64_t value = warp.valueOf(i.sources[0], lane),
                   undefined = warp.undefinedOf(i.sources[0], lane);
    for (size_t k = 0; k < i.results.size(); ++k)
      warp.set(i.results[k], lane, value >> k * i.bits & maskOf(i.bits),
               undefined >> k * i.bits & maskOf(i.bits));
  });
}
