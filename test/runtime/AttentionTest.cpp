// Compares blocked attention with the definition: the forward in f32 and f64, the gradients with
// the softmax gradient written out and with finite differences.
#include "HostArguments.h"
#include "bundle.pb.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/abi/Library.h"
#include "zorse/runtime/abi/Random.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;

namespace {

enum class Mask { None, Additive, Boolean };

struct Shape {
  int64_t rows = 2, queries = 5, keys = 5, heads = 2, keyHeads = 2, size = 4, valueSize = 4;
  bool causal = true;
  int64_t window = 0;
  double softcap = 0, dropout = 0;
  Mask mask = Mask::None;
  bool closedQuery = false; ///< a boolean mask hides all keys of query 1; an additive mask hides
                            ///< its keys by -3e38, which absorbs the scores

  int64_t statistics() const { return mask == Mask::Additive ? 2 : 1; } ///< values per query in lse
};

constexpr int64_t kSampleBase = 11;
constexpr uint64_t kRngIdBase = 3;

template <typename T> struct Tensors {
  std::vector<T> q, k, v, mask, out, lse, dout, dq, dk, dv;
  std::vector<uint8_t> open;
  zorse::abi::StepScalars scalars = {};
};

double noise(uint64_t i) { return double(zorse::abi::mix64(i) >> 11) / double(1ull << 53) * 2 - 1; }

template <typename T> Tensors<T> makeTensors(const Shape &s) {
  Tensors<T> t;
  auto fill = [](std::vector<T> &x, int64_t n, uint64_t salt) {
    x.resize(n);
    for (int64_t i = 0; i < n; ++i)
      x[i] = T(noise(salt * 1000003 + i));
  };
  fill(t.q, s.rows * s.queries * s.heads * s.size, 1);
  fill(t.k, s.rows * s.keys * s.keyHeads * s.size, 2);
  fill(t.v, s.rows * s.keys * s.keyHeads * s.valueSize, 3);
  fill(t.mask, s.rows * s.queries * s.keys, 4);
  fill(t.dout, s.rows * s.queries * s.heads * s.valueSize, 5);
  t.open.resize(t.mask.size());
  for (size_t i = 0; i < t.open.size(); ++i)
    t.open[i] = noise(99 + i) > -0.5 && !(s.closedQuery && int64_t(i) / s.keys % s.queries == 1);
  for (size_t i = 0; s.closedQuery && i < t.mask.size(); ++i)
    t.mask[i] = t.open[i] ? T(0) : T(-3e38);
  t.out.assign(t.dout.size(), T(NAN));
  t.lse.assign(s.rows * s.heads * s.queries * s.statistics(), T(NAN));
  t.dq.assign(t.q.size(), T(NAN));
  t.dk.assign(t.k.size(), T(NAN));
  t.dv.assign(t.v.size(), T(NAN));
  t.scalars.seed = 5;
  t.scalars.step = 2;
  return t;
}

double scaleOf(const Shape &s) { return 1.0 / std::sqrt(double(s.size)); }

/// The definition, in f64. Also computes gradients if dq is not null.
struct Reference {
  std::vector<double> out, lse, dq, dk, dv;
};

template <typename T> Reference reference(const Shape &s, const Tensors<T> &t) {
  Reference r;
  r.out.assign(t.out.size(), 0);
  r.lse.assign(t.lse.size(), 0);
  r.dq.assign(t.q.size(), 0);
  r.dk.assign(t.k.size(), 0);
  r.dv.assign(t.v.size(), 0);
  auto q = [&](int64_t row, int64_t i, int64_t h, int64_t d) {
    return ((row * s.queries + i) * s.heads + h) * s.size + d;
  };
  auto k = [&](int64_t row, int64_t j, int64_t h, int64_t d) {
    return ((row * s.keys + j) * s.keyHeads + h) * s.size + d;
  };
  auto v = [&](int64_t row, int64_t j, int64_t h, int64_t d) {
    return ((row * s.keys + j) * s.keyHeads + h) * s.valueSize + d;
  };
  auto o = [&](int64_t row, int64_t i, int64_t h, int64_t d) {
    return ((row * s.queries + i) * s.heads + h) * s.valueSize + d;
  };
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t h = 0; h < s.heads; ++h) {
      int64_t kh = h / (s.heads / s.keyHeads);
      uint64_t stream = zorse::abi::randomStream(t.scalars.seed, t.scalars.step, kRngIdBase + 7,
                                                 kSampleBase + row);
      for (int64_t i = 0; i < s.queries; ++i) {
        std::vector<double> score(s.keys), slope(s.keys, 1), p(s.keys), keep(s.keys, 1);
        double largest = -INFINITY;
        for (int64_t j = 0; j < s.keys; ++j) {
          double sum = 0;
          for (int64_t d = 0; d < s.size; ++d)
            sum += double(t.q[q(row, i, h, d)]) * t.k[k(row, j, kh, d)];
          sum *= scaleOf(s);
          if (s.softcap > 0) {
            double tanh = std::tanh(sum / s.softcap);
            sum = s.softcap * tanh;
            slope[j] = 1 - tanh * tanh;
          }
          int64_t diagonal = i + s.keys - s.queries, at = (row * s.queries + i) * s.keys + j;
          if (s.mask == Mask::Additive)
            sum = double(T(sum + t.mask[at])); // large mask values absorb the scores, as in T
          bool visible = (!s.causal || j <= diagonal) &&
                         (s.window == 0 || j > diagonal - s.window) &&
                         (s.mask != Mask::Boolean || t.open[at]);
          score[j] = visible ? sum : -INFINITY;
          largest = std::max(largest, score[j]);
        }
        double total = 0;
        for (int64_t j = 0; j < s.keys; ++j)
          total += p[j] = largest == -INFINITY ? 0 : std::exp(score[j] - largest);
        const size_t query = size_t((row * s.heads + h) * s.queries + i);
        if (s.statistics() == 2)
          r.lse[2 * query] = largest, r.lse[2 * query + 1] = total;
        else
          r.lse[query] = largest == -INFINITY ? -INFINITY : largest + std::log(total);
        std::vector<double> dp(s.keys, 0);
        double delta = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
          p[j] = total > 0 ? p[j] / total : 0;
          if (s.dropout > 0)
            keep[j] = zorse::abi::randomBits(stream, (h * s.queries + i) * s.keys + j) >=
                              zorse::abi::dropThreshold(s.dropout)
                          ? 1 / (1 - s.dropout)
                          : 0;
          for (int64_t d = 0; d < s.valueSize; ++d) {
            r.out[o(row, i, h, d)] += p[j] * keep[j] * t.v[v(row, j, kh, d)];
            r.dv[v(row, j, kh, d)] += p[j] * keep[j] * t.dout[o(row, i, h, d)];
            dp[j] += t.dout[o(row, i, h, d)] * t.v[v(row, j, kh, d)] * keep[j];
          }
          delta += p[j] * dp[j];
        }
        for (int64_t j = 0; j < s.keys; ++j) {
          double ds = p[j] * (dp[j] - delta) * slope[j] * scaleOf(s);
          for (int64_t d = 0; d < s.size; ++d) {
            r.dq[q(row, i, h, d)] += ds * t.k[k(row, j, kh, d)];
            r.dk[k(row, j, kh, d)] += ds * t.q[q(row, i, h, d)];
          }
        }
      }
    }
  return r;
}

