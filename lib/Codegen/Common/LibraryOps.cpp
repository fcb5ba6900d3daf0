#include "LibraryOps.h"

#include "llvm/ADT/Sequence.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool zorse::codegen::isMatmul(Operation *op) {
  return isa<MatmulOp, BiasedMatmulOp, MatmulGradWeightOp>(op);
}

bool zorse::codegen::isLibraryOp(Operation *op) {
  return isMatmul(op) || isa<AttentionOp, AttentionGradOp>(op);
}

bundle::ElementType zorse::codegen::bundleType(Type type) {
  type = getElementTypeOrSelf(type);
  if (type.isF32())
    return bundle::F32;
  if (type.isF64())
    return bundle::F64;
  if (type.isBF16())
    return bundle::BF16;
  if (type.isF16())
    return bundle::F16;
  if (type.isInteger(64))
    return bundle::I64;
  if (type.isInteger(32))
    return bundle::I32;
  if (type.isInteger(1))
    return bundle::I1;
  if (type.isInteger(8))
    return bundle::U8;
  return bundle::ELEMENT_TYPE_UNSPECIFIED;
}

/// Returns `value` as a view of a buffer with its own element type. Routines do not widen their
/// inputs.
static std::optional<View> sameTypeView(Value value, const BufferAliases &aliases) {
  std::optional<View> view = viewOf(value, aliases);
  if (view && getElementTypeOrSelf(view->root.getType()) != getElementTypeOrSelf(value.getType()))
    return std::nullopt;
  return view;
}

namespace {

/// Several dimensions merged into one: their common extent and one stride per tensor.
struct CollapsedDims {
  bundle::AffineSize extent;
  SmallVector<int64_t, 3> strides;
};

/// \param strides  one list per tensor, parallel to `sizes`.
std::optional<CollapsedDims> collapse(ArrayRef<int64_t> sizes,
                                      ArrayRef<ArrayRef<int64_t>> strides) {
  CollapsedDims result;
  result.strides.assign(strides.size(), 0);
  int64_t count = 1;
  bool sampled = false, any = false;
  SmallVector<int64_t, 3> expected(strides.size(), 0);
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] == 1)
      continue;
    for (size_t t = 0; t < strides.size(); ++t) {
      if (!any)
        result.strides[t] = strides[t][dim];
      else if (strides[t][dim] != expected[t])
        return std::nullopt;
      expected[t] = strides[t][dim] * (ShapedType::isDynamic(sizes[dim]) ? 1 : sizes[dim]);
    }
    any = true;
    if (ShapedType::isDynamic(sizes[dim]))
      sampled = true;
    else
      count *= sizes[dim];
  }
  sampled ? result.extent.set_per_row(count) : result.extent.set_fixed(count);
  return result;
}

bool isOne(const bundle::AffineSize &extent) {
  return extent.fixed() == 1 && extent.per_row() == 0;
}

/// Describes a matrix of `outer` × `inner` logical elements with these strides as (leading
/// dimension, transposed); none if neither stride is 1.
std::optional<std::pair<int64_t, bool>> leadingDimension(const bundle::AffineSize &outer,
                                                         int64_t outerStride,
                                                         const bundle::AffineSize &inner,
                                                         int64_t innerStride) {
  auto atLeast = [](int64_t stride, const bundle::AffineSize &extent,
                    const bundle::AffineSize &count) -> std::optional<int64_t> {
    if (extent.per_row() != 0) // no constant is large enough for all row counts; with the roles
                               // swapped, it is the number of rows
      return std::nullopt;
    if (isOne(count))
      return std::max(stride, extent.fixed());
    return stride >= extent.fixed() ? std::optional<int64_t>(stride) : std::nullopt;
  };
  if (innerStride == 1 || isOne(inner))
    if (auto ld = atLeast(outerStride, inner, outer))
      return std::make_pair(*ld, false);
  if (outerStride == 1 || isOne(outer))
    if (auto ld = atLeast(innerStride, outer, inner))
      return std::make_pair(*ld, true);
  return std::nullopt;
}

bundle::AffineSize extentOf(int64_t size) {
  bundle::AffineSize extent;
  ShapedType::isDynamic(size) ? extent.set_per_row(1) : extent.set_fixed(size);
  return extent;
}

