// Imports operators that move elements. They change views; values are copied only if a view cannot
// express the result.
#include "Arithmetic.h"
#include "Known.h"
#include "Lengths.h"
#include "OpContext.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static LogicalResult importConstant(OpContext &op) {
  if (op.node.attributes.size() != 1)
    return op.error("expects one attribute that holds the value, found " +
                    Twine(op.node.attributes.size()));
  const auto &[name, attribute] = *op.node.attributes.begin();
  if (name == "value") {
    const onnx::Tensor &tensor = attribute->t();
    auto bytes = op.state.model.bytes(tensor);
    if (bytes.failed())
      return op.error(bytes.message());
    return op.result(constantOf(tensor, *bytes));
  }
  if (name == "value_int")
    return op.result(
        constantOf(ElementKind::I64, makeIntFill(ElementKind::I64, 1, attribute->i()), {}));
  if (name == "value_float")
    return op.result(scalar(ElementKind::F32, attribute->f()));
  if (name == "value_ints") {
    std::vector<int64_t> values(attribute->ints().begin(), attribute->ints().end());
    int64_t size = static_cast<int64_t>(values.size());
    return op.result(
        constantOf(ElementKind::I64, makeInts(ElementKind::I64, std::move(values)), {size}));
  }
  if (name == "value_floats") {
    std::vector<double> values(attribute->floats().begin(), attribute->floats().end());
    int64_t size = static_cast<int64_t>(values.size());
    return op.result(
        constantOf(ElementKind::F32, makeFloats(ElementKind::F32, std::move(values)), {size}));
  }
  llvm_unreachable("the operator's rule has no such attribute");
}

static LogicalResult importConstantOfShape(OpContext &op) {
  auto lengths = lengthsOf(op, 0);
  if (failed(lengths))
    return failure();
  View view;
  for (const Length &length : *lengths)
    view.dims.push_back(length.repeats);
  if (!isSensible(view.shape()))
    return op.error("expects a constant, sensible shape");
  ElementKind kind = ElementKind::F32;
  double value = 0;
  auto attribute = op.node.attributes.find("value");
  if (attribute != op.node.attributes.end()) {
    const onnx::Tensor &tensor = attribute->second->t();
    auto bytes = op.state.model.bytes(tensor);
    if (bytes.failed() || bytes->size == 0)
      return op.error(bytes.failed() ? bytes.message() : "its value is empty");
    kind = static_cast<ElementKind>(tensor.data_type());
    makeBytes(kind, *bytes, 1)->readFloats(0, 1, 1, &value);
  }
  return op.result(fillOver(kind, value, std::move(view)));
}

LogicalResult zorse::onnx_import::importIdentity(OpContext &op) { return op.result(op.operand(0)); }

static LogicalResult importShape(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  int64_t rank = x.rank(), start = op.integer("start"), end = op.integer("end", rank);
  start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
  end = std::clamp<int64_t>(end < 0 ? end + rank : end, 0, rank);
  std::vector<Number> part;
  for (int64_t i = start; i < end; ++i) {
    if (failed(checkExtent(op, x.view.dims[i])))
      return failure();
    part.push_back(extentOf(op.state, x.view.dims[i]));
  }
  View line = contiguousView({static_cast<int64_t>(part.size())}, false);
  return op.result(simplified(knownOver(ElementKind::I64, std::move(part), line)));
}

static LogicalResult importSize(OpContext &op) {
  Number elements = 1.0;
  for (const FactorList &list : op.operand(0).view.dims) {
    if (failed(checkExtent(op, list)))
      return failure();
    elements *= extentOf(op.state, list);
  }
  return op.result(knownScalar(ElementKind::I64, elements));
}

static LogicalResult importRange(OpContext &op) {
  if (op.operand(0).isKnown() || op.operand(1).isKnown() || op.operand(2).isKnown())
    return rangeOfSamples(op);
  auto start = uniformValue(op.state, op.operand(0)), limit = uniformValue(op.state, op.operand(1)),
       delta = uniformValue(op.state, op.operand(2));
  if (!start || !limit || !delta || *delta == 0)
    return op.error("expects constant bounds and a step other than 0");
  double steps = std::ceil((*limit - *start) / *delta);
  if (!(steps < 1e12))
    return op.error("is too long");
  int64_t size = truncateToInt(std::max(0.0, steps));
  ElementKind kind = op.operand(0).type;
  return op.result(constantOf(kind, makeIota(kind, size, *start, *delta), {size}));
}

