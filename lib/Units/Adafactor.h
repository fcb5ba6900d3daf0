// The update of Adafactor.
#pragma once

#include "Optimizers.h"

namespace zorse::units {

/// Adds the update of whole parameters, [parameters, elements] or [parameters, (matrices,) rows,
/// columns], after weight decay. It is that of torch.optim.Adafactor (Shazeer and Stern,
/// "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018): second moments of
/// matrices are the product of the means of rows and columns.
/// \param parameter  after weight decay
UpdatedShard addAdafactor(TensorBuilder &t, const bundle::TrainingOptions &training,
                          const ShardUpdate &in, mlir::Value parameter);

} // namespace zorse::units
