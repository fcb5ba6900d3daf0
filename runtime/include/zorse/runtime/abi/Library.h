// Sizes the compiler needs to call library routines (Library.md).
#pragma once

#include <cstdint>

namespace zorse::abi {

/// Marks an absent optional operand of a LibraryCall.
inline constexpr uint32_t kAbsentSlot = 0xffffffffu;

/// Bytes of the workspace operand of attention_forward and attention_backward. On a CPU the scratch of a block (a few hundred KiB) belongs to the
/// device's threads, so the operand may be absent.
inline constexpr int64_t attentionWorkspaceBytes(int64_t rows, int64_t heads, int64_t queryLength, int64_t keyLength) {
  (void)rows, (void)heads, (void)queryLength, (void)keyLength;
  return 0;
}

} // namespace zorse::abi
