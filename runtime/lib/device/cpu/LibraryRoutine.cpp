#include "LibraryRoutine.h"

#include "AttentionShape.h"
#include "HalfGemm.h"
#include "Simd.h"
#include "ThreadPool.h"
#include "bundle.pb.h"
#include "zorse/runtime/abi/Library.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;

namespace {

bool isFloat(bundle::ElementType type) { return type == bundle::F32 || type == bundle::F64; }

/// sums[0] += squares, sums[1] += number of non-finite elements. Blocks of fixed size are summed in
/// f64 by a fixed tree, then sequentially.
class SquaredNorm final : public LibraryRoutine {
public:
  explicit SquaredNorm(bundle::ElementType type) : type_(type) {}

  void run(const LibraryArguments &arguments) override {
    constexpr int64_t kBlock = 1 << 16;
    int64_t blocks = (arguments.rows + kBlock - 1) / kBlock;
    if (static_cast<int64_t>(partial_.size()) < blocks)
      partial_.resize(blocks);
    const SimdOps &simd = simdOps();
    arguments.pool.forEach(blocks, [&](int64_t block) {
      int64_t begin = block * kBlock, size = std::min(kBlock, arguments.rows - begin);
      if (type_ == bundle::F32)
        simd.squaredNormF32(static_cast<const float *>(arguments.operands[0]) + begin, size,
                            &partial_[block].squares, &partial_[block].nonFinite);
      else
        simd.squaredNormF64(static_cast<const double *>(arguments.operands[0]) + begin, size,
                            &partial_[block].squares, &partial_[block].nonFinite);
    });
    double squares = 0, nonFinite = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      squares += partial_[block].squares;
      nonFinite += partial_[block].nonFinite;
    }
    auto *sums = static_cast<double *>(arguments.operands[1]);
    sums[0] += squares;
    sums[1] += nonFinite;
  }

private:
  struct Partial {
    double squares, nonFinite;
  };
  bundle::ElementType type_;
  std::vector<Partial> partial_;
};

class SumLoss final : public LibraryRoutine {
public:
  SumLoss(bundle::ElementType type, int terms) : type_(type), terms_(terms) {}

  void run(const LibraryArguments &arguments) override {
    auto *sums = static_cast<double *>(arguments.operands[terms_]);
    for (int term = 0; term < terms_; ++term) {
      double sum = 0;
      for (int64_t row = 0; row < arguments.rows; ++row)
        sum += type_ == bundle::F32
                   ? double(static_cast<const float *>(arguments.operands[term])[row])
                   : static_cast<const double *>(arguments.operands[term])[row];
      sums[2 + term] += sum;
    }
  }

private:
  bundle::ElementType type_;
  int terms_;
};

/// Casts f32 to half precision.
class Cast final : public LibraryRoutine {
public:
  explicit Cast(HalfType type) : type_(type) {}

  void run(const LibraryArguments &arguments) override {
    constexpr int64_t kBlock = 1 << 16;
    const int64_t rows = arguments.rows;
    arguments.pool.forEach((rows + kBlock - 1) / kBlock, [&](int64_t block) {
      const int64_t begin = block * kBlock, count = std::min(kBlock, rows - begin);
      narrowRows(type_, static_cast<const float *>(arguments.operands[0]) + begin, count, 1, count,
                 static_cast<uint16_t *>(arguments.operands[1]) + begin, count);
    });
  }

private:
  HalfType type_;
};

/// The clip/skip decision. Clips like torch.nn.utils.clip_grad_norm_.
class ClipAndCheck final : public LibraryRoutine {
public:
  explicit ClipAndCheck(int64_t scaleInterval) : scaleInterval_(scaleInterval) {}

