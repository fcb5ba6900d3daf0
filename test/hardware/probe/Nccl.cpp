// Checks NCCL with one rank: whether it starts, the host time of a call, its memory use, and
// whether a communicator can be aborted behind long-running work.
#include "Probe.h"

#include "device/cuda/BlasLt.h"
#include "zorse/runtime/Control.h"
#include "zorse/runtime/DeviceTransport.h"

#include <chrono>
#include <cstring>

using namespace zorse;
using namespace zorse::probe;
using namespace zorse::runtime;
using namespace zorse::runtime::cuda;

namespace {

constexpr size_t kGathered = 1 << 16; ///< elements
constexpr int kCalls = 200;
constexpr double kLasting = 1.5, kEndsWithin = 10; ///< seconds

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Put> class Task final : public StreamTask {
public:
  explicit Task(Put put) : put_(std::move(put)) {}
  Status put(uint64_t, WorkStream &stream) override { return put_(stream); }

private:
  Put put_;
};

/// Puts products on a stream that run for at least kLasting seconds, limited to a few thousand
/// products.
Status putLasting(const CudaApi &cuda, BlasLt &blas, CUdeviceptr memory, CUstream stream) {
  BlasMatmul p;
  p.typeOfOperands = p.typeOfC = kF32;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = 256;
  constexpr CUdeviceptr kBytes = 256 * 256 * 4;
  const BlasOperands at{memory, memory + kBytes, memory + 2 * kBytes};
  auto one = [&](CUstream on) { return blas.multiply(p, 1, 0, at, on); };
  if (Result<bool> ran = blas.warmUp(p, at, stream); ran.failed())
    return ran.error();
  GpuTimer timer(cuda, stream);
  Result<double> seconds = timer.seconds(3, 4, one);
  if (seconds.failed())
    return seconds.error();
  const auto count = int(std::min(4000.0, kLasting / std::max(*seconds, 1e-6)));
  for (int i = 0; i < count; ++i)
    if (Status status = one(stream); status.failed())
      return status;
  return Status::success();
}

} // namespace

int probe::tryNccl() {
  Result<const CudaApi *> api = openGpu();
  Result<std::unique_ptr<QueuedDevice>> device = makeGpu("kit");
  if (api.failed() || device.failed())
    return say("NCCL", false, api.failed() ? api.message() : device.message()), 1;
  const CudaApi &cuda = **api;
  const FreeMemory before = freeMemory(cuda);
  DeviceTransportOptions options;
  options.plan.groups = options.plan.peers = {{0}}; // also sends to itself
  options.names = {"kit"};
  auto group = makeSingleProcessGroup();
  const double begin = now();
  auto made = connectNccl({{0, device->get()}}, *group, options);
  char text[160];
  if (made.failed())
    return say("a communicator of one rank", false, made.message()), 1;
  std::snprintf(text, sizeof text, "%.2f s, %zu MiB of the GPU's memory", now() - begin,
                (before.left - freeMemory(cuda).left) >> 20);
  say("a communicator of one rank", true, text);
  DeviceTransport &transport = *made->front();

  auto memory = (*device)->allocate(bundle::DEVICE, 3 * 256 * 256 * 4 + 2 * kGathered * 4, {});
  auto blas = BlasLt::create(cuda);
  if (memory.failed() || blas.failed())
    return say("NCCL", false, memory.failed() ? memory.message() : blas.message()), 1;
  DeviceAllGather gather;
  gather.shards = {{0, 0, int64_t(kGathered)}};
  gather.reads = {{0, 0, int64_t(kGathered)}};
  gather.full = (*memory)->base() + 3 * 256 * 256 * 4;
  gather.shard = gather.full + kGathered * 4;
  double host = 0;
  Task calls([&](WorkStream &stream) {
    const double from = now();
    for (int i = 0; i < kCalls; ++i)
      if (Status status = transport.allGather(gather, stream); status.failed())
        return status;
    host = (now() - from) / kCalls;
    return Status::success();
  });
  Status status = (*device)->onStream(calls);
  std::snprintf(text, sizeof text, "%.1f us of the host", host * 1e6);
  sayStatus("a call of NCCL", status, text);

  double took = -1;
  Task abort([&](WorkStream &stream) {
    if (Status put = putLasting(cuda, **blas, (*memory)->base().value, stream.handle());
        put.failed())
      return put;
    if (Status put = transport.allGather(gather, stream); put.failed())
      return put;
    const double from = now();
    transport.abort(userError("given up by the kit"));
    took = now() - from;
    return Status::success();
  });
  status = (*device)->onStream(abort);
  std::snprintf(text, sizeof text, "%.2f s (limit %.0f s)", took, kEndsWithin);
  if (status.failed() || took < 0)
    say("an abort behind work that lasts", false,
        status.failed() ? status.message() : "was not reached");
  else
    say("an abort behind work that lasts", took <= kEndsWithin, text);
  return 0;
}
