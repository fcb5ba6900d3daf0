#include "VerifyTestSupport.h"