struct Problem {
  bundle::AffineSize m, n, k, batch;
  int64_t aM = 0, aK = 0, bK = 0, bN = 0, cM = 0, cN = 0, aBatch = 0, bBatch = 0, cBatch = 0;
};

std::optional<MatmulPlan> finish(const Problem &p, View a, View b, Type type, Type operands) {
  auto aLead = leadingDimension(p.m, p.aM, p.k, p.aK);
  auto bLead = leadingDimension(p.k, p.bK, p.n, p.bN);
  auto cLead = leadingDimension(p.m, p.cM, p.n, p.cN);
  if (!aLead || !bLead || !cLead || cLead->second)
    return std::nullopt;
  MatmulPlan plan;
  plan.a = std::move(a);
  plan.b = std::move(b);
  bundle::Matmul &matmul = plan.matmul;
  matmul.set_type(bundleType(type));
  if (bundleType(operands) != matmul.type())
    matmul.set_operand_type(bundleType(operands));
  matmul.set_transpose_a(aLead->second);
  matmul.set_transpose_b(bLead->second);
  *matmul.mutable_m() = p.m;
  *matmul.mutable_n() = p.n;
  *matmul.mutable_k() = p.k;
  *matmul.mutable_batch() = p.batch;
  matmul.set_lda(aLead->first);
  matmul.set_ldb(bLead->first);
  matmul.set_ldc(cLead->first);
  matmul.set_batch_stride_a(p.aBatch);
  matmul.set_batch_stride_b(p.bBatch);
  matmul.set_batch_stride_c(p.cBatch);
  matmul.set_alpha(1.0);
  double flops = 2;
  bool sampled = false;
  for (const bundle::AffineSize *extent : {&p.m, &p.n, &p.k, &p.batch}) {
    sampled |= extent->per_row() != 0;
    flops *= extent->per_row() != 0 ? extent->per_row() : extent->fixed();
  }
  (sampled ? plan.flopsPerRow : plan.flopsFixed) = flops;
  return plan;
}

std::optional<MatmulPlan> planTransposedMatmul(Operation *op, bool transposeA, bool transposeB,
                                               const BufferAliases &aliases) {
  const Value left = op->getOperand(0), right = op->getOperand(1), y = op->getResult(0);
  std::optional<View> a = sameTypeView(left, aliases), b = sameTypeView(right, aliases);
  if (!a || !b)
    return std::nullopt;
  Layout c = storageLayout(y, aliases);
  ArrayRef<int64_t> aShape = typeOf(left).getShape(), bShape = typeOf(right).getShape(),
                    cShape = typeOf(y).getShape();
  size_t rank = aShape.size(), batchRank = rank - 2;
  ArrayRef<int64_t> aStrides = a->layout.strides, bStrides = b->layout.strides,
                    cStrides = c.strides;
  Problem p;
  size_t aM = transposeA ? rank - 1 : rank - 2, aK = transposeA ? rank - 2 : rank - 1;
  size_t bRank = bShape.size(), bK = transposeB ? bRank - 1 : bRank - 2,
         bN = transposeB ? bRank - 2 : bRank - 1;
  p.k = extentOf(aShape[aK]);
  p.n = extentOf(bShape[bN]);
  p.aK = aStrides[aK];
  p.bK = bStrides[bK];
  p.bN = bStrides[bN];
  p.cN = cStrides[rank - 1];
  // A product with a weight: if the leading dimensions are contiguous, they form one large M.
  if (bRank == 2 && !transposeA) {
    if (auto m = collapse(cShape.drop_back(), {aStrides.drop_back(), cStrides.drop_back()})) {
      p.m = m->extent;
      p.aM = m->strides[0];
      p.cM = m->strides[1];
      p.batch.set_fixed(1);
      if (auto plan = finish(p, *a, *b, y.getType(), left.getType()))
        return plan;
    }
  }
  p.m = extentOf(aShape[aM]);
  p.aM = aStrides[aM];
  p.cM = cStrides[rank - 2];
  SmallVector<int64_t> zeros(batchRank, 0);
  ArrayRef<int64_t> bBatch = bRank == 2 ? ArrayRef<int64_t>(zeros) : bStrides.take_front(batchRank);
  auto batch = collapse(cShape.take_front(batchRank),
                        {aStrides.take_front(batchRank), bBatch, cStrides.take_front(batchRank)});
  if (!batch)
    return std::nullopt;
  p.batch = batch->extent;
  p.aBatch = batch->strides[0];
  p.bBatch = batch->strides[1];
  p.cBatch = batch->strides[2];
  return finish(p, *a, *b, y.getType(), left.getType());
}

