#pragma once

namespace zorse::planning {

/// Defaults for devices that a file describes without a type of the table: memory bandwidth in
/// bytes/s (for a CPU, per thread) and seconds per call.
inline constexpr double kThreadBandwidth = 10e9, kDeviceBandwidth = 500e9, kCpuLaunch = 5e-6, kDeviceLaunch = 1e-5;

/// Factor on all modeled times of devices with `efficiency: eager`. Measured ratios of PyTorch's
/// eager mode to compiled or hand-written kernels on one GPU: 1.53 (llm.c and PyTorch, GPT-2 124M,
/// A100), 1.55 (torchbench nanogpt_train), 1.85 (nanoGPT's notes); docs/cluster.md.
inline constexpr double kEagerTimes = 1.5;

} // namespace zorse::planning
