// The project's error type under the names that the runtime and its users use.
#pragma once

#include "zorse/Base/Status.h"

namespace zorse::runtime {

using zorse::Error;
using zorse::ErrorKind;
using zorse::internalError;
using zorse::Result;
using zorse::Status;
using zorse::userError;

} // namespace zorse::runtime
