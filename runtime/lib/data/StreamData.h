// Training data that another process supplies step by step.
#pragma once

#include "zorse/runtime/Data.h"

namespace zorse::runtime {

/// The rest of a value of --data that names a stream ("stream:FIFO"); none: it is no stream.
std::optional<std::string> streamOf(const std::string &specification);

/// Opens a named pipe, and waits until another process writes to it. \param path  the pipe
Result<std::unique_ptr<DataSource>> openStream(const Bundle &bundle, const std::string &path,
                                               std::optional<StoredType> tokenType);

} // namespace zorse::runtime
