// Constants for callers of library routines (Library.md).
#pragma once

#include <cstdint>

namespace zorse::abi {

/// Marks an absent optional operand of a LibraryCall.
inline constexpr uint32_t kAbsentArgument = 0xffffffffu;

} // namespace zorse::abi