static LogicalResult importReshape(OpContext &op) {
  const ImportedValue x = op.operand(0);
  if (x.isLoss())
    return importIdentity(op);
  auto lengths = lengthsOf(op, 1);
  if (failed(lengths))
    return failure();
  if (lengths->size() > 16)
    return op.error("expects a shape of at most 16 dimensions");
  std::vector<int64_t> from = x.shape(), wanted;
  std::vector<bool> told; // dimensions that may hold the samples
  for (const Length &length : *lengths) {
    wanted.push_back(length.size);
    told.push_back(length.perSample || length.size == -1 || length.size == 0);
  }
  std::vector<int64_t> *shape = &wanted;
  bool zeroIsZero = op.integer("allowzero") != 0;
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape->size(); ++i) {
    int64_t &size = (*shape)[i];
    if (size == 0 && !zeroIsZero) {
      if (i >= from.size())
        return op.error("copies dimension " + Twine(i) + " of an operand of rank " +
                        Twine(from.size()));
      size = from[i];
    }
    if (size == -1) {
      if (open >= 0)
        return op.error("has more than one -1 in its shape");
      open = static_cast<int64_t>(i);
    } else if (size < 0 || size > (int64_t(1) << 40) ||
               (size > 0 && known > (int64_t(1) << 46) / size)) {
      return op.error("has an impossible size " + Twine(size));
    } else {
      known *= size;
    }
  }
  int64_t elements = x.view.elements();
  if (open >= 0)
    (*shape)[open] = known ? elements / known : 0;
  int64_t total = 1;
  for (int64_t size : *shape)
    total *= size;
  if (total != elements)
    return op.error("expects a shape of " + Twine(elements) + " elements, found one of " +
                    Twine(total) +
                    (op.state.rowsBaked ? Twine("")
                                        : Twine("; the file may have a batch or sequence length "
                                                "baked in that differs from the one asked for")));
  auto value = reshaped(op, x, *shape);
  if (failed(value) || failed(checkTold(op, *value, told)))
    return failure();
  return op.result(*value);
}

static LogicalResult importFlatten(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  int64_t axis = op.integer("axis"), rank = x.rank();
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis > rank)
    return op.error("axis is outside the rank");
  std::vector<int64_t> shape = x.shape(), flat{1, 1};
  for (int64_t i = 0; i < rank; ++i)
    flat[i >= axis] *= shape[i];
  return op.result(reshaped(op, x, flat));
}

static LogicalResult importTranspose(OpContext &op) {
  ImportedValue x = op.operand(0);
  int64_t rank = x.rank();
  std::vector<int64_t> permutation;
  if (auto given = op.integers("perm"))
    permutation = *given;
  else
    for (int64_t i = rank; i-- > 0;)
      permutation.push_back(i);
  std::vector<int64_t> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  bool valid = static_cast<int64_t>(sorted.size()) == rank;
  for (int64_t i = 0; valid && i < rank; ++i)
    valid = sorted[i] == i;
  if (!valid)
    return op.error("expects a permutation of " + Twine(rank) + " dimensions");
  std::vector<FactorList> dims;
  for (int64_t axis : permutation)
    dims.push_back(x.view.dims[axis]);
  x.view.dims = std::move(dims);
  return op.result(std::move(x));
}

static LogicalResult importSqueeze(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (x.isLoss())
    return importIdentity(op);
  std::optional<std::vector<int64_t>> axes;
  if (failed(op.axes(1, x.rank(), axes)))
    return failure();
  std::vector<int64_t> shape = x.shape(), kept;
  for (int64_t i = 0; i < x.rank(); ++i) {
    bool listed = axes && std::find(axes->begin(), axes->end(), i) != axes->end() &&
                  !(op.node.squeezesOnes && shape[i] != 1);
    bool sample = x.view.sampleAxis() == i;
    if (listed && shape[i] != 1)
      return op.error("removes dimension " + Twine(i) + " of size " + Twine(shape[i]));
    if (listed && sample)
      return op.error("removes the sample axis");
    if (!listed && (axes || shape[i] != 1 || sample))
      kept.push_back(i);
  }
  std::vector<FactorList> dims;
  for (int64_t axis : kept)
    dims.push_back(x.view.dims[axis]);
  x.view.dims = std::move(dims);
  return op.result(std::move(x));
}

