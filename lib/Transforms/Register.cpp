#include "zorse/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace zorse;

void zorse::addRecognitionPasses(OpPassManager &passes) {
  // Canonicalize first: every matcher expects broadcasts and unit dimensions after elementwise
  // operations.
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  // LayerNorm before RMSNorm: the part of a LayerNorm after its mean is an RMSNorm of x - mean.
  // Softmax before operations that contain one.
  passes.addNestedPass<func::FuncOp>(createRecognizeSoftmax());
  passes.addNestedPass<func::FuncOp>(createRecognizeLayerNorm());
  passes.addNestedPass<func::FuncOp>(createRecognizeRmsNorm());
  passes.addNestedPass<func::FuncOp>(createRecognizeGelu());
  passes.addNestedPass<func::FuncOp>(createRecognizeSilu());
  passes.addNestedPass<func::FuncOp>(createRecognizeCrossEntropy());
  // Rope before attention, so that attention's views of q and k start at the rotated values.
  passes.addNestedPass<func::FuncOp>(createRecognizeRope());
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  passes.addNestedPass<func::FuncOp>(createRecognizeAttention());
  // The layout changes for rope and attention cancel those of the exporter.
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  passes.addPass(createLiftConstants());
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  passes.addPass(createVerifyModel());
}

void zorse::registerTransformPasses() {
  registerTransformsPasses();
  PassPipelineRegistration<>("zorse-recognize",
                             "Canonicalize a model and recognize ops that exporters decompose",
                             [](OpPassManager &passes) { addRecognitionPasses(passes); });
}
