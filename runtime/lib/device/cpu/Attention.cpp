// Blocked attention. No tensor of queries x keys is stored: the forward uses online softmax
// (Milakov and Gimelshein, 2018), and the backward recomputes the probabilities from the
// log-sum-exp (Dao et al., 2022), or from the maximum score and the sum if a mask is added.
//
//             keys ->  tile 0   tile 1
//   queries   block 0  [####....]
//        |    block 1  [########][##......]
//        v
//
// # is visible. There is one matmul per (block, tile), as wide as its last query sees.
//
// Work items of the forward are (row, head, query block), those of the backward (row, key head).
// Every gradient element therefore has one writer and one order of summation.
#include "AttentionShape.h"
#include "HalfGemm.h"
#include "LibraryRoutine.h"
#include "Simd.h"
#include "ThreadPool.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyTile = 256;

template <typename T> struct Loops;
template <> struct Loops<float> {
  static float maximum(const float *x, int64_t n) { return simdOps().maximumF32(x, n); }
  static float exponentials(float *x, int64_t n, float shift) {
    return simdOps().exponentialsF32(x, n, shift);
  }
  static void gradient(float *s, const float *p, const float *d, int64_t n, float delta) {
    simdOps().softmaxGradientF32(s, p, d, n, delta);
  }
  static void scale(float *x, int64_t n, float factor) { simdOps().scaleF32(x, n, factor); }
  static float dot(const float *x, const float *y, int64_t n) { return simdOps().dotF32(x, y, n); }
  static void add(float *x, const float *y, int64_t n) { simdOps().addF32(x, y, n); }
};
template <> struct Loops<double> {
  static double maximum(const double *x, int64_t n) { return simdOps().maximumF64(x, n); }
  static double exponentials(double *x, int64_t n, double shift) {
    return simdOps().exponentialsF64(x, n, shift);
  }
  static void gradient(double *s, const double *p, const double *d, int64_t n, double delta) {
    simdOps().softmaxGradientF64(s, p, d, n, delta);
  }
  static void scale(double *x, int64_t n, double factor) { simdOps().scaleF64(x, n, factor); }
  static double dot(const double *x, const double *y, int64_t n) {
    return simdOps().dotF64(x, y, n);
  }
  static void add(double *x, const double *y, int64_t n) { simdOps().addF64(x, y, n); }
};

/// Per-thread scratch memory, kept between calls. Each `purpose` has a separate buffer.
enum class Purpose { Tiles, Operands };
template <typename T, Purpose purpose = Purpose::Tiles> T *scratch(size_t elements) {
  thread_local std::vector<T> buffer;
  if (buffer.size() < elements)
    buffer.resize(elements);
  return buffer.data();
}

/// Rows of one head in the computation type: `data[i * position + e]`.
template <typename T> struct Rows {
  T *data;
  int64_t position;

  T *at(int64_t row) const { return data + row * position; }
};

/// Copies of half-precision operands, widened to the computation type, in one buffer. Other
/// operands are read in place.
template <typename T> class Operands {
public:
  Operands(const AttentionShape &shape, int64_t elements)
      : shape_(shape), next_(shape.stored ? scratch<T, Purpose::Operands>(elements) : nullptr) {}

  /// `count` rows of `size` elements, from `first` on.
  Rows<const T> read(const HeadStrides &strides, void *base, int64_t row, int64_t first,
                     int64_t head, int64_t count, int64_t size) {
    if (!shape_.stored)
      return {strides.at<const T>(base, row, first, head), strides.position};
    T *to = take(count * size);
    if constexpr (std::is_same_v<T, float>)
      widenRows(*shape_.stored, strides.at<const uint16_t>(base, row, first, head),
                strides.position, count, size, to, size);
    return {to, size};
  }

  /// Memory for a result. A result that will be narrowed is accumulated in a zeroed buffer first;
  /// `write` narrows it.
  Rows<T> result(bool narrow, const HeadStrides &strides, void *base, int64_t row, int64_t first,
                 int64_t head, int64_t count, int64_t size) {
    if (!narrow)
      return {strides.at<T>(base, row, first, head), strides.position};
    T *to = take(count * size);
    std::fill(to, to + count * size, T(0));
    return {to, size};
  }

  void write(const Rows<T> &from, const HeadStrides &strides, void *base, int64_t row,
             int64_t first, int64_t head, int64_t count, int64_t size) {
    if constexpr (std::is_same_v<T, float>)
      narrowRows(*shape_.stored, from.data, from.position, count, size,
                 strides.at<uint16_t>(base, row, first, head), strides.position);
  }

private:
  T *take(int64_t elements) {
    T *taken = next_;
    next_ += elements;
    return taken;
  }

  const AttentionShape &shape_;
  T *next_;
};

