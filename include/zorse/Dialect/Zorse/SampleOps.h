// The ops of the `zorse` dialect that say what a sample is within its step.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#define GET_OP_CLASSES
#include "zorse/Dialect/Zorse/SampleOps.h.inc"
