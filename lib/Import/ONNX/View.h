// Views: the layout of a tensor of the file in a value of the IR. Every axis is a list of factors
// (size, stride) of the elements of the value.
//
// Reshape, Transpose, Expand, Slice and Split change only the view. Chains of them cancel,
// regardless of the exporter:
//
//     qkv [rows, 16, 96]   --split, reshape, transpose-->   k [rows, 4 heads, 16, 8]
//     factors of k: rows | 4x8 | 16x96 | 8x1, offset 32
//
// The sample axis is a separate factor. A merged axis (rows * 16) is a list of two factors; the
// sample factor is not found by its size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zorse::onnx_import {

struct Factor {
  int64_t size = 1;
  int64_t stride = 0; ///< in elements of one sample; 0: repeats
  bool sample = false;
};
using FactorList = std::vector<Factor>;

struct View {
  int64_t offset = 0;
  std::vector<FactorList> dims; ///< outermost first; an axis of size 1 is an empty list (or the
                                ///< sample factor of one row)

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t size(int64_t axis) const;
  std::vector<int64_t> shape() const;
  int64_t elements() const;
  /// The axis that contains the sample factor, -1 if there is none.
  int64_t sampleAxis() const;
};

/// Whether a value may have this shape: at most 16 dimensions and 2^44 elements, counting empty
/// dimensions as one. Products of any of its sizes then do not overflow.
bool isSensible(const std::vector<int64_t> &shape);

/// Row-major view of a value with these sizes. With `sampled`, dimension 0 is the sample axis and
/// has no stride.
View contiguousView(const std::vector<int64_t> &shape, bool sampled);

/// Calls visit(from, stride, count, before) for runs of the innermost factor in row-major order,
/// until it returns false. `before` is the number of elements in previous runs. \returns whether no
/// call returned false
template <typename Visit> bool visitRuns(int64_t offset, const FactorList &factors, Visit visit) {
  const Factor inner = factors.empty() ? Factor{1, 1, false} : factors.back();
  int64_t total = 1;
  for (const Factor &factor : factors)
    total *= factor.size;
  for (int64_t before = 0; before < total; before += inner.size) {
    int64_t from = offset, rest = before / inner.size;
    for (size_t i = factors.empty() ? 0 : factors.size() - 1; i-- > 0; rest /= factors[i].size)
      from += rest % factors[i].size * factors[i].stride;
    if (!visit(from, inner.stride, inner.size, before))
      return false;
  }
  return true;
}

/// Joins neighboring factors that are contiguous, and drops factors of size 1.
void coalesce(FactorList &list);

enum class ReshapeResult : uint8_t { Done, NeedsCopy, MixesSamples };
/// Regroups `view` to `shape` (same number of elements). With one row the position of the sample
/// factor can be ambiguous; `guessed` is then set.
ReshapeResult reshapeView(const View &view, const std::vector<int64_t> &shape, View &out,
                          bool &guessed);

/// Selects elements start, start + step, ... of an axis. Returns false if the axis must be copied
/// first. The axis must not contain a sample factor.
bool sliceView(View &view, int64_t axis, int64_t start, int64_t step, int64_t count);

/// Whether one reshape, one slice and one transpose can produce this view from a value of `total`
/// elements.
bool isCuttable(const View &view, int64_t total);

} // namespace zorse::onnx_import