/// One (row, head) of one call.
template <typename T> struct Head {
  const AttentionShape &shape;
  int64_t row, head;
  const void *mask; ///< mask of this row and head, or null
  bool drops;       ///< dropout in training
  uint64_t stream;  ///< stream of random numbers

  Head(const AttentionShape &shape, const LibraryArguments &arguments, int64_t row, int64_t head,
       const void *maskBase, const void *scalars)
      : shape(shape), row(row), head(head), mask(nullptr), drops(false), stream(0) {
    if (maskBase) {
      int64_t offset = row * shape.maskRow + head * shape.maskHead;
      mask = shape.maskIsBoolean
                 ? static_cast<const void *>(static_cast<const uint8_t *>(maskBase) + offset)
                 : static_cast<const T *>(maskBase) + offset;
    }
    if (shape.dropout > 0) {
      const auto &step = *static_cast<const abi::StepScalars *>(scalars);
      drops = step.evaluation == 0;
      stream = abi::randomStream(step.seed, step.step,
                                 arguments.rngIdBase + static_cast<uint64_t>(shape.instance),
                                 static_cast<uint64_t>(arguments.sampleBase + row));
    }
  }

  /// Applies softcap and mask to scores [first, last) of a tile row that starts at key `tile`.
  /// `slope` (optional) receives the derivative of the softcap.
  void finishScores(T *scores, int64_t query, int64_t tile, int64_t first, int64_t last,
                    T *slope) const {
    if (shape.softcap > 0) {
      T cap = static_cast<T>(shape.softcap);
      for (int64_t j = first; j < last; ++j) {
        T t = std::tanh(scores[j] / cap);
        scores[j] = cap * t;
        if (slope)
          slope[j] = 1 - t * t;
      }
    }
    if (!mask)
      return;
    int64_t offset = query * shape.maskQuery + tile;
    if (shape.maskIsBoolean) {
      const uint8_t *open = static_cast<const uint8_t *>(mask) + offset;
      for (int64_t j = first; j < last; ++j)
        if (!open[j])
          scores[j] = -std::numeric_limits<T>::infinity();
    } else {
      Loops<T>::add(scores + first, static_cast<const T *>(mask) + offset + first, last - first);
    }
  }

  /// target[j] = x[j] * keep / (1 - p).
  void drop(T *target, const T *x, int64_t query, int64_t tile, int64_t first, int64_t last) const {
    uint64_t threshold = abi::dropThreshold(shape.dropout);
    T factor = static_cast<T>(1.0 / (1.0 - shape.dropout));
    uint64_t element = static_cast<uint64_t>(
        ((shape.firstHead + head) * shape.queries + query) * shape.keys + tile);
    for (int64_t j = first; j < last; ++j)
      target[j] = abi::randomBits(stream, element + static_cast<uint64_t>(j)) >= threshold
                      ? x[j] * factor
                      : T(0);
  }
};

template <typename T> void zeroRows(T *base, int64_t rows, int64_t stride, int64_t size) {
  for (int64_t i = 0; i < rows; ++i)
    std::memset(base + i * stride, 0, sizeof(T) * size);
}

/// The values that the forward stores for this query and those that follow
/// (AttentionShape::statistics).
template <typename T>
T *statisticsOf(const AttentionShape &s, void *base, int64_t row, int64_t head, int64_t query) {
  return static_cast<T *>(base) + ((row * s.heads + head) * s.queries + query) * s.statistics();
}

class AttentionForward final : public LibraryRoutine {
public:
  explicit AttentionForward(const AttentionShape &shape) : shape_(shape) {}

  void run(const LibraryArguments &arguments) override {
    shape_.isDouble ? runAs<double>(arguments) : runAs<float>(arguments);
  }

private:
  template <typename T> void runAs(const LibraryArguments &arguments) {
    int64_t blocks = (shape_.queries + kQueryBlock - 1) / kQueryBlock;
    arguments.pool.forEach(arguments.rows * shape_.heads * blocks, [&](int64_t item) {
      block<T>(arguments, item / (shape_.heads * blocks), item / blocks % shape_.heads,
               item % blocks * kQueryBlock);
    });
  }

