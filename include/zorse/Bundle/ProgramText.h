// Programs as text, for people: zorse-inspect --program and zorse-compile --emit=exec. Nothing reads it back.
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
// An entry's line says what it does, its id and value, on which queue, in which phase, after which positions of queues, and when the plan has it (in
// seconds). A region is arena:offset+bytes. docs/inspect.md explains more.
#pragma once

#include "bundle.pb.h"

#include "zorse/Base/Status.h"

#include <string>
#include <vector>

namespace zorse::bundle {

/// What the text calls things. `summary` and `bodies` may be null: then values, units and bodies have numbers only, and slots no access.
struct ProgramNames {
  std::vector<std::string> devices; ///< by index; made up ("device3") beyond the end
  const ModelSummary *summary = nullptr;
  const BodyLibrary *bodies = nullptr;
};

/// A program as text, however broken it is. An error for what the text cannot say: a queue that does not exist, an entry without something to do.
Result<std::string> programText(const Program &program, const ProgramNames &names);

} // namespace zorse::bundle
