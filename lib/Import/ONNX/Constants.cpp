// Reads the elements of constants.
#include "Emit.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

template <typename T, typename Read>
static std::vector<T> readAll(const ImportedValue &value, Read read) {
  FactorList factors;
  for (const FactorList &list : value.view.dims)
    factors.insert(factors.end(), list.begin(), list.end());
  std::vector<T> out(value.view.elements());
  visitRuns(value.view.offset, factors,
            [&](int64_t from, int64_t stride, int64_t count, int64_t before) {
              read(from, stride, count, out.data() + before);
              return true;
            });
  return out;
}

std::optional<std::vector<int64_t>> zorse::onnx_import::constantInts(const ImportedValue &value,
                                                                     int64_t limit) {
  if (!value.isConstant() || value.view.elements() > limit)
    return std::nullopt;
  return readAll<int64_t>(value, [&](int64_t begin, int64_t stride, int64_t n, int64_t *to) {
    value.lazy()->readInts(begin, stride, n, to);
  });
}

std::optional<std::vector<double>> zorse::onnx_import::constantFloats(const ImportedValue &value,
                                                                      int64_t limit) {
  if (!value.isConstant() || value.view.elements() > limit)
    return std::nullopt;
  return readAll<double>(value, [&](int64_t begin, int64_t stride, int64_t n, double *to) {
    value.lazy()->readFloats(begin, stride, n, to);
  });
}

std::optional<int64_t> zorse::onnx_import::constantInt(const ImportedValue &value) {
  auto values = constantInts(value, 1);
  return values && !values->empty() ? std::optional<int64_t>(values->front()) : std::nullopt;
}

ImportedValue zorse::onnx_import::runsOf(const ImportedValue &whole,
                                         const std::vector<int64_t> &begins, int64_t count,
                                         std::vector<int64_t> shape) {
  const auto read = [&](auto values, auto readRun) {
    values.resize(begins.size() * static_cast<size_t>(count));
    for (size_t i = 0; i < begins.size(); ++i)
      (*whole.lazy().*readRun)(begins[i], 1, count,
                               values.data() + static_cast<int64_t>(i) * count);
    return values;
  };
  return constantOf(whole.type,
                    isFloat(whole.type)
                        ? makeFloats(whole.type, read(std::vector<double>(), &Lazy::readFloats))
                        : makeInts(whole.type, read(std::vector<int64_t>(), &Lazy::readInts)),
                    std::move(shape));
}

// The value that all elements have.
std::optional<double> zorse::onnx_import::uniformValue(const ImportState &state,
                                                       const ImportedValue &value) {
  if (!value.isConstant() || value.view.elements() == 0)
    return std::nullopt;
  ImportedValue small = compressed(state, value);
  for (const FactorList &list : small.view.dims)
    for (const Factor &factor : list)
      if (factor.stride != 0)
        return std::nullopt;
  double out;
  value.lazy()->readFloats(small.view.offset, 0, 1, &out);
  return out;
}
