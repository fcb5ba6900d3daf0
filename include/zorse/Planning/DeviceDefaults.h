#pragma once

namespace zorse::planning {

/// Of devices that a file describes without a type of the table: bytes/s of memory (of a processor: per thread) and seconds per call.
inline constexpr double kThreadBandwidth = 10e9, kDeviceBandwidth = 500e9, kCpuLaunch = 5e-6, kDeviceLaunch = 1e-5;

/// What every time without a measurement is multiplied by on devices that a file calls `efficiency: eager`. PyTorch's eager mode against compiled or
/// hand-written kernels on one GPU: 1.53 (llm.c and PyTorch, GPT-2 124M, A100), 1.55 (torchbench nanogpt_train), 1.85 (nanoGPT's notes);
/// docs/cluster.md.
inline constexpr double kEagerTimes = 1.5;

} // namespace zorse::planning
