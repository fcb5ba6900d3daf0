// Products and sums that become one fma.
#pragma once

namespace llvm {
class Module;
}

namespace zorse::emulator {

/// Makes llvm.fma of products and sums as LLVM's NVPTX backend does (DAGCombiner::visitFADDForFMACombine with aggressive fusion):
///
/// - Where a product and a sum have the flag `contract` and lie in one basic block, also where the product has other uses.
/// - Where a sum has the flag `reassoc`, x y + u v + z becomes x y + (u v + z): sums of a reduction have no order.
void contractProducts(llvm::Module &module);

} // namespace zorse::emulator
