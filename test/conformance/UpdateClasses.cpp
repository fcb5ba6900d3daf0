// Optimizers on flat shards. Parameters, optimizer states and updates are f32 in every precision.
// Only the gradient, which is converted to f32 when it is read, and the copy of the new parameter
// are low-precision.
#include "Cases.h"
#include "UpdateText.h"

#include <algorithm>

using namespace zorse::conformance;

namespace {

Case update(Sizes &sizes, const std::string &type, const zorse::test::OptimizerCase &optimizer) {
  const int64_t rows =
      sizes.index % 8 == 7 ? 0 : sizes.columns() * (sizes.index % 4 == 2 ? 5 : 1); // elements of
                                                                                   // the shard
  const bool skips = sizes.index % 5 == 4;
  const zorse::test::UpdateText body =
      zorse::test::updateText(optimizer.training(), optimizer.weightDecay, "f32");
  Text t(type);
  t.shape('P', {-1});
  t.argument("%arg0: $P {@@state0}");
  if (t.isNarrow())
    t.argument("%narrow: #P {@@state1}").line("%arg1 = arith.extf %narrow : #P to $P");
  else
    t.argument("%arg1: $P {@@state1}");
  int argument = 2;
  for (int s = 0; s < body.states; ++s) {
    const bool positive = std::count(optimizer.positive.begin(), optimizer.positive.end(), s);
    t.argument("%arg" + std::to_string(argument++) + ": $P {@@state" + std::to_string(2 + s) +
               (positive ? ", test.positive}" : "}"));
  }
  for (const std::string &scalar :
       {std::string("f64> {@@learning_rate0, test.value = 0.01 : f64}"),
        std::string("f64> {@@clip_factor0, test.value = 0.3 : f64}"),
        "i64> {@@skip0, test.value = " + std::string(skips ? "1.0" : "0.0") + " : f64}",
        "f64> {@@optimizer_step0, test.value = " + std::to_string(1 + sizes.index % 3 * 40) +
            ".0 : f64}"})
    t.argument("%arg" + std::to_string(argument++) + ": tensor<" + scalar);
  t.line(body.lines);
  for (size_t r = 0; r < body.results.size(); ++r)
    t.result(body.results[r], "$P", "@@state" + std::to_string(r ? r + 1 : 0));
  if (t.isNarrow())
    t.out(body.results[0], 'P');
  return {t.str(), rows, std::to_string(rows) + " elements" + (skips ? ", skipped" : "")};
}

} // namespace

void zorse::conformance::addUpdateClasses(std::vector<KernelClass> &classes) {
  for (const zorse::test::OptimizerCase &optimizer : zorse::test::optimizerCases())
    classes.push_back({optimizer.name, [&](Sizes &sizes, const std::string &type) {
                         return update(sizes, type, optimizer);
                       }});
}
