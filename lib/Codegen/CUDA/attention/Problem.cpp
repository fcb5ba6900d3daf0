#include "Problem.h"

#include "CudaEmitters.h"
#include "Variant.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

double AttentionProblem::pairs() const {
  double pairs = 0;
  for (int64_t query = 0; query < queries; ++query) {
    int64_t visible = options.causal ? std::clamp<int64_t>(query + shift() + 1, 0, keys) : keys;
    pairs += double(options.window ? std::min(visible, *options.window) : visible);
  }
  return pairs * double(heads);
}

static HeadTensor headTensor(Value root, const Layout &layout, Value value) {
  return {root,
          layout.offset,
          layout.strides[0],
          layout.strides[1],
          layout.strides[2],
          typeOf(value).getElementType(),
          elementCount(typeOf(value))};
}

static HeadTensor operandOf(Value value, const BufferAliases &aliases) {
  View view = *viewOf(value, aliases);
  return headTensor(view.root, view.layout, value);
}

static HeadTensor resultOf(Value value, const BufferAliases &aliases) {
  return headTensor(value, storageLayout(value, aliases), value);
}

template <typename Op> static AttentionProblem common(Op op, const BufferAliases &aliases) {
  AttentionProblem p;
  RankedTensorType q = typeOf(op.getQ()), k = typeOf(op.getK());
  p.element = q.getElementType();
  p.queries = q.getDimSize(1), p.heads = q.getDimSize(2), p.size = q.getDimSize(3);
  p.keys = k.getDimSize(1), p.keyHeads = k.getDimSize(2);
  p.options = op.getOptions();
  p.q = operandOf(op.getQ(), aliases), p.k = operandOf(op.getK(), aliases),
  p.v = operandOf(op.getV(), aliases);
  if (Value mask = op.getMask()) {
    View view = *viewOf(mask, aliases);
    ArrayRef<int64_t> shape = typeOf(mask).getShape(), strides = view.layout.strides;
    auto stride = [&](size_t dim) { return shape[dim] == 1 ? 0 : strides[dim]; };
    p.mask = MaskTensor{view.root, view.layout.offset, stride(0),
                        stride(1), stride(2),          typeOf(mask).getElementType()};
  }
  return p;
}

AttentionProblem cuda::problemOf(Operation *operation, const BufferAliases &aliases,
                                 StringRef chip) {
  AttentionProblem p;
  if (auto op = dyn_cast<AttentionOp>(operation)) {
    p = common(op, aliases);
    p.capability = *cuda::capabilityOf(chip);
    p.out = resultOf(op.getOut(), aliases);
    if (Value lse = op.getLse())
      p.lse = lse, p.lseOffset = storageLayout(lse, aliases).offset;
    return p;
  }
  auto op = cast<AttentionGradOp>(operation);
  p = common(op, aliases);
  p.capability = *cuda::capabilityOf(chip);
  p.out = operandOf(op.getOut(), aliases), p.dout = operandOf(op.getDout(), aliases);
  View lse = *viewOf(op.getLse(), aliases);
  p.lse = lse.root, p.lseOffset = lse.layout.offset;
  p.dq = resultOf(op.getDq(), aliases), p.dk = resultOf(op.getDk(), aliases),
  p.dv = resultOf(op.getDv(), aliases);
  return p;
}

template <typename Op> static std::string why(Op op) {
  RankedTensorType q = typeOf(op.getQ()), k = typeOf(op.getK()), v = typeOf(op.getV());
  if (!q.getElementType().isBF16() && !q.getElementType().isF16())
    return "tensor cores need bf16 or f16";
  if (!carriesSamples(q))
    return "the queries have no sample axis";
  if (v.getDimSize(3) != q.getDimSize(3))
    return "values and keys have different sizes";
  if (!tileColumns(q.getDimSize(3)))
    return "heads of " + std::to_string(q.getDimSize(3)) +
           " elements: expected a multiple of 8 up to 256";
  if (op.getCausal() && k.getDimSize(1) < q.getDimSize(1))
    return "causal attention has fewer keys than queries";
  // Blocks index positions in 32 bits.
  if (std::max(q.getDimSize(1), k.getDimSize(1)) > (int64_t(1) << 24))
    return "there are more than 2^24 positions";
  return "";
}

std::string cuda::whyUnsupported(Operation *op, StringRef chip) {
  const std::optional<int> capability = cuda::capabilityOf(chip);
  if (!capability || *capability < 80)
    return "bf16 tensor cores and asynchronous copies need sm_80 or newer";
  if (auto forward = dyn_cast<AttentionOp>(op))
    return why(forward);
  return why(cast<AttentionGradOp>(op));
}