static LogicalResult importUnsqueeze(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (x.isLoss())
    return importIdentity(op);
  auto given = op.has(1) ? constantInts(op.operand(1)) : op.integers("axes");
  if (!given || given->size() > 8)
    return op.error("expects constant axes");
  int64_t rank = x.rank() + static_cast<int64_t>(given->size());
  std::vector<bool> isNew(rank, false);
  for (int64_t axis : *given) {
    if (axis < -rank || axis >= rank)
      return op.error("axis " + Twine(axis) + " is outside a tensor of rank " + Twine(rank));
    isNew[axis < 0 ? axis + rank : axis] = true;
  }
  std::vector<FactorList> dims;
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (!isNew[i] && next >= x.view.dims.size())
      return op.error("names an axis twice");
    dims.push_back(isNew[i] ? FactorList{} : x.view.dims[next++]);
  }
  x.view.dims = std::move(dims);
  return op.result(std::move(x));
}

static LogicalResult importExpand(OpContext &op) {
  ImportedValue x = op.operand(0);
  auto lengths = lengthsOf(op, 1);
  if (failed(lengths))
    return failure();
  std::vector<int64_t> shape;
  for (const Length &length : *lengths)
    shape.push_back(length.size);
  if (!isSensible(shape))
    return op.error("expects a sensible shape");
  while (static_cast<int64_t>(shape.size()) > x.rank())
    x.view.dims.insert(x.view.dims.begin(), FactorList{});
  int64_t lead = x.rank() - static_cast<int64_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    FactorList &list = x.view.dims[lead + i];
    int64_t size = x.view.size(lead + i), wanted = shape[i];
    const bool perSample =
        std::any_of(list.begin(), list.end(), [](const Factor &factor) { return factor.sample; });
    if (perSample ? wanted == size || wanted == 1
                  : !(*lengths)[i].perSample && (wanted == 1 || wanted == size))
      continue;
    if (size != 1)
      return op.error(
          "cannot expand dimension " + Twine(i) + " of size " + Twine(size) + " to " +
          ((*lengths)[i].perSample ? std::string("the samples") : std::to_string(wanted)));
    list.insert(list.end(), (*lengths)[i].repeats.begin(), (*lengths)[i].repeats.end());
    coalesce(list);
  }
  if (countSampleFactors(x.view) > 1)
    return op.error("makes a table of samples by samples; every op must treat samples apart");
  return op.result(std::move(x));
}

static LogicalResult importTile(OpContext &op) {
  ImportedValue x = op.operand(0);
  auto repeats = lengthsOf(op, 1);
  if (failed(repeats))
    return failure();
  if (static_cast<int64_t>(repeats->size()) != x.rank())
    return op.error("expects one constant repetition per dimension");
  for (int64_t i = 0; i < x.rank(); ++i) {
    const Length &length = (*repeats)[i];
    if (length.size < 1 || length.size > (1 << 24))
      return op.error("repetition " + Twine(length.size) + " is not sensible");
    if (length.size != 1 || length.perSample)
      x.view.dims[i].insert(x.view.dims[i].begin(), length.repeats.begin(), length.repeats.end());
    coalesce(x.view.dims[i]);
  }
  if (countSampleFactors(x.view) > 1)
    return op.error("makes a table of samples by samples; every op must treat samples apart");
  return op.result(std::move(x));
}

void zorse::onnx_import::registerViewOps(OperatorRegistry &registry) {
  registry.add({
      {{"Constant"},
       0,
       0,
       {constant("value"), integer("value_int"), real("value_float"), integers("value_ints"),
        reals("value_floats")},
       importConstant},
      {{"ConstantOfShape"}, 1, 1, {constant("value")}, importConstantOfShape},
      {{"Identity"}, 1, 1, {}, importIdentity},
      {{"Shape"}, 1, 1, {integer("start", 0), integer("end")}, importShape},
      {{"Size"}, 1, 1, {}, importSize},
      {{"Range"}, 3, 3, {}, importRange},
      {{"Reshape"}, 2, 2, {integer("allowzero", 0)}, importReshape},
      {{"Flatten"}, 1, 1, {integer("axis", 1)}, importFlatten},
      {{"Transpose"}, 1, 1, {integers("perm")}, importTranspose},
      {{"Squeeze"}, 1, 2, {integers("axes")}, importSqueeze},
      {{"Unsqueeze"}, 1, 2, {integers("axes")}, importUnsqueeze},
      {{"Expand"}, 2, 2, {}, importExpand},
      {{"Tile"}, 2, 2, {}, importTile},
  });
}
