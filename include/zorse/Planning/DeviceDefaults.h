#pragma once

namespace zorse::planning {

/// Defaults for devices that a file describes without a type of the table: memory bandwidth in
/// bytes/s (for a CPU, per thread) and seconds per call.
inline constexpr double kThreadBandwidth = 10e9, kDeviceBandwidth = 500e9, kCpuLaunch = 5e-6,
                        kDeviceLaunch = 1e-5;

/// Factor on all modeled times of devices with `execution_mode: eager`. Published ratios of
/// PyTorch's eager mode to compiled or hand-written kernels on one GPU: 1.53 (llm.c and PyTorch,
/// GPT-2 124M, A100), 1.55 (torchbench nanogpt_train), 1.85 (nanoGPT's README); and to the speeds
/// of our table of types, from the profiles of Sailor: 1.1 (GPT-Neo 2.7B, V100), 1.7 (OPT 350M,
/// V100), 2.5 (OPT 350M, RTX 3090).
inline constexpr double kEagerTimes = 1.5;

/// Factor on the same times with `execution_mode: tuned`, of frameworks that call tuned kernels for
/// matrix products and attention and fuse some of the others. It is the median ratio of every
/// second published step of Composer FSDP, nanotron and InternEvo to the prediction with `compiled`
/// (test/benchmark/published_steps.py --fit).
inline constexpr double kTunedTimes = 1.3;

} // namespace zorse::planning
