// Operations of the `zorse` dialect that identify samples within a step.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#define GET_OP_CLASSES
#include "zorse/Dialect/Zorse/SampleOps.h.inc"
