// Human-readable text of programs: zorse-inspect --program and zorse-compile --emit=exec. There is
// no parser for it.
//
//     exec.program @b device 1 of [@a, @b] planned 36864 {
//       exec.receive 7 activation 3 "h.3" [8:16] from @a into 0:4096+8192 on receive0 in forward
//       exec.compute 9 F cell 2 on compute0 in forward after [receive0:0] time [0.001, 0.0025] {
//         exec.call 4 "head.forward" unit 4 "head" rows [8:16] (
//           read activation 3 "h.3" [8:16] at 0:4096+8192,
//           write loss 4 [8:16] at 0:12288+32)
//       }
//     }
//
// The line of an instruction contains its operation, id and value, its queue and phase, the queue
// positions that it waits for, and its planned times (in seconds). A region is arena:offset+bytes.
// docs/internals/step-lowering.md explains more.
#pragma once

#include "bundle.pb.h"

#include "zorse/Base/Status.h"

#include <string>
#include <vector>

namespace zorse::bundle {

/// Names for the text. `summary` and `functions` may be null: values, units and functions then have
/// numbers only, and arguments have no access mode.
struct ProgramNames {
  std::vector<std::string> devices; ///< by index; indices beyond the end get names such as
                                    ///< "device3"
  const ModelSummary *summary = nullptr;
  const FunctionLibrary *functions = nullptr;
};

/// Prints a program, even an invalid one. Fails if the text cannot express it: a queue that does
/// not exist, or an empty instruction.
Result<std::string> programText(const Program &program, const ProgramNames &names);

} // namespace zorse::bundle
