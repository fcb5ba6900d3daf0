#include "View.h"

#include <algorithm>

using namespace zorse::onnx_import;

static int64_t productOf(const FactorList &list) {
  int64_t size = 1;
  for (const Factor &factor : list)
    size *= factor.size;
  return size;
}

int64_t View::size(int64_t axis) const { return productOf(dims[axis]); }

std::vector<int64_t> View::shape() const {
  std::vector<int64_t> out;
  for (const FactorList &list : dims)
    out.push_back(productOf(list));
  return out;
}

int64_t View::elements() const {
  int64_t count = 1;
  for (const FactorList &list : dims)
    count *= productOf(list);
  return count;
}

int64_t View::sampleAxis() const {
  for (size_t i = 0; i < dims.size(); ++i)
    for (const Factor &factor : dims[i])
      if (factor.sample)
        return static_cast<int64_t>(i);
  return -1;
}

bool zorse::onnx_import::isSensible(const std::vector<int64_t> &shape) {
  int64_t elements = 1;
  for (int64_t size : shape) {
    if (size < 0 || elements > (int64_t(1) << 44) / std::max<int64_t>(size, 1))
      return false;
    elements *= std::max<int64_t>(size, 1);
  }
  return shape.size() <= 16;
}

View zorse::onnx_import::contiguousView(const std::vector<int64_t> &shape, bool sampled) {
  View view;
  view.dims.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (sampled && i == 0) {
      view.dims[0] = {Factor{shape[0], 0, true}};
      break;
    }
    if (shape[i] != 1)
      view.dims[i] = {Factor{shape[i], stride, false}};
    stride *= shape[i];
  }
  return view;
}

void zorse::onnx_import::coalesce(FactorList &list) {
  FactorList out;
  for (const Factor &factor : list) {
    if (factor.size == 1 && !factor.sample)
      continue;
    if (!out.empty() && !factor.sample && !out.back().sample &&
        out.back().stride == factor.size * factor.stride) {
      out.back() = Factor{out.back().size * factor.size, factor.stride, false};
      continue;
    }
    out.push_back(factor);
  }
  list = std::move(out);
}

ReshapeResult zorse::onnx_import::reshapeView(const View &view, const std::vector<int64_t> &shape,
                                              View &out, bool &guessed) {
  FactorList sequence;
  int64_t oldAxis = view.sampleAxis();
  bool oldAxisPure = oldAxis >= 0 && view.dims[oldAxis].size() == 1;
  for (const FactorList &list : view.dims)
    sequence.insert(sequence.end(), list.begin(), list.end());
  out = View{};
  out.offset = view.offset;
  out.dims.resize(shape.size());

  size_t next = 0;
  auto isSingleRow = [&](size_t at) {
    return at < sequence.size() && sequence[at].sample && sequence[at].size == 1;
  };
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    int64_t need = shape[axis];
    FactorList &list = out.dims[axis];
    if (isSingleRow(next)) {
      // One row: any of the size-1 axes here may be the sample axis. If there is none, the sample
      // axis is merged with the next axis.
      size_t ones = axis;
      while (ones < shape.size() && shape[ones] == 1)
        ++ones;
      size_t chosen = axis;
      if (oldAxisPure && static_cast<size_t>(oldAxis) >= axis &&
          static_cast<size_t>(oldAxis) < ones)
        chosen = static_cast<size_t>(oldAxis);
      if (ones - axis > 1 || ones == axis)
        guessed = true;
      if (chosen == axis)
        list.push_back(sequence[next++]);
    }
    while (need > 1) {
      if (next >= sequence.size())
        return ReshapeResult::NeedsCopy;
      Factor &factor = sequence[next];
      if (factor.size == 1 || need % factor.size == 0) {
        list.push_back(factor);
        need /= factor.size;
        ++next;
        continue;
      }
      if (factor.sample)
        return ReshapeResult::MixesSamples;
      if (factor.size % need != 0) {
        for (size_t i = next; i < sequence.size(); ++i)
          if (sequence[i].sample)
            return ReshapeResult::MixesSamples;
        return ReshapeResult::NeedsCopy;
      }
      int64_t inner = factor.size / need;
      list.push_back(Factor{need, factor.stride * inner, false});
      factor.size = inner;
      need = 1;
    }
    coalesce(list);
  }
  if (isSingleRow(next) && !shape.empty())
    out.dims.back().push_back(sequence[next++]);
  return ReshapeResult::Done;
}

bool zorse::onnx_import::sliceView(View &view, int64_t axis, int64_t start, int64_t step,
                                   int64_t count) {
  FactorList &list = view.dims[axis];
  int64_t whole = productOf(list);
  if (start == 0 && step == 1 && count == whole)
    return true;
  if (list.size() == 1) {
    Factor &factor = list[0];
    view.offset += start * factor.stride;
    factor.stride *= step;
    factor.size = count;
    coalesce(list);
    return true;
  }
  // A range that includes complete inner factors cuts only the outermost factor.
  int64_t inner = list.empty() ? 1 : whole / list[0].size;
  if (list.empty() || step != 1 || start % inner != 0 || count % inner != 0) {
    if (count != 1)
      return false;
    int64_t rest = start; // a single element: add an offset in every factor
    for (size_t i = list.size(); i-- > 0;) {
      view.offset += rest % list[i].size * list[i].stride;
      rest /= list[i].size;
    }
    list.clear();
    return true;
  }
  view.offset += start / inner * list[0].stride;
  list[0].size = count / inner;
  coalesce(list);
  return true;
}

bool zorse::onnx_import::isCuttable(const View &view, int64_t total) {
  FactorList factors;
  for (const FactorList &list : view.dims)
    for (const Factor &factor : list)
      if (!factor.sample && factor.stride != 0)
        factors.push_back(factor);
  std::sort(factors.begin(), factors.end(),
            [](const Factor &a, const Factor &b) { return a.stride > b.stride; });
  int64_t outer = total, offset = view.offset;
  for (const Factor &factor : factors) {
    if (factor.stride < 0 || outer % factor.stride != 0)
      return false;
    int64_t extent = outer / factor.stride;
    if (offset / factor.stride + factor.size > extent)
      return false;
    offset %= factor.stride;
    outer = factor.stride;
  }
  return true;
}
