#include "UpdateText.h"

#include "CodegenHarness.h"

#include "../../../lib/Units/Optimizers.h"

#include "zorse/Summary/Optimizers.h"

#include <google/protobuf/text_format.h>

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::test;

bundle::TrainingOptions OptimizerCase::training() const {
  bundle::TrainingOptions training;
  google::protobuf::TextFormat::ParseFromString(options, &training);
  return training;
}

const std::vector<OptimizerCase> &test::optimizerCases() {
  const std::string betas = " beta1: 0.9 beta2: 0.999 epsilon: 1e-8";
  static const std::vector<OptimizerCase> all = {
      {"sgd with decay", "optimizer: SGD", 0.1},
      {"sgd with momentum", "optimizer: SGD momentum: 0.9 nesterov: true"},
      {"adam", "optimizer: ADAM" + betas, 0, {1}},
      {"adam with decay", "optimizer: ADAM" + betas, 0.1, {1}},
      {"adamw", "optimizer: ADAMW" + betas, 0.1, {1}},
      {"adamw, amsgrad, average",
       "optimizer: ADAMW amsgrad: true ema_decay: 0.9" + betas,
       0.1,
       {1, 2}},
      {"lion", "optimizer: LION beta1: 0.9 beta2: 0.99 clip_value: 0.1", 0.1},
      {"rmsprop", "optimizer: RMSPROP alpha: 0.9 epsilon: 1e-8 momentum: 0.9", 0, {0}},
      {"adagrad", "optimizer: ADAGRAD epsilon: 1e-10", 0.1, {0}},
      {"adadelta", "optimizer: ADADELTA alpha: 0.9 epsilon: 1e-6", 0, {0, 1}},
      {"adamax", "optimizer: ADAMAX" + betas, 0, {1}},
      {"radam", "optimizer: RADAM" + betas, 0, {1}},
  };
  return all;
}

UpdateText test::updateText(const bundle::TrainingOptions &training, double weightDecay,
                            const std::string &element) {
  bundle::ModelSummary summary;
  *summary.mutable_training() = training;
  summary.set_compute_type(element == "f64" ? bundle::F64 : bundle::F32);
  bundle::UpdateRule rule;
  rule.set_name("f");
  rule.set_learning_rate_scale(1);
  rule.set_weight_decay(weightDecay);
  addOptimizerStates(training, rule);
  auto context = makeContext();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(context.get()));
  OpBuilder builder = OpBuilder::atBlockBegin(module->getBody());
  std::string text;
  llvm::raw_string_ostream os(text);
  units::addUpdateFunction(builder, builder.getUnknownLoc(), summary, rule).print(os);

  UpdateText out{rule.states_size(), {}, {}};
  const size_t begin = text.find('\n') + 1, last = text.find("  return ");
  out.lines = text.substr(begin, last - begin);
  std::string names = text.substr(last + 9, text.find(" :", last) - last - 9);
  for (size_t at = 0; at != std::string::npos;) {
    const size_t comma = names.find(", ", at);
    out.results.push_back(names.substr(at, comma - at));
    at = comma == std::string::npos ? comma : comma + 2;
  }
  return out;
}
