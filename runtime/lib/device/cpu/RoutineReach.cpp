#include "RoutineReach.h"

#include "AttentionShape.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Library.h"

#include <cstddef>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr Reach kRows = {0, 1};
constexpr Reach count(int64_t n) { return {n, 0}; }

std::vector<OperandUse> attentionUses(const AttentionShape &s, bool backward) {
  const int64_t element = s.isDouble ? 8 : 4, stored = s.stored ? 2 : element,
                gradient = s.narrowGradients ? 2 : element;
  auto strided = [&](const HeadStrides &strides, int64_t positions, int64_t heads, int64_t size,
                     int64_t bytes) {
    return (last(kRows, strides.row) + last(count(positions), strides.position) +
            last(count(heads), strides.head) + count(size)) *
           bytes;
  };
  auto heads = [&](const HeadStrides &strides, int64_t positions, int64_t heads, int64_t size) {
    return strided(strides, positions, heads, size, stored);
  };
  Reach mask = (last(kRows, s.maskRow) + last(count(s.heads), s.maskHead) +
                last(count(s.queries), s.maskQuery) + count(s.keys)) *
               (s.maskIsBoolean ? 1 : element);
  Reach lse = {0, __int128(s.heads) * s.queries * s.statistics() * element};
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
    return std::vector<OperandUse>{
        {0, count(sizeof(abi::StepScalars::sums)), false},
        {1, count(offsetof(abi::StepScalars, known)), true},
        {2, count(scales ? sizeof(abi::OptimizerStep) : sizeof(abi::OptimizerStep::updates)),
         true}};
  }
  if (name == "scale_seeds")
    return std::vector<OperandUse>{{0, count(offsetof(abi::StepScalars, known)), true},
                                   {1, count(sizeof(abi::OptimizerStep)), false}};
  const bool backward = name == "attention_backward";
  Result<AttentionShape> shape = readAttentionShape(call, backward);
  if (shape.failed())
    return shape.error();
  return attentionUses(*shape, backward);
}
