// Products and sums that become one fma.
#pragma once

namespace llvm {
class Module;
}

namespace zorse::emulator {

/// Makes llvm.fma of products and sums as LLVM's NVPTX backend does (DAGCombiner::visitFADDForFMACombine with aggressive fusion): where both have the
/// flag `contract` and lie in one basic block, also where the product has other uses.
void contractProducts(llvm::Module &module);

} // namespace zorse::emulator