  template <typename T>
  void block(const LibraryArguments &arguments, int64_t row, int64_t head, int64_t firstQuery) {
    const AttentionShape &s = shape_;
    int64_t queries = std::min(kQueryBlock, s.queries - firstQuery),
            keyHead = head / (s.heads / s.keyHeads);
    int64_t end = s.lastKey(firstQuery + queries - 1),
            start = s.firstKey(firstQuery) / kKeyTile * kKeyTile,
            seen = std::max<int64_t>(end - start, 0);
    Operands<T> operands(s, (queries + seen) * (s.headSize + s.valueHeadSize));
    Rows<const T> q =
        operands.read(s.q, arguments.operands[0], row, firstQuery, head, queries, s.headSize);
    Rows<const T> k = operands.read(s.k, arguments.operands[1], row, start, keyHead, seen,
                                    s.headSize); // starting at `start`
    Rows<const T> v =
        operands.read(s.v, arguments.operands[2], row, start, keyHead, seen, s.valueHeadSize);
    Rows<T> out = operands.result(s.stored.has_value(), s.out, arguments.operands[4], row,
                                  firstQuery, head, queries, s.valueHeadSize);
    T *statistics = arguments.operands[5]
                        ? statisticsOf<T>(s, arguments.operands[5], row, head, firstQuery)
                        : nullptr;
    Head<T> context(s, arguments, row, head, arguments.operands[3], arguments.operands[7]);

    T *scores = scratch<T>(kQueryBlock * (kKeyTile + 2));
    T *largest = scores + kQueryBlock * kKeyTile, *sum = largest + kQueryBlock;
    const T minusInfinity = -std::numeric_limits<T>::infinity();
    std::fill(largest, largest + queries, minusInfinity);
    std::fill(sum, sum + queries, T(0));

    bool first = true;
    for (int64_t tile = start; tile < end; tile += kKeyTile, first = false) {
      int64_t width = std::min(kKeyTile, end - tile);
      arguments.gemm.multiply(
          GemmArguments<T>{false, true, queries, width, s.headSize, static_cast<T>(s.scale), q.data,
                           q.position, k.at(tile - start), k.position, T(0), scores, width});
      for (int64_t i = 0; i < queries; ++i) {
        T *x = scores + i * width;
        int64_t query = firstQuery + i;
        int64_t from = std::clamp<int64_t>(s.firstKey(query) - tile, 0, width),
                to = std::clamp<int64_t>(s.lastKey(query) - tile, from, width);
        context.finishScores(x, query, tile, from, to, nullptr);
        T before = largest[i], now = std::max(before, Loops<T>::maximum(x + from, to - from));
        if (now == minusInfinity &&
            std::none_of(x + from, x + to, [](T value) { return value != value; })) {
          std::fill(x, x + width, T(0)); // no key is visible to this query yet
          continue;
        }
        std::fill(x, x + from, T(0));
        std::fill(x + to, x + width, T(0));
        T shrink = before == minusInfinity ? T(0) : std::exp(before - now);
        sum[i] = sum[i] * shrink + Loops<T>::exponentials(x + from, to - from, now);
        largest[i] = now;
        if (context.drops)
          context.drop(x, x, query, tile, from, to);
        if (!first && shrink != T(1))
          Loops<T>::scale(out.at(i), s.valueHeadSize, shrink);
      }
      arguments.gemm.multiply(GemmArguments<T>{false, false, queries, s.valueHeadSize, width, T(1),
                                               scores, width, v.at(tile - start), v.position,
                                               first ? T(0) : T(1), out.data, out.position});
    }
    if (first)
      zeroRows(out.data, queries, out.position, s.valueHeadSize);

    for (int64_t i = 0; i < queries; ++i) {
      if (sum[i] != T(0))
        Loops<T>::scale(out.at(i), s.valueHeadSize, T(1) / sum[i]);
    }
    if (statistics && s.addsMask)
      for (int64_t i = 0; i < queries; ++i)
        statistics[2 * i] = largest[i], statistics[2 * i + 1] = sum[i];
    else if (statistics)
      for (int64_t i = 0; i < queries; ++i)
        statistics[i] = sum[i] == T(0) ? minusInfinity : largest[i] + std::log(sum[i]);
    if (s.stored)
      operands.write(out, s.out, arguments.operands[4], row, firstQuery, head, queries,
                     s.valueHeadSize);
  }

