// Sums over rows, and tables that are gathered from and added to by id.
#include "Cases.h"

using namespace zorse::conformance;

namespace {

std::string text(int64_t rows, int64_t lead, int64_t columns) {
  return std::to_string(rows) + " rows of " + std::to_string(lead) + " x " +
         std::to_string(columns);
}

/// Bias gradients: sums over batch dimension and positions, over the batch dimension only, over
/// everything, and over all but a middle dimension.
Case columnSums(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(1100), lead = sizes.oneOf({1, 2, 3, 7, 16, 17}),
                rows = sizes.rows(columns);
  Text t(type);
  t.shape('X', {-1, lead, columns})
      .shape('C', {columns})
      .shape('L', {lead})
      .shape('P', {lead, columns})
      .shape('N', {});
  t.in("%x", 'X');
  t.line("%a = zorse.reduce sum %x dims [0, 1] : $X -> $C")
      .line("%b = zorse.reduce sum %x dims [0] : $X -> $P");
  t.line("%c = zorse.reduce sum %x dims [0, 2] : $X -> $L")
      .line("%d = zorse.reduce sum %x dims [0, 1, 2] : $X -> $N");
  t.wideOut("%a", 'C').wideOut("%b", 'P').wideOut("%c", 'L').wideOut("%d", 'N');
  return {t.str(), rows, text(rows, lead, columns)};
}

Case normParameters(Sizes &sizes, const std::string &type) {
  const int64_t columns = sizes.columns(1100), lead = sizes.oneOf({1, 2, 5, 16}),
                rows = sizes.rows(columns);
  Text t(type);
  t.shape('X', {-1, lead, columns}).shape('S', {-1, lead}).shape('C', {columns});
  t.in("%x", 'X').in("%d", 'X').wideIn("%m", 'S').wideIn("%r", 'S', ", test.positive");
  t.line("%dg, %db = zorse.layer_norm_grad_params %d, %x, %m, %r : ($X, $X, $S, $S) -> ($C, $C)");
  t.line("%dr = zorse.rms_norm_grad_params %d, %x, %r : ($X, $X, $S) -> $C");
  t.wideOut("%dg", 'C').wideOut("%db", 'C').wideOut("%dr", 'C');
  return {t.str(), rows, text(rows, lead, columns)};
}

/// The ids repeat, because there are few different ones, and include the first and the last row of
/// the table.
Case gather(Sizes &sizes, const std::string &type) {
  const int64_t width = sizes.columns(1100), tokens = sizes.oneOf({1, 2, 5, 9}),
                table = sizes.oneOf({1, 2, 3, 31, 33, 50}), rows = sizes.rows(width);
  const std::string element = sizes.index % 2 ? "i64" : "i32";
  Text t(type);
  t.shape('T', {table, width})
      .shape('I', {-1, tokens})
      .shape('Y', {-1, tokens, width})
      .shape('P', {tokens, width})
      .shape('X', {-1, tokens, table});
  t.in("%t", 'T').wideIn("%p", 'P').in("%x", 'X').wideIn("%d", 'I').ids("%i", 'I', 0, table,
                                                                        element);
  const std::string ids = "tensor<?x" + std::to_string(tokens) + "x" + element + ">";
  t.line("%e = zorse.gather %t, %i : $T, " + ids + " -> $Y")
      .line("%pb = zorse.broadcast %p dims [1, 2] : $P -> $Y");
  t.line("%y = arith.addf %e, %pb : $Y")
      .line("%k = zorse.take_along_dim %x, %i : $X, " + ids + " -> $I");
  t.line("%g = zorse.take_along_dim_grad %d, %i : $I, " + ids + " -> $X");
  t.out("%y", 'Y').wideOut("%k", 'I').out("%g", 'X');
  return {t.str(), rows, text(rows, tokens, width) + " from " + std::to_string(table)};
}

Case scatter(Sizes &sizes, const std::string &type) {
  const int64_t width = sizes.columns(1100), tokens = sizes.oneOf({1, 2, 5, 11, 33}),
                table = sizes.oneOf({1, 2, 3, 8, 9, 31});
  const int64_t rows = sizes.rows(width * tokens / 2), padding = sizes.below(table);
  Text t(type);
  t.shape('U', {-1, tokens, width}).shape('I', {-1, tokens}).shape('T', {table, width});
  t.in("%u", 'U').ids("%i", 'I', 0, table);
  const std::string ids = "tensor<?x" + std::to_string(tokens) + "xi64>";
  t.line("%a = zorse.scatter_add %i, %u {padding = " + std::to_string(padding) +
         " : i64} : " + ids + ", $U -> $T");
  t.line("%b = zorse.scatter_add %i, %u : " + ids + ", $U -> $T");
  t.wideOut("%a", 'T').wideOut("%b", 'T');
  return {t.str(), rows, text(rows, tokens, width) + " into " + std::to_string(table)};
}

} // namespace

void zorse::conformance::addColumnClasses(std::vector<KernelClass> &classes) {
  classes.push_back({"sums over rows", columnSums});
  classes.push_back({"norms' parameters, gradient", normParameters});
  classes.push_back({"gather and take_along_dim", gather});
  classes.push_back({"scatter-add", scatter});
}
