// What rank 0 of an elastic job reports to its driver about slow devices: a file in the checkpoint
// directory. The next start reads it, so that it knows which devices are slow from its beginning.
#pragma once

#include "Options.h"

#include <map>
#include <string>

namespace zorse::run {

/// By device name: the factor on its computing time without a disturbance. Devices that are not
/// slow are not in it.
using Slowdowns = std::map<std::string, double>;

struct SlowDevices {
  Slowdowns times;
  uint64_t step = 0;       ///< last step before it was written
  double stepSeconds = 0;  ///< of recent steps; 0: none has ended
  double startSeconds = 0; ///< from the start of rank 0 to the end of its first step; 0: not ended
};

std::string slowDevicesFile(const Options &options);

/// Returns an empty value if there is no such file.
SlowDevices readSlowDevices(const std::string &path);
/// Writes factors with two digits, so that there are few of them.
runtime::Status writeSlowDevices(const std::string &path, const SlowDevices &slow);

/// Returns "small0=2.1,t4:0=1.7", the syntax of zorse-compile --slowdown. Factors have two digits.
std::string slowdownText(const Slowdowns &slowdowns);

} // namespace zorse::run