  AttentionShape shape_;
};

class AttentionBackward final : public LibraryRoutine {
public:
  explicit AttentionBackward(const AttentionShape &shape) : shape_(shape) {}

  void run(const LibraryArguments &arguments) override {
    arguments.pool.forEach(arguments.rows * shape_.keyHeads, [&](int64_t item) {
      int64_t row = item / shape_.keyHeads, keyHead = item % shape_.keyHeads;
      shape_.isDouble ? keyHeadGradients<double>(arguments, row, keyHead)
                      : keyHeadGradients<float>(arguments, row, keyHead);
    });
  }

private:
  template <typename T>
  void keyHeadGradients(const LibraryArguments &arguments, int64_t row, int64_t keyHead) {
    const AttentionShape &s = shape_;
    const int64_t sizes = s.headSize + s.valueHeadSize;
    Operands<T> operands(s, 2 * s.keys * sizes + 2 * s.queries * sizes);
    Rows<const T> k =
        operands.read(s.k, arguments.operands[1], row, 0, keyHead, s.keys, s.headSize);
    Rows<const T> v =
        operands.read(s.v, arguments.operands[2], row, 0, keyHead, s.keys, s.valueHeadSize);
    Rows<T> dk = operands.result(s.narrowGradients, s.dk, arguments.operands[8], row, 0, keyHead,
                                 s.keys, s.headSize);
    Rows<T> dv = operands.result(s.narrowGradients, s.dv, arguments.operands[9], row, 0, keyHead,
                                 s.keys, s.valueHeadSize);
    if (!(arguments.accumulate >> 8 & 1))
      zeroRows(dk.data, s.keys, dk.position, s.headSize);
    if (!(arguments.accumulate >> 9 & 1))
      zeroRows(dv.data, s.keys, dv.position, s.valueHeadSize);
    int64_t group = s.heads / s.keyHeads;
    for (int64_t head = keyHead * group; head < (keyHead + 1) * group; ++head)
      headGradients<T>(arguments, row, head, operands, k, v, dk, dv);
    if (s.narrowGradients) {
      operands.write(dk, s.dk, arguments.operands[8], row, 0, keyHead, s.keys, s.headSize);
      operands.write(dv, s.dv, arguments.operands[9], row, 0, keyHead, s.keys, s.valueHeadSize);
    }
  }

