// Grouped matmuls: each group of an operand is multiplied by a separate matrix.
#include "Arithmetic.h"
#include "Decomposition.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

// Multiplies x [..., G, K] by w [G, K, N], which carries no samples; the result is [..., G, N].
// Uses elementwise multiplication if K or N is 1.
ImportedValue zorse::onnx_import::groupedProduct(Decomposition &make, const ImportedValue &x,
                                                 const ImportedValue &w) {
  if (make.hasFailed())
    return {};
  const int64_t rank = x.rank(), groups = w.view.size(0), inner = w.view.size(1),
                columns = w.view.size(2);
  if (inner == 1)
    return make("Mul", {x, make.reshape(w, {groups, columns})});
  if (columns == 1)
    return make.reduce("ReduceSum", make("Mul", {x, make.reshape(w, {groups, inner})}), {rank - 1},
                       true);
  std::vector<ImportedValue> parts;
  for (int64_t g = 0; g < groups; ++g) {
    ImportedValue part = make("MatMul", {make.squeeze(make.slice(x, rank - 2, g, 1), rank - 2),
                                         make.squeeze(make.slice(w, 0, g, 1), 0)});
    parts.push_back(make.unsqueeze(part, rank - 2));
  }
  return groups == 1 ? parts[0] : make("Concat", std::move(parts), {{"axis", rank - 2}});
}
