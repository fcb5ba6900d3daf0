// check-sharding FILE...: divides the classes of modules with joint functions (zorse-opt ...
// --zorse-join-backward) among two to four devices, evaluates the devices' functions together, and
// prints a line per module: divided fraction of the FLOPs, worst difference. Exit code 1 if a
// device computes something else.
#include "../autodiff/UnitFunctions.h"
#include "GroupEvaluation.h"

#include <cstdio>

using namespace mlir;
using namespace zorse;
using namespace zorse::testing;

int main(int argc, char **argv) {
  auto context = makeContext();
  bool ok = true;
  for (int file = 1; file < argc; ++file) {
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[file], context.get());
    if (!module)
      return 2;
    std::mt19937 random(7); // NOLINT(bugprone-random-generator-seed): the same numbers in every run
    double worst = 0, divided = 0, flops = 0;
    size_t exchanges = 0, classes = 0, skipped = 0;
    std::string problems;
    for (auto unitClass : module->getOps<ClassOp>()) {
      func::FuncOp joint = unitClass.function(Task::Joint);
      autodiff::dropPairs(joint);
      const ClassSharding sharding = sharding::deriveSharding(joint, 0);
      divided += sharding.dividedFlops, flops += sharding.flops, ++classes;
      exchanges += sharding.reduced.size() + sharding.gathered.size();
      reference::Options options;
      options.rows = 2;
      for (size_t devices = 2; devices <= 4; ++devices) {
        GroupEvaluation group(joint, sharding, randomShares(sharding, devices, random), options);
        const std::string problem =
            group.compare(randomArguments(joint, options.rows, random), devices, worst);
        if (problem == "the joint function cannot be evaluated")
          ++skipped;
        else if (!problem.empty())
          problems += " class '" + unitClass.getSymName().str() + "': " + problem + ";";
      }
    }
    std::printf("%s: %.1f %% of the FLOPs, %zu classes, %zu exchanges, worst difference %.1e, %zu "
                "not evaluated%s\n",
                argv[file], flops > 0 ? 100 * divided / flops : 0, classes, exchanges, worst,
                skipped, problems.c_str());
    std::fflush(stdout);
    ok &= problems.empty();
  }
  return ok ? 0 : 1;
}
