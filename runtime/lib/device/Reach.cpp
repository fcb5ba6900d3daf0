#include "Reach.h"

#include "bundle.pb.h"

#include <algorithm>
#include <utility>

using namespace zorse;
using namespace zorse::runtime;

std::string zorse::runtime::problemOfUse(const bundle::CompiledFunction &function,
                                         const bundle::Pointer &pointer, const Reach &reach,
                                         bool written, const std::string &what) {
  // Both ends are linear in the rows. Checking one row and the slope therefore covers every number
  // of rows.
  const bundle::FunctionArgument &argument = function.arguments(int(pointer.argument()));
  const bundle::AffineSize &bytes = argument.bytes();
  const __int128 end = reach.fixed + pointer.fixed(), slope = reach.perRow + pointer.per_row();
  auto text = [](__int128 n) {
    return n > INT64_MAX ? std::string("more than 2^63")
           : n < 0       ? "-" + std::to_string(int64_t(-n))
                         : std::to_string(int64_t(n));
  };
  const std::string name = std::to_string(pointer.argument());
  if (pointer.fixed() < 0 || pointer.per_row() < 0 || bytes.fixed() < 0 || bytes.per_row() < 0 ||
      slope > bytes.per_row() || end + slope > __int128(bytes.fixed()) + bytes.per_row())
    return what + " reaches to byte " + text(end) + " + " + text(slope) +
           " per row, outside argument " + name + " of " + std::to_string(bytes.fixed()) + " + " +
           std::to_string(bytes.per_row()) + " per row bytes";
  if (written && argument.mode() == bundle::READ && argument.kind() != bundle::WORKSPACE)
    return what + " is written to, but argument " + name + " is only read";
  return "";
}

static Reach linear(const bundle::AffineSize &extent) { return {extent.fixed(), extent.per_row()}; }

/// Operands 0, 1, 2 and 3: a, b, c and the bias. Sizes are in [0, kLargestSize].
static std::vector<OperandUse> operandUses(const bundle::Matmul &p) {
  auto bytes = [](bundle::ElementType type) -> int64_t {
    return type == bundle::F64 ? 8 : type == bundle::BF16 || type == bundle::F16 ? 2 : 4;
  };
  const int64_t result = bytes(p.type()),
                operand = p.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED
                              ? result
                              : bytes(p.operand_type());
  const Reach m = linear(p.m()), n = linear(p.n()), k = linear(p.k()),
              batch = p.has_batch() ? linear(p.batch()) : Reach{1, 0};
  auto matrix = [&](const Reach &lines, const Reach &columns, int64_t leading, int64_t stride) {
    return last(lines, leading) + columns + last(batch, stride);
  };
  std::vector<OperandUse> uses = {{0,
                                   (p.transpose_a() ? matrix(k, m, p.lda(), p.batch_stride_a())
                                                    : matrix(m, k, p.lda(), p.batch_stride_a())) *
                                       operand,
                                   false},
                                  {1,
                                   (p.transpose_b() ? matrix(n, k, p.ldb(), p.batch_stride_b())
                                                    : matrix(k, n, p.ldb(), p.batch_stride_b())) *
                                       operand,
                                   false},
                                  {2, matrix(m, n, p.ldc(), p.batch_stride_c()) * result, true}};
  if (p.has_bias())
    uses.push_back({3, n * result, false});
  return uses;
}

std::string zorse::runtime::problemOfMatmul(const bundle::CompiledFunction &function,
                                            const bundle::Matmul &p) {
  for (const bundle::AffineSize *extent : {&p.m(), &p.n(), &p.k(), &p.batch()})
    for (int64_t size : {extent->fixed(), extent->per_row(), p.batch_stride_a(), p.batch_stride_b(),
                         p.batch_stride_c()})
      if (size < 0 || size > kLargestSize)
        return "matrix product: expects extents and strides from 0 to 2^48, got " +
               std::to_string(size);
  const std::pair<const char *, std::pair<int64_t, const bundle::AffineSize *>> leading[] = {
      {"lda", {p.lda(), p.transpose_a() ? &p.m() : &p.k()}},
      {"ldb", {p.ldb(), p.transpose_b() ? &p.k() : &p.n()}},
      {"ldc", {p.ldc(), &p.n()}}};
  for (const auto &[name, rows] : leading) {
    const auto [stride, columns] = rows;
    if (stride < 1 || stride > INT32_MAX) // as the libraries count
      return "matrix product: expects " + std::string(name) + " from 1 to 2^31 - 1, got " +
             std::to_string(stride);
    if (columns->per_row() == 0 && stride < std::max<int64_t>(columns->fixed(), 1))
      return "matrix product: expects " + std::string(name) +
             " >= " + std::to_string(columns->fixed()) + ", got " + std::to_string(stride);
  }
  const std::pair<const char *, const bundle::Pointer *> operands[] = {
      {"a", &p.a()}, {"b", &p.b()}, {"c", &p.c()}, {"bias", &p.bias()}};
  for (const OperandUse &use : operandUses(p)) {
    const auto &[name, pointer] = operands[use.operand];
    const std::string what = std::string("matrix product: operand ") + name;
    if (pointer->argument() >= uint32_t(function.arguments_size()))
      return what + ": argument " + std::to_string(pointer->argument()) + " of " +
             std::to_string(function.arguments_size()) + " is named";
    if (std::string problem = problemOfUse(function, *pointer, use.reach, use.written, what);
        !problem.empty())
      return problem;
  }
  return "";
}