std::optional<MatmulPlan> planBiasedMatmul(BiasedMatmulOp op, const BufferAliases &aliases) {
  std::optional<MatmulPlan> plan = planTransposedMatmul(op, false, op.getTransposeB(), aliases);
  std::optional<View> bias = sameTypeView(op.getBias(), aliases);
  if (!plan || !isOne(plan->matmul.batch()) || !bias || bias->layout.strides[0] != 1)
    return std::nullopt;
  plan->bias = std::move(bias);
  return plan;
}

std::optional<MatmulPlan> planMatmulGradWeight(MatmulGradWeightOp op,
                                               const BufferAliases &aliases) {
  std::optional<View> a = sameTypeView(op.getA(), aliases), b = sameTypeView(op.getB(), aliases);
  if (!a || !b)
    return std::nullopt;
  Layout c = storageLayout(op.getY(), aliases);
  ArrayRef<int64_t> shape = typeOf(op.getA()).getShape(), aStrides = a->layout.strides,
                    bStrides = b->layout.strides;
  auto k = collapse(shape.drop_back(), {aStrides.drop_back(), bStrides.drop_back()});
  if (!k)
    return std::nullopt;
  Problem p;
  p.k = k->extent;
  p.aK = k->strides[0];
  p.bK = k->strides[1];
  p.m = extentOf(shape.back());
  p.aM = aStrides.back();
  p.n = extentOf(typeOf(op.getB()).getShape().back());
  p.bN = bStrides.back();
  p.cM = c.strides[0];
  p.cN = c.strides[1];
  p.batch.set_fixed(1);
  return finish(p, *a, *b, op.getY().getType(), op.getA().getType());
}

/// \param multiple  required alignment of rows, in elements
bool setStrides(bundle::LibraryCall &call, StringRef name, Value value, const Layout &layout,
                int64_t multiple) {
  ArrayRef<int64_t> shape = typeOf(value).getShape();
  if (shape[3] != 1 && layout.strides[3] != 1)
    return false;
  // A head's positions are the rows of a matrix. Repeated values and overlapping windows are not
  // matrices. A single position may have any stride.
  if (shape[1] != 1 && layout.strides[1] < shape[3])
    return false;
  if (layout.offset % multiple || llvm::any_of(llvm::seq(3), [&](int dim) {
        return shape[dim] != 1 && layout.strides[dim] % multiple;
      }))
    return false;
  auto &integers = *call.mutable_integers();
  integers[(name + "_row").str()] = layout.strides[0];
  integers[(name + "_position").str()] = shape[1] == 1 ? std::max(layout.strides[1], shape[3])
                                                       : layout.strides[1];
  integers[(name + "_head").str()] = layout.strides[2];
  return true;
}

