#include "Reach.h"

#include "AttentionShape.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Library.h"

#include <cstddef>

using namespace zorse;
using namespace zorse::runtime;

namespace {

Reach linear(const bundle::Extent &extent) { return {extent.fixed(), extent.per_row()}; }

/// (count - 1) * stride: where the last of them begins.
Reach last(const Reach &count, __int128 stride) { return {(count.fixed - 1) * stride, count.perRow * stride}; }

Reach operator+(const Reach &a, const Reach &b) { return {a.fixed + b.fixed, a.perRow + b.perRow}; }
Reach operator*(const Reach &a, int64_t bytes) { return {a.fixed * bytes, a.perRow * bytes}; }

constexpr Reach kRows = {0, 1};
Reach count(int64_t n) { return {n, 0}; }

std::vector<OperandUse> attentionUses(const AttentionShape &s, bool backward) {
  const int64_t element = s.isDouble ? 8 : 4, stored = s.stored ? 2 : element, gradient = s.narrowGradients ? 2 : element;
  auto strided = [&](const HeadStrides &strides, int64_t positions, int64_t heads, int64_t size, int64_t bytes) {
    return (last(kRows, strides.row) + last(count(positions), strides.position) + last(count(heads), strides.head) + count(size)) * bytes;
  };
  auto heads = [&](const HeadStrides &strides, int64_t positions, int64_t heads, int64_t size) {
    return strided(strides, positions, heads, size, stored);
  };
  Reach mask = (last(kRows, s.maskRow) + last(count(s.heads), s.maskHead) + last(count(s.queries), s.maskQuery) + count(s.keys)) *
               (s.maskIsBoolean ? 1 : element);
  Reach lse = {0, __int128(s.heads) * s.queries * element};
  constexpr Reach scalars = {offsetof(abi::StepScalars, decided), 0};
  std::vector<OperandUse> uses = {{0, heads(s.q, s.queries, s.heads, s.headSize), false},
                                  {1, heads(s.k, s.keys, s.keyHeads, s.headSize), false},
                                  {2, heads(s.v, s.keys, s.keyHeads, s.valueHeadSize), false},
                                  {3, mask, false},
                                  {4, heads(s.out, s.queries, s.heads, s.valueHeadSize), !backward},
                                  {5, lse, !backward}};
  if (!backward) {
    uses.push_back({7, scalars, false});
    return uses;
  }
  uses.push_back({6, heads(s.dout, s.queries, s.heads, s.valueHeadSize), false});
  uses.push_back({7, strided(s.dq, s.queries, s.heads, s.headSize, gradient), true});
  uses.push_back({8, strided(s.dk, s.keys, s.keyHeads, s.headSize, gradient), true});
  uses.push_back({9, strided(s.dv, s.keys, s.keyHeads, s.valueHeadSize, gradient), true});
  uses.push_back({11, scalars, false});
  return uses;
}

} // namespace

std::vector<OperandUse> zorse::runtime::operandUses(const bundle::MatrixProduct &p) {
  auto bytes = [](bundle::ElementType type) -> int64_t { return type == bundle::F64 ? 8 : halfType(type) ? 2 : 4; };
  const int64_t result = bytes(p.type()), operand = p.operand_type() == bundle::ELEMENT_TYPE_UNSPECIFIED ? result : bytes(p.operand_type());
  const Reach m = linear(p.m()), n = linear(p.n()), k = linear(p.k()), batch = p.has_batch() ? linear(p.batch()) : count(1);
  auto matrix = [&](const Reach &lines, const Reach &columns, int64_t leading, int64_t stride) {
    return last(lines, leading) + columns + last(batch, stride);
  };
  return {{0, (p.transpose_a() ? matrix(k, m, p.lda(), p.batch_stride_a()) : matrix(m, k, p.lda(), p.batch_stride_a())) * operand, false},
          {1, (p.transpose_b() ? matrix(n, k, p.ldb(), p.batch_stride_b()) : matrix(k, n, p.ldb(), p.batch_stride_b())) * operand, false},
          {2, matrix(m, n, p.ldc(), p.batch_stride_c()) * result, true}};
}

Result<std::vector<OperandUse>> zorse::runtime::operandUses(const bundle::LibraryCall &call) {
  const int64_t element = call.type() == bundle::F64 ? 8 : 4;
  const std::string &name = call.name();
  if (name == "squared_norm")
    return std::vector<OperandUse>{{0, kRows * element, false}, {1, count(2 * 8), true}};
  if (name == "sum_loss") {
    std::vector<OperandUse> uses;
    const int terms = call.operands_size() - 1;
    for (int term = 0; term < terms; ++term)
      uses.push_back({term, kRows * element, false});
    uses.push_back({terms, count((2 + terms) * 8), true});
    return uses;
  }
  if (name == "cast")
    return std::vector<OperandUse>{{0, kRows * 4, false}, {1, kRows * 2, true}};
  if (name == "decide") {
    auto interval = call.integers().find("scale_interval");
    const bool scales = interval != call.integers().end() && interval->second > 0;
    return std::vector<OperandUse>{{0, count(sizeof(abi::StepScalars::sums)), false},
                                   {1, count(offsetof(abi::StepScalars, known)), true},
                                   {2, count(scales ? sizeof(abi::OptimizerStep) : sizeof(abi::OptimizerStep::updates)), true}};
  }
  if (name == "scale_seeds")
    return std::vector<OperandUse>{{0, count(offsetof(abi::StepScalars, known)), true}, {1, count(sizeof(abi::OptimizerStep)), false}};
  const bool backward = name == "attention_backward";
  Result<AttentionShape> shape = readAttentionShape(call, backward);
  if (shape.failed())
    return shape.error();
  return attentionUses(*shape, backward);
}
