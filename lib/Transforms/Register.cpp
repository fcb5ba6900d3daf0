#include "zorse/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace zorse;

void zorse::addRecognitionPasses(OpPassManager &passes) {
  // Canonical first: every matcher counts on broadcasts and unit dimensions standing behind elementwise ops.
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  // LayerNorm before RMSNorm: what follows its mean is an RMSNorm of x - mean. Softmax before those that contain one.
  passes.addNestedPass<func::FuncOp>(createRecognizeSoftmax());
  passes.addNestedPass<func::FuncOp>(createRecognizeLayerNorm());
  passes.addNestedPass<func::FuncOp>(createRecognizeRmsNorm());
  passes.addNestedPass<func::FuncOp>(createRecognizeGelu());
  passes.addNestedPass<func::FuncOp>(createRecognizeSilu());
  passes.addNestedPass<func::FuncOp>(createRecognizeCrossEntropy());
  // Rope before attention, whose views of q and k then start at the rotated values.
  passes.addNestedPass<func::FuncOp>(createRecognizeRope());
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  passes.addNestedPass<func::FuncOp>(createRecognizeAttention());
  // The layouts that rope and attention ask for cancel against those the exporter wrote.
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  passes.addPass(createLiftConstants());
  passes.addNestedPass<func::FuncOp>(createCanonicalizeGraph());
  passes.addPass(createVerifyModel());
}

void zorse::registerTransformPasses() {
  registerTransformsPasses();
  PassPipelineRegistration<>("zorse-recognize", "Canonicalize a model and recognize ops that exporters decompose",
                             [](OpPassManager &passes) { addRecognitionPasses(passes); });
}
