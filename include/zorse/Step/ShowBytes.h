#pragma once

#include <string>

namespace zorse::step {

/// Bytes as people read them: "512 B", "12.3 GiB".
std::string showBytes(double bytes);

} // namespace zorse::step
