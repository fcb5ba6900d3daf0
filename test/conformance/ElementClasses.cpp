// Kernels without sums: arithmetic, functions, views, casts, dropout, rotary embeddings.
#include "Cases.h"

using namespace zorse::conformance;

namespace {

std::string text(int64_t rows, int64_t lead, int64_t columns) {
  return std::to_string(rows) + " rows of " + std::to_string(lead) + " x " +
         std::to_string(columns);
}

/// A bias along the columns, activations and their gradients.
Case activations(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(), lead = sizes.lead(), rows = sizes.rows(columns);
  Text t(type);
  t.shape('X', {-1, lead, columns})
      .shape('C', {columns})
      .in("%x", 'X')
      .in("%d", 'X')
      .wideIn("%b", 'C');
  t.line("%bb = zorse.broadcast %b dims [2] : $C -> $X").line("%s = arith.addf %x, %bb : $X");
  t.line("%a = zorse.gelu %s : $X")
      .line("%c = zorse.gelu %s {approximate} : $X")
      .line("%e = zorse.silu %s : $X");
  t.line("%da = zorse.gelu_grad %s, %d : $X")
      .line("%dc = zorse.gelu_grad %s, %d {approximate} : $X")
      .line("%de = zorse.silu_grad %s, %d : $X");
  for (const char *value : {"%a", "%c", "%e", "%da", "%dc", "%de"})
    t.out(value, 'X');
  return {t.str(), rows, text(rows, lead, columns)};
}

/// One dimension with an end that the kernel handles itself; exact arguments of many magnitudes for
/// which e^x is finite.
Case functions(Sizes &sizes, const std::string &type) {
  const int64_t rows = sizes.index % 5 == 4 ? 0 : sizes.columns() * (sizes.index % 3 == 2 ? 7 : 1);
  Text t(type);
  t.shape('X', {-1}).in("%x", 'X', ", test.spread").in("%k", 'X');
  t.line("%most = arith.constant dense<80.0> : tensor<f32>")
      .line("%mb = zorse.broadcast %most dims [] : tensor<f32> -> $X");
  t.line("%least = arith.negf %mb : $X")
      .line("%b = arith.minimumf %x, %mb : $X")
      .line("%s = arith.maximumf %b, %least : $X");
  t.line("%m = math.absf %s : $X")
      .line("%e = math.exp %s : $X")
      .line("%h = math.tanh %s : $X")
      .line("%f = math.erf %s : $X");
  t.line("%q = math.sqrt %m : $X")
      .line("%l = math.log %m : $X")
      .line("%p = math.exp2 %k : $X")
      .line("%n = arith.divf %k, %x : $X");
  for (const char *value : {"%e", "%h", "%f", "%q", "%l", "%p", "%n"})
    t.out(value, 'X');
  return {t.str(), rows, std::to_string(rows) + " elements"};
}

/// Slices and concatenations with unaligned starts and with steps.
Case slices(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns() + 2, lead = sizes.lead() + 1, rows = sizes.rows(columns);
  const int64_t offset = 1 + sizes.below(std::min<int64_t>(columns - 1, 7)),
                length = columns - offset;
  const int64_t step = 2, stepped = (columns + step - 1) / step;
  Text t(type);
  t.shape('X', {-1, lead, columns})
      .shape('S', {-1, lead, length})
      .shape('E', {-1, lead, stepped})
      .shape('J', {-1, lead, length + columns});
  t.in("%x", 'X').in("%y", 'S');
  const std::string l = std::to_string(lead);
  t.line("%s = zorse.slice %x [0, 0, " + std::to_string(offset) + "] [?, " + l + ", " +
         std::to_string(length) + "] [1, 1, 1] : $X -> $S");
  t.line("%z = arith.mulf %s, %y : $S");
  t.line("%e = zorse.slice %x [0, 0, 0] [?, " + l + ", " + std::to_string(stepped) +
         "] [1, 1, 2] : $X -> $E");
  t.line("%n = arith.addf %e, %e : $E").line("%xx = arith.mulf %x, %x : $X");
  t.line("%j = zorse.concat %z, %xx {dim = 2 : i64} : ($S, $X) -> $J");
  t.out("%z", 'S').out("%n", 'E').out("%j", 'J');
  return {t.str(), rows, text(rows, lead, columns) + " from " + std::to_string(offset)};
}

Case transposes(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(1100),
                lead = sizes.index % 24 > 17 ? sizes.lead() : sizes.oneOf({1, 2, 3, 7, 16, 31, 33}),
                heads = sizes.oneOf({1, 2, 3}), rows = sizes.rows(columns * heads * lead / 8);
  Text t(type);
  t.shape('X', {-1, lead, heads, columns})
      .shape('A', {-1, heads, lead, columns})
      .shape('B', {-1, columns, heads, lead})
      .shape('W', {lead, columns});
  t.shape('V', {columns, lead}).in("%x", 'X').in("%w", 'W');
  t.line("%a = zorse.transpose %x [0, 2, 1, 3] : $X -> $A")
      .line("%b = zorse.transpose %x [0, 3, 2, 1] : $X -> $B");
  t.line("%c = arith.addf %b, %b : $B")
      .line("%v = zorse.transpose %w [1, 0] : $W -> $V")
      .line("%u = arith.negf %v : $V");
  t.out("%a", 'A').out("%c", 'B').wideOut("%u", 'V');
  return {t.str(), rows, text(rows, lead * heads, columns)};
}

/// Casts to the type and back for numbers of all magnitudes, and roundings that are not stored.
Case casts(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(), lead = sizes.lead(), rows = sizes.rows(columns);
  const std::string half = type == "f32" ? "bf16" : type;
  Text t(half);
  t.shape('X', {-1, lead, columns}).wideIn("%x", 'X').narrowIn("%h", 'X');
  t.ids("%e", 'X', -40, 40, "i32");
  std::string exponents = "tensor<?x" + std::to_string(lead) + "x" + std::to_string(columns) +
                          "xi32>";
  t.line("%f = arith.sitofp %e : " + exponents + " to $X").line("%p = math.exp2 %f : $X");
  t.line("%r = zorse.round %p to " + half + " : $X")
      .line("%n = arith.truncf %x : $X to #X")
      .line("%w = arith.extf %n : #X to $X");
  t.line("%rest = arith.subf %x, %w : $X")
      .line("%g = arith.extf %h : #X to $X")
      .line("%all = arith.addf %rest, %g : $X");
  if (type != "f32")
    t.narrowOut("%n", 'X');
  t.wideOut("%r", 'X').wideOut("%all", 'X');
  return {t.str(), rows, text(rows, lead, columns)};
}

Case dropout(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(), lead = sizes.lead(), rows = sizes.rows(columns);
  const char *probability[] = {"0.1", "0.5", "0.9"};
  Text t(type);
  t.shape('X', {-1, lead, columns}).in("%x", 'X').in("%y", 'X');
  t.line("%d = zorse.dropout %x {rng_id = " + std::to_string(sizes.index) +
         " : i64, probability = " + probability[sizes.index % 3] + " : f64} : $X");
  t.line("%s = arith.addf %d, %y : $X").out("%d", 'X').out("%s", 'X');
  return {t.str(), rows, text(rows, lead, columns)};
}

Case rope(Sizes &sizes, const std::string &type) {
  const int64_t pairs = sizes.columns(130), positions = sizes.oneOf({1, 2, 5, 7, 33}),
                heads = sizes.lead(), rows = sizes.rows(pairs * positions * heads);
  Text t(type);
  t.shape('X', {-1, positions, heads, 2 * pairs})
      .shape('C', {positions, pairs})
      .shape('R', {-1, positions, pairs});
  t.in("%x", 'X').wideIn("%c", 'C').wideIn("%s", 'C').wideIn("%cr", 'R').wideIn("%sr", 'R');
  t.line("%a = zorse.rope %x, %c, %s : ($X, $C, $C) -> $X")
      .line("%b = zorse.rope %x, %cr, %sr {interleaved} : ($X, $R, $R) -> $X");
  t.line("%i = zorse.rope %x, %cr, %sr {inverse} : ($X, $R, $R) -> $X")
      .line("%j = zorse.rope %x, %c, %s {inverse, interleaved} : ($X, $C, $C) -> $X");
  t.out("%a", 'X').out("%b", 'X').out("%i", 'X').out("%j", 'X');
  return {t.str(), rows, text(rows, positions * heads, 2 * pairs)};
}

/// Two values read from the step's scalars: one for all elements, one among other scalars.
Case known(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(), lead = sizes.lead(), rows = sizes.rows(columns);
  Text t(type);
  t.shape('X', {-1, lead, columns}).in("%x", 'X');
  t.argument("%k: tensor<f64> {@@known0, test.value = 0.3 : f64}")
      .argument("%n: tensor<f64> {@@known63, test.value = -1.7 : f64}");
  t.line("%s = arith.truncf %k : tensor<f64> to tensor<f32>")
      .line("%sb = zorse.broadcast %s dims [] : tensor<f32> -> $X");
  t.line("%r = arith.divf %k, %n : tensor<f64>")
      .line("%t = arith.truncf %r : tensor<f64> to tensor<f32>");
  t.line("%tb = zorse.broadcast %t dims [] : tensor<f32> -> $X")
      .line("%y = arith.mulf %x, %sb : $X")
      .line("%z = arith.addf %x, %tb : $X");
  t.out("%y", 'X').out("%z", 'X');
  return {t.str(), rows, text(rows, lead, columns)};
}

/// Used as factors of all elements, and alone.
Case sampleNumbers(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(), lead = sizes.lead(), rows = sizes.rows(columns);
  Text t(type);
  t.shape('X', {-1, lead, columns}).shape('N', {-1}).in("%x", 'X');
  t.line("%i = zorse.sample_number : tensor<?xi64>")
      .line("%c = arith.constant dense<3> : tensor<i64>");
  t.line("%cb = zorse.broadcast %c dims [] : tensor<i64> -> tensor<?xi64>")
      .line("%m = arith.remsi %i, %cb : tensor<?xi64>");
  t.line("%f = arith.sitofp %m : tensor<?xi64> to $N")
      .line("%b = zorse.broadcast %f dims [0] : $N -> $X");
  t.line("%y = arith.mulf %x, %b : $X").line("%n = arith.sitofp %i : tensor<?xi64> to $N");
  t.out("%y", 'X').out("%n", 'N');
  return {t.str(), rows, text(rows, lead, columns)};
}

} // namespace

void zorse::conformance::addElementClasses(std::vector<KernelClass> &classes) {
  classes.push_back({"activations", activations});
  classes.push_back({"functions", functions});
  classes.push_back({"slices and joins", slices});
  classes.push_back({"transposes", transposes});
  classes.push_back({"casts", casts});
  classes.push_back({"dropout", dropout});
  classes.push_back({"rotary embeddings", rope});
  classes.push_back({"numbers of the step", known});
  classes.push_back({"numbers of samples", sampleNumbers});
}
