// Describes the optimizer of a bundle in one line.
#pragma once

#include "bundle.pb.h"

#include <string>

namespace zorse {

/// Returns, for example, "adamw, lr 0.0003, betas 0.9 0.95, eps 1e-08, weight decay 0.1, clipped to
/// 1, constant schedule".
std::string describeTraining(const bundle::TrainingOptions &options);

} // namespace zorse
