// Contracts products and sums to fma.
#pragma once

namespace llvm {
class Module;
}

namespace zorse::emulator {

/// Inserts llvm.fma as LLVM's NVPTX backend does (DAGCombiner::visitFADDForFMACombine with
/// aggressive fusion):
///
/// - A product and a sum with the flag `contract` in one basic block are contracted, even if the
///   product has other uses.
/// - A sum with the flag `reassoc` is reordered from x y + u v + z to x y + (u v + z): sums of a
///   reduction have no order.
void contractProducts(llvm::Module &module);

} // namespace zorse::emulator
