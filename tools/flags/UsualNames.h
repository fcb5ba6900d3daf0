// Option names of other programs: Hugging Face Trainer, Megatron-LM, DeepSpeed, Lightning, nanoGPT
// and torchrun.
#pragma once

#include <string>
#include <vector>

namespace zorse {

/// Returns option names, without dashes, with the meaning that `given` has in other programs,
/// likeliest first. Some may belong to other tools.
std::vector<std::string> sameMeaning(const std::string &given);

/// Returns a hint for an option of another program that no tool here has (where its setting is
/// decided instead) or that another tool has. Empty if `given` is unknown.
std::string remarkOn(const std::string &given);

/// Whether `given` is an option of other systems that the planner or the launcher replaces.
bool hasNoCounterpart(const std::string &given);

} // namespace zorse