template <typename T> bundle::CompiledFunction attentionFunction(const Shape &s, bool backward) {
  bundle::CompiledFunction function;
  bundle::LibraryCall &call = *function.add_launches()->mutable_library();
  call.set_name(backward ? "attention_backward" : "attention_forward");
  call.set_type(sizeof(T) == 4 ? bundle::F32 : bundle::F64);
  std::vector<std::string> operands =
      backward ? std::vector<std::string>{"q",    "k",  "v",  "mask", "out", "lse",
                                          "dout", "dq", "dk", "dv",   "",    "scalars"}
               : std::vector<std::string>{"q", "k", "v", "mask", "out", "lse", "", "scalars"};
  for (const std::string &name : operands) {
    bool absent = name.empty() || (name == "mask" && s.mask == Mask::None) ||
                  (name == "scalars" && s.dropout == 0);
    function.add_arguments()->mutable_bytes()->set_fixed(1 << 30);
    function.mutable_arguments(function.arguments_size() - 1)
        ->mutable_bytes()
        ->set_per_row(1 << 30);
    call.add_operands()->set_argument(absent ? zorse::abi::kAbsentArgument
                                             : uint32_t(function.arguments_size() - 1));
  }
  auto &integers = *call.mutable_integers();
  integers["query_length"] = s.queries;
  integers["key_length"] = s.keys;
  integers["heads"] = s.heads;
  integers["key_heads"] = s.keyHeads;
  integers["head_size"] = s.size;
  integers["value_head_size"] = s.valueSize;
  integers["causal"] = s.causal;
  integers["window"] = s.window;
  integers["instance"] = 7;
  integers["mask_row"] = s.queries * s.keys;
  integers["mask_query"] = s.keys;
  integers["mask_is_boolean"] = s.mask == Mask::Boolean;
  (*call.mutable_reals())["scale"] = scaleOf(s);
  (*call.mutable_reals())["softcap"] = s.softcap;
  (*call.mutable_reals())["dropout"] = s.dropout;
  return function;
}

