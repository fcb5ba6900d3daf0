// zorse-opt: reads and writes MLIR, running any pass or pipeline in between. For compiler people and the tests.
#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Exec/Exec.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Units/Units.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<zorse::ZorseDialect, zorse::exec::ExecDialect>();
  zorse::registerCostAndFactorsModels(registry);
  mlir::registerAllPasses();
  zorse::autodiff::registerDifferentiableModels(registry);
  zorse::autodiff::registerPasses();
  zorse::units::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Zorse optimizer driver\n", registry));
}
