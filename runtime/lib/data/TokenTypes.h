// Which integers a file of tokens without a header holds.
#pragma once

#include "DataFile.h"

#include "zorse/runtime/Data.h"

namespace zorse::runtime {

/// uint16, uint32 or int64, by the size of the file and whether its numbers are ids of the vocabulary. Where more than one may be meant, an error
/// that asks for --data-type. Where none fits, uint16: reading names the first token that is no id.
Result<StoredType> tokenTypeOf(const DataFile &file, int64_t vocabulary);

/// "uint16" of StoredType::U16: the name that --data-type has.
const char *tokenTypeName(StoredType type);

} // namespace zorse::runtime
