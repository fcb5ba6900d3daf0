#include "zorse/Dialect/Zorse/Interfaces.h"

#include "zorse/Dialect/Zorse/Interfaces.cpp.inc"
