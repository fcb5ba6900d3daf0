// What options are called elsewhere: by the Hugging Face Trainer, Megatron-LM, DeepSpeed, Lightning, nanoGPT and torchrun.
#pragma once

#include <string>
#include <vector>

namespace zorse {

/// Names of options, without dashes, that mean what another program calls `given`; the likeliest first, not all of this tool.
std::vector<std::string> sameMeaning(const std::string &given);

/// Where what an option sets is decided instead, for options of other programs that no tool here has and for those of another tool; empty: nothing
/// is known of it.
std::string remarkOn(const std::string &given);

} // namespace zorse
