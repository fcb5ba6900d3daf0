#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace zorse {
#define GEN_PASS_DEF_REPORTOPS
#include "zorse/Transforms/Passes.h.inc"
} // namespace zorse

using namespace mlir;
using namespace zorse;

namespace {
struct ReportOps : zorse::impl::ReportOpsBase<ReportOps> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    getOperation().walk([](Operation *op) {
      auto costs = dyn_cast<CostOpInterface>(op);
      auto factors = dyn_cast<FactorsOpInterface>(op);
      if (!costs || !factors)
        return;
      OpCost cost = costs.getCost();
      op->emitRemark() << toString(factors.getFactors()) << "; flops "
                       << static_cast<int64_t>(cost.flops) << " + "
                       << static_cast<int64_t>(cost.flopsPerRow) << " per row, bytes "
                       << static_cast<int64_t>(cost.bytes) << " + "
                       << static_cast<int64_t>(cost.bytesPerRow) << " per row";
    });
  }
};
} // namespace