template <typename Op>
bool setAttention(bundle::LibraryCall &call, Op op, const BufferAliases &aliases,
                  AttentionPlan &plan, int64_t multiple) {
  auto q = typeOf(op.getQ()), k = typeOf(op.getK()), v = typeOf(op.getV());
  AttentionOptions options = op.getOptions();
  auto &integers = *call.mutable_integers();
  integers["query_length"] = q.getDimSize(1);
  integers["key_length"] = k.getDimSize(1);
  integers["heads"] = q.getDimSize(2);
  integers["key_heads"] = k.getDimSize(2);
  integers["head_size"] = q.getDimSize(3);
  integers["value_head_size"] = v.getDimSize(3);
  integers["causal"] = options.causal;
  integers["window"] = options.window.value_or(0);
  integers["instance"] = options.rngId;
  if (options.firstHead)
    integers["first_head"] = options.firstHead;
  auto &reals = *call.mutable_reals();
  reals["scale"] = options.scale;
  reals["softcap"] = options.softcap.value_or(0.0);
  reals["dropout"] = options.dropout;
  call.set_type(bundleType(q));
  for (auto [name, value] :
       {std::pair<StringRef, Value>("q", op.getQ()), {"k", op.getK()}, {"v", op.getV()}}) {
    auto view = sameTypeView(value, aliases);
    if (!view || !setStrides(call, name, value, view->layout, multiple))
      return false;
  }
  if (Value mask = op.getMask()) {
    auto view = sameTypeView(mask, aliases);
    ArrayRef<int64_t> shape = typeOf(mask).getShape();
    if (!view || (shape[3] != 1 && view->layout.strides[3] != 1))
      return false;
    integers["mask_row"] = shape[0] == 1 ? 0 : view->layout.strides[0];
    integers["mask_head"] = shape[1] == 1 ? 0 : view->layout.strides[1];
    integers["mask_query"] = shape[2] == 1 ? 0 : view->layout.strides[2];
    integers["mask_is_boolean"] = typeOf(mask).getElementType().isInteger(1);
  }
  double pairs = static_cast<double>(q.getDimSize(1)) * k.getDimSize(1) * q.getDimSize(2) *
                 (options.causal ? 0.5 : 1.0);
  plan.flopsPerRow = 2 * pairs * (q.getDimSize(3) + v.getDimSize(3));
  return true;
}

} // namespace

std::optional<MatmulPlan> zorse::codegen::planMatmul(Operation *op, const BufferAliases &aliases) {
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return planTransposedMatmul(op, matmul.getTransposeA(), matmul.getTransposeB(), aliases);
  if (auto biased = dyn_cast<BiasedMatmulOp>(op))
    return planBiasedMatmul(biased, aliases);
  return planMatmulGradWeight(cast<MatmulGradWeightOp>(op), aliases);
}

std::optional<AttentionPlan> zorse::codegen::planAttention(Operation *operation,
                                                           const BufferAliases &aliases) {
  AttentionPlan plan;
  auto rows = operation->getAttrOfType<IntegerAttr>(kRowMultipleAttr);
  const int64_t multiple = rows ? rows.getInt() : 1;
  if (auto op = dyn_cast<AttentionOp>(operation)) {
    plan.call.set_name("attention_forward");
    if (!setAttention(plan.call, op, aliases, plan, multiple) ||
        !setStrides(plan.call, "out", op.getOut(), storageLayout(op.getOut(), aliases), multiple) ||
        (op.getLse() &&
         storageLayout(op.getLse(), aliases).strides != denseLayout(typeOf(op.getLse())).strides))
      return std::nullopt;
    plan.operands = {op.getQ(), op.getK(), op.getV(), op.getMask(), op.getOut(), op.getLse()};
    plan.firstResult = 4;
    return plan;
  }
  auto op = cast<AttentionGradOp>(operation);
  plan.call.set_name("attention_backward");
  if (!setAttention(plan.call, op, aliases, plan, multiple))
    return std::nullopt;
  auto out = sameTypeView(op.getOut(), aliases), dout = sameTypeView(op.getDout(), aliases),
       lse = sameTypeView(op.getLse(), aliases);
  if (!out || !dout || !lse || !setStrides(plan.call, "out", op.getOut(), out->layout, multiple) ||
      !setStrides(plan.call, "dout", op.getDout(), dout->layout, multiple) ||
      lse->layout.strides != denseLayout(typeOf(op.getLse())).strides)
    return std::nullopt;
  if (bundle::ElementType gradient = bundleType(op.getDq().getType()); gradient != plan.call.type())
    plan.call.set_gradient_type(gradient);
  for (auto [name, value] :
       {std::pair<StringRef, Value>("dq", op.getDq()), {"dk", op.getDk()}, {"dv", op.getDv()}})
    if (!setStrides(plan.call, name, value, storageLayout(value, aliases), multiple))
      return std::nullopt;
  plan.operands = {op.getQ(),   op.getK(),    op.getV(),  op.getMask(), op.getOut(),
                   op.getLse(), op.getDout(), op.getDq(), op.getDk(),   op.getDv()};
  plan.firstResult = 7;
  plan.flopsPerRow *= 2.5;
  return plan;
}