template <typename T> void runForward(CpuDevice &device, const Shape &s, Tensors<T> &t) {
  void *mask = s.mask == Mask::Boolean ? static_cast<void *>(t.open.data()) : t.mask.data();
  zorse::runtime::test::HostArguments memory{t.q.data(),   t.k.data(),   t.v.data(), mask,
                                             t.out.data(), t.lse.data(), nullptr,    &t.scalars};
  Status status = device.runFunction(attentionFunction<T>(s, false),
                                     {{s.rows, kSampleBase, kRngIdBase}, memory});
  ASSERT_FALSE(status.failed()) << status.message();
}

template <typename T> void runBackward(CpuDevice &device, const Shape &s, Tensors<T> &t) {
  void *mask = s.mask == Mask::Boolean ? static_cast<void *>(t.open.data()) : t.mask.data();
  zorse::runtime::test::HostArguments memory{t.q.data(),   t.k.data(),   t.v.data(),    mask,
                                             t.out.data(), t.lse.data(), t.dout.data(), t.dq.data(),
                                             t.dk.data(),  t.dv.data(),  nullptr,       &t.scalars};
  Status status = device.runFunction(attentionFunction<T>(s, true),
                                     {{s.rows, kSampleBase, kRngIdBase}, memory});
  ASSERT_FALSE(status.failed()) << status.message();
}

template <typename T>
void expectClose(const std::vector<T> &got, const std::vector<double> &expected, const char *what) {
  ASSERT_EQ(got.size(), expected.size());
  double tolerance = sizeof(T) == 4 ? 3e-6 : 1e-12, norm = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(expected[i]) || std::fabs(expected[i]) > 1e30) {
      ASSERT_EQ(double(got[i]), expected[i]) << what << " " << i;
      continue;
    }
    norm += expected[i] * expected[i];
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
  }
  EXPECT_LE(std::sqrt(error), tolerance * (std::sqrt(norm) + 1e-3)) << what;
}

template <typename T> void check(const Shape &s) {
  CpuDeviceOptions options;
  options.threads = 2;
  auto device = CpuDevice::create(options);
  ASSERT_FALSE(device.failed());
  Tensors<T> t = makeTensors<T>(s);
  Reference r = reference(s, t);
  runForward(**device, s, t);
  expectClose(t.out, r.out, "out");
  expectClose(t.lse, r.lse, "lse");
  runBackward(**device, s, t);
  expectClose(t.dv, r.dv, "dv");
  expectClose(t.dq, r.dq, "dq");
  expectClose(t.dk, r.dk, "dk");
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  auto add = [&](auto &&change) {
    Shape s;
    change(s);
    all.push_back(s);
  };
  add([](Shape &s) {});
  add([](Shape &s) { s.causal = false; });
  add([](Shape &s) { s.queries = s.keys = 131, s.size = 16, s.valueSize = 8; });
  add([](Shape &s) {
    s.queries = s.keys = 600, s.heads = 1, s.keyHeads = 1, s.rows = 1, s.size = 8;
  });
  add([](Shape &s) { s.heads = 6, s.keyHeads = 2, s.queries = s.keys = 70; });
  add([](Shape &s) { s.queries = 3, s.keys = 9; });
  add([](Shape &s) { s.queries = 9, s.keys = 3; }); // the first queries have no visible key
  add([](Shape &s) { s.window = 3, s.queries = s.keys = 300; });
  add([](Shape &s) { s.window = 4, s.causal = false, s.queries = s.keys = 80; });
  add([](Shape &s) { s.mask = Mask::Additive, s.causal = false; });
  add([](Shape &s) { s.mask = Mask::Boolean, s.queries = s.keys = 70; });
  add([](Shape &s) { s.mask = Mask::Boolean, s.closedQuery = true, s.causal = false; });
  add([](Shape &s) { s.mask = Mask::Additive, s.closedQuery = true, s.causal = false; });
  add([](Shape &s) {
    s.mask = Mask::Additive, s.closedQuery = true, s.dropout = 0.25, s.queries = s.keys = 300;
  });
  add([](Shape &s) { s.softcap = 0.5, s.queries = s.keys = 66; });
  add([](Shape &s) { s.dropout = 0.25, s.queries = s.keys = 90; });
  add([](Shape &s) {
    s.dropout = 0.5, s.softcap = 2, s.mask = Mask::Additive, s.heads = 4, s.queries = s.keys = 270;
  });
  return all;
}