  /// \param operands  by value: the buffer of one head's copies is reused for the next head
  template <typename T>
  void headGradients(const LibraryArguments &arguments, int64_t row, int64_t head,
                     Operands<T> operands, const Rows<const T> &k, const Rows<const T> &v,
                     const Rows<T> &dk, const Rows<T> &dv) {
    const AttentionShape &s = shape_;
    Rows<const T> q =
        operands.read(s.q, arguments.operands[0], row, 0, head, s.queries, s.headSize);
    Rows<const T> out =
        operands.read(s.out, arguments.operands[4], row, 0, head, s.queries, s.valueHeadSize);
    const T *statistics = statisticsOf<const T>(s, arguments.operands[5], row, head, 0);
    Rows<const T> dout =
        operands.read(s.dout, arguments.operands[6], row, 0, head, s.queries, s.valueHeadSize);
    Rows<T> dq = operands.result(s.narrowGradients, s.dq, arguments.operands[7], row, 0, head,
                                 s.queries, s.headSize);
    Head<T> context(s, arguments, row, head, arguments.operands[3], arguments.operands[11]);

    constexpr int64_t kTile = kQueryBlock * kKeyTile;
    bool drops = context.drops, capped = s.softcap > 0;
    T *p = scratch<T>(4 * kTile + s.queries);
    T *dp = p + kTile, *dropped = drops ? p + 2 * kTile : p,
      *slope = capped ? p + 3 * kTile : nullptr, *delta = p + 4 * kTile;
    for (int64_t i = 0; i < s.queries; ++i)
      delta[i] = Loops<T>::dot(dout.at(i), out.at(i), s.valueHeadSize);
    if (!(arguments.accumulate >> 7 & 1))
      zeroRows(dq.data, s.queries, dq.position, s.headSize);

    for (int64_t firstQuery = 0; firstQuery < s.queries; firstQuery += kQueryBlock) {
      int64_t queries = std::min(kQueryBlock, s.queries - firstQuery),
              end = s.lastKey(firstQuery + queries - 1);
      const T *qBlock = q.at(firstQuery), *doutBlock = dout.at(firstQuery);
      T *dqBlock = dq.at(firstQuery);
      for (int64_t tile = s.firstKey(firstQuery) / kKeyTile * kKeyTile; tile < end;
           tile += kKeyTile) {
        int64_t width = std::min(kKeyTile, end - tile);
        const T *keys = k.at(tile), *values = v.at(tile);
        T scale = static_cast<T>(s.scale);
        arguments.gemm.multiply(GemmArguments<T>{false, true, queries, width, s.headSize, scale,
                                                 qBlock, q.position, keys, k.position, T(0), p,
                                                 width});
        arguments.gemm.multiply(GemmArguments<T>{false, true, queries, width, s.valueHeadSize, T(1),
                                                 doutBlock, dout.position, values, v.position, T(0),
                                                 dp, width});
        for (int64_t i = 0; i < queries; ++i) {
          int64_t query = firstQuery + i, at = i * width;
          int64_t from = std::clamp<int64_t>(s.firstKey(query) - tile, 0, width),
                  to = std::clamp<int64_t>(s.lastKey(query) - tile, from, width);
          const T *own = statistics + query * s.statistics();
          if (own[0] == -std::numeric_limits<T>::infinity())
            to = from;
          context.finishScores(p + at, query, tile, from, to, capped ? slope + at : nullptr);
          Loops<T>::exponentials(p + at + from, to - from, own[0]);
          if (s.addsMask)
            Loops<T>::scale(p + at + from, to - from, T(1) / own[1]);
          for (T *tileRow : {p + at, dp + at, dropped + at}) {
            std::fill(tileRow, tileRow + from, T(0));
            std::fill(tileRow + to, tileRow + width, T(0));
          }
          if (drops) {
            context.drop(dropped + at, p + at, query, tile, from, to);
            context.drop(dp + at, dp + at, query, tile, from, to);
          }
        }
        arguments.gemm.multiply(GemmArguments<T>{true, false, width, s.valueHeadSize, queries, T(1),
                                                 dropped, width, doutBlock, dout.position, T(1),
                                                 dv.at(tile), dv.position});
        for (int64_t i = 0; i < queries; ++i) {
          T *row = dp + i * width;
          Loops<T>::gradient(row, p + i * width, row, width, delta[firstQuery + i]);
          if (capped)
            for (int64_t j = 0; j < width; ++j)
              row[j] = p[i * width + j] == T(0) ? T(0) : row[j] * slope[i * width + j];
        }
        arguments.gemm.multiply(GemmArguments<T>{false, false, queries, s.headSize, width, scale,
                                                 dp, width, keys, k.position, T(1), dqBlock,
                                                 dq.position});
        arguments.gemm.multiply(GemmArguments<T>{true, false, width, s.headSize, queries, scale, dp,
                                                 width, qBlock, q.position, T(1), dk.at(tile),
                                                 dk.position});
      }
    }
    if (s.narrowGradients)
      operands.write(dq, s.dq, arguments.operands[7], row, 0, head, s.queries, s.headSize);
  }

  AttentionShape shape_;
};

} // namespace

Result<std::unique_ptr<LibraryRoutine>>
zorse::runtime::makeAttentionForward(const bundle::LibraryCall &call) {
  if (Status status = checkOperands(call, 5, 8, 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7);
      status.failed())
    return status;
  Result<AttentionShape> shape = readAttentionShape(call, /*backward=*/false);
  if (shape.failed())
    return shape.error();
  return std::unique_ptr<LibraryRoutine>(new AttentionForward(*shape));
}

Result<std::unique_ptr<LibraryRoutine>>
zorse::runtime::makeAttentionBackward(const bundle::LibraryCall &call) {
  if (Status status = checkOperands(call, 10, 12, 1u << 3 | 1u << 10 | 1u << 11); status.failed())
    return status;
  Result<AttentionShape> shape = readAttentionShape(call, /*backward=*/true);
  if (shape.failed())
    return shape.error();
  return std::unique_ptr<LibraryRoutine>(new AttentionBackward(*shape));
}
