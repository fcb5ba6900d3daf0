// Optimizers on flat shards. Parameters, moments and updates are f32 in every precision. Only the
// gradient, which is converted to f32 when it is read, and the copy of the new parameter are
// low-precision.
#include "Cases.h"

using namespace zorse::conformance;

namespace {

Case update(Sizes &sizes, const std::string &type, const std::string &op,
            const std::string &attributes, int moments) {
  const int64_t rows =
      sizes.index % 8 == 7 ? 0 : sizes.columns() * (sizes.index % 4 == 2 ? 5 : 1); // elements of
                                                                                   // the shard
  const bool skips = sizes.index % 5 == 4;
  Text t(type);
  t.shape('P', {-1});
  t.argument("%p: $P {@@state0}");
  if (t.isNarrow())
    t.argument("%narrow: #P {@@state1}").line("%g = arith.extf %narrow : #P to $P");
  else
    t.argument("%g: $P {@@state1}");
  if (moments > 0)
    t.argument("%m: $P {@@state2}");
  if (moments > 1)
    t.argument("%v: $P {@@state3, test.positive}");
  t.argument("%lr: tensor<f64> {@@learning_rate0, test.value = 0.01 : f64}");
  t.argument("%c: tensor<f64> {@@clip_factor0, test.value = 0.3 : f64}");
  t.argument("%s: tensor<i64> {@@skip0, test.value = " + std::string(skips ? "1.0" : "0.0") +
             " : f64}");
  t.argument("%t: tensor<f64> {@@optimizer_step0, test.value = " +
             std::to_string(1 + sizes.index % 3 * 40) + ".0 : f64}");
  const std::string scalars = "%lr, %c, %s, %t",
                    scalarTypes = "tensor<f64>, tensor<f64>, tensor<i64>, tensor<f64>";
  std::string results, types;
  for (int i = 0; i <= moments; ++i) {
    results += (i ? ", %r" : "%r") + std::to_string(i);
    types += i ? ", $P" : "$P";
  }
  t.line(results + " = zorse." + op + "_update " +
         (op == "sgd" ? "%p, %g, " + scalars + (moments ? " velocity %m" : "")
                      : "%p, %g, %m, %v, " + scalars) +
         " {" + attributes + "} : " +
         (op == "sgd" ? "($P, $P, " + scalarTypes + (moments ? ", $P" : "")
                      : "($P, $P, $P, $P, " + scalarTypes) +
         ") -> (" + types + ")");
  t.result("%r0", "$P", "@@state0");
  if (moments > 0)
    t.result("%r1", "$P", "@@state2");
  if (moments > 1)
    t.result("%r2", "$P", "@@state3");
  if (t.isNarrow())
    t.out("%r0", 'P');
  return {t.str(), rows, std::to_string(rows) + " elements" + (skips ? ", skipped" : "")};
}

void add(std::vector<KernelClass> &classes, const char *name, const char *op,
         const char *attributes, int moments) {
  classes.push_back({name, [=](Sizes &sizes, const std::string &type) {
                       return update(sizes, type, op, attributes, moments);
                     }});
}

} // namespace

void zorse::conformance::addUpdateClasses(std::vector<KernelClass> &classes) {
  add(classes, "sgd with decay", "sgd", "momentum = 0.0 : f64, weight_decay = 0.1 : f64", 0);
  add(classes, "sgd with momentum", "sgd",
      "momentum = 0.9 : f64, weight_decay = 0.0 : f64, nesterov", 1);
  const std::string betas =
      "beta1 = 0.9 : f64, beta2 = 0.999 : f64, epsilon = 1.0e-8 : f64, weight_decay = ";
  static const std::string none = betas + "0.0 : f64", coupled = betas + "0.1 : f64",
                           decoupled = betas + "0.1 : f64, decoupled";
  add(classes, "adam", "adam", none.c_str(), 2);
  add(classes, "adam with decay", "adam", coupled.c_str(), 2);
  add(classes, "adamw", "adam", decoupled.c_str(), 2);
}
