#pragma once

namespace zorse::planning {

/// Of devices that a file describes without a type of the table: bytes/s of memory (of a processor: per thread) and seconds per call.
inline constexpr double kThreadBandwidth = 10e9, kDeviceBandwidth = 500e9, kCpuLaunch = 5e-6, kDeviceLaunch = 1e-5;

} // namespace zorse::planning