TEST(Attention, F32AgreesWithTheDefinition) {
  for (const Shape &s : shapes())
    check<float>(s);
}

TEST(Attention, F64AgreesWithTheDefinition) {
  for (const Shape &s : shapes())
    check<double>(s);
}

TEST(Attention, GradientsAreFiniteDifferences) {
  Shape s;
  s.softcap = 3;
  s.dropout = 0.25;
  CpuDeviceOptions options;
  auto device = CpuDevice::create(options);
  ASSERT_FALSE(device.failed());
  Tensors<double> t = makeTensors<double>(s);
  runForward(**device, s, t);
  runBackward(**device, s, t);
  auto loss = [&] {
    Tensors<double> u = t;
    runForward(**device, s, u);
    double sum = 0;
    for (size_t i = 0; i < u.out.size(); ++i)
      sum += u.out[i] * u.dout[i];
    return sum;
  };
  struct {
    std::vector<double> &x, &gradient;
  } pairs[] = {{t.q, t.dq}, {t.k, t.dk}, {t.v, t.dv}};
  for (auto &[x, gradient] : pairs)
    for (size_t i = 0; i < x.size(); i += 7) {
      double saved = x[i], h = 1e-6;
      x[i] = saved + h;
      double above = loss();
      x[i] = saved - h;
      double below = loss();
      x[i] = saved;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-8);
    }
}

TEST(Attention, BitsDoNotDependOnThreadsNorOnOtherRows) {
  Shape s;
  s.rows = 3;
  s.queries = s.keys = 150;
  Tensors<float> first;
  for (int threads : {1, 3}) {
    CpuDeviceOptions options;
    options.threads = threads;
    auto device = CpuDevice::create(options);
    ASSERT_FALSE(device.failed());
    Tensors<float> t = makeTensors<float>(s);
    runForward(**device, s, t);
    runBackward(**device, s, t);
    if (threads == 1) {
      first = t;
      continue;
    }
    EXPECT_EQ(first.out, t.out);
    EXPECT_EQ(first.dq, t.dq);
    EXPECT_EQ(first.dk, t.dk);
    EXPECT_EQ(first.dv, t.dv);

    t.v[0] += 1; // a value of row 0
    runForward(**device, s, t);
    size_t rowSize = t.out.size() / 3;
    EXPECT_NE(std::memcmp(first.out.data(), t.out.data(), rowSize * 4), 0);
    EXPECT_EQ(std::memcmp(first.out.data() + rowSize, t.out.data() + rowSize, rowSize * 8), 0);
  }
}

TEST(Attention, NotANumberIsNotHidden) {
  Shape s;
  CpuDeviceOptions options;
  auto device = CpuDevice::create(options);
  ASSERT_FALSE(device.failed());
  Tensors<float> t = makeTensors<float>(s);
  t.k[0] = NAN; // key 0 of row 0, head 0, which every query sees
  runForward(**device, s, t);
  EXPECT_TRUE(std::isnan(t.out[0]));
  EXPECT_TRUE(std::isnan(t.out[4 * s.heads * s.size]));
  EXPECT_FALSE(std::isnan(t.out.back()));
}

} // namespace