  void run(const LibraryArguments &arguments) override {
    const auto *sums = static_cast<const double *>(arguments.operands[0]);
    auto &scalars = *static_cast<abi::StepScalars *>(arguments.operands[1]);
    // Only `updates` if there is no loss scaling.
    auto &state = *static_cast<abi::OptimizerStep *>(arguments.operands[2]);
    const bool scales = scaleInterval_ > 0;

    const double scale = scales ? state.lossScale : 1.0;
    double norm = std::sqrt(sums[0]) / scale;
    double factor = 1.0 / scale;
    if (scalars.clipNorm > 0) {
      double ratio = scalars.clipNorm / (norm + 1e-6);
      factor *= ratio > 1.0 ? 1.0 : ratio; // NaN stays NaN
    }
    bool finite = sums[1] == 0 && std::isfinite(norm);
    for (int term = 0; term < abi::kMaxLossTerms; ++term)
      finite = finite && std::isfinite(sums[2 + term]);
    const bool nothing = !std::all_of(std::begin(scalars.lossGradient),
                                      std::end(scalars.lossGradient),
                                      [](double seed) { return std::isfinite(seed); });
    bool skip = nothing || (scalars.skipNonFinite != 0 && !finite);

    scalars.decided.clipFactor = factor;
    scalars.decided.gradientNorm = norm;
    scalars.decided.skip = skip;
    scalars.decided.lossScale = scales ? scale : 0;
    if (!skip)
      state.updates += 1.0;
    if (scales && !nothing)
      nextScale(state, finite);
  }

private:
  /// Updates the loss scale like torch.amp.GradScaler.update().
  void nextScale(abi::OptimizerStep &state, bool finite) const {
    if (!finite) {
      state.lossScale = std::max(state.lossScale * 0.5, 1.0);
      state.goodSteps = 0;
      state.overflows += 1;
    } else if (++state.goodSteps >= double(scaleInterval_)) {
      state.lossScale *= 2;
      state.goodSteps = 0;
    }
  }

  int64_t scaleInterval_;
};

/// Multiplies the loss gradients, with which the backward begins, by the loss scale.
class ScaleLossGradient final : public LibraryRoutine {
public:
  void run(const LibraryArguments &arguments) override {
    auto &scalars = *static_cast<abi::StepScalars *>(arguments.operands[0]);
    for (double &seed : scalars.lossGradient)
      seed *= static_cast<const abi::OptimizerStep *>(arguments.operands[1])->lossScale;
  }
};

} // namespace

Status zorse::runtime::checkOperands(const bundle::LibraryCall &call, int min, int max,
                                     uint64_t optional) {
  if (call.operands_size() < min || call.operands_size() > max)
    return userError("library routine '" + call.name() + "': expects " + std::to_string(min) +
                     (max == min                               ? ""
                      : max == std::numeric_limits<int>::max() ? " or more"
                                                               : " to " + std::to_string(max)) +
                     " operands, got " + std::to_string(call.operands_size()));
  for (int i = 0; i < call.operands_size(); ++i)
    if (call.operands(i).argument() == abi::kAbsentArgument && !(i < 64 && (optional >> i & 1)))
      return userError("library routine '" + call.name() + "': operand " + std::to_string(i) +
                       " is absent but not optional");
  return Status::success();
}

Result<std::unique_ptr<LibraryRoutine>>
zorse::runtime::makeLibraryRoutine(const bundle::LibraryCall &call) {
  const std::string &name = call.name();
  if (name == "attention_forward")
    return makeAttentionForward(call);
  if (name == "attention_backward")
    return makeAttentionBackward(call);
  if ((name == "squared_norm" || name == "sum_loss") && !isFloat(call.type()))
    return userError("library routine '" + name + "': expects element type F32 or F64, got " +
                     bundle::ElementType_Name(call.type()));
  if (name == "squared_norm") {
    if (Status status = checkOperands(call, 2, 2, 0); status.failed())
      return status;
    return std::unique_ptr<LibraryRoutine>(new SquaredNorm(call.type()));
  }
  if (name == "sum_loss") {
    if (Status status = checkOperands(call, 2, abi::kMaxLossTerms + 1, 0); status.failed())
      return status;
    return std::unique_ptr<LibraryRoutine>(new SumLoss(call.type(), call.operands_size() - 1));
  }
  if (name == "cast") {
    std::optional<HalfType> type = halfType(call.type());
    if (!type)
      return userError("library routine 'cast': expects element type BF16 or F16, got " +
                       bundle::ElementType_Name(call.type()));
    if (Status status = checkOperands(call, 2, 2, 0); status.failed())
      return status;
    return std::unique_ptr<LibraryRoutine>(new Cast(*type));
  }
  if (name == "decide") {
    if (Status status = checkOperands(call, 3, 3, 0); status.failed())
      return status;
    auto interval = call.integers().find("scale_interval");
    return std::unique_ptr<LibraryRoutine>(
        new ClipAndCheck(interval == call.integers().end() ? 0 : interval->second));
  }
  if (name == "scale_seeds") {
    if (Status status = checkOperands(call, 2, 2, 0); status.failed())
      return status;
    return std::unique_ptr<LibraryRoutine>(new ScaleLossGradient());
  }
  return userError("unknown library routine '" + name +
                   "': this runtime knows attention_forward, attention_backward, squared_norm, "
                   "sum_loss, decide, scale_seeds and cast; the bundle was written by "
                   "another version");
}
