// Infers the integer type of a token file without a header.
#pragma once

#include "DataFile.h"

#include "zorse/runtime/Data.h"

namespace zorse::runtime {

/// Returns uint16, uint32 or int64, based on the size of the file and on whether its numbers are
/// ids of the vocabulary. If several types are possible, returns an error that asks for
/// --data-type. If none fits, returns uint16: reading then names the first token that is not an id.
Result<StoredType> tokenTypeOf(const DataFile &file, int64_t vocabulary);

/// The type's name in --data-type, for example "uint16" for StoredType::U16.
const char *tokenTypeName(StoredType type);

} // namespace zorse::runtime
