#include "ArgumentLayout.h"

#include "LibraryOps.h"

#include "zorse/Summary/Summary.h"

#include "zorse/runtime/abi/StepScalars.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

bundle::AffineSize zorse::codegen::tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  bundle::AffineSize bytes;
  int64_t count = elementCount(tensor) * elementBytes(tensor);
  carriesSamples(tensor) ? bytes.set_per_row(count) : bytes.set_fixed(count);
  return bytes;
}

static_assert(int(ArgumentKind::Parameter) == bundle::PARAMETER &&
              int(ArgumentKind::ParameterGradient) == bundle::PARAMETER_GRADIENT &&
              int(ArgumentKind::Input) == bundle::INPUT &&
              int(ArgumentKind::BoundaryIn) == bundle::BOUNDARY_IN &&
              int(ArgumentKind::BoundaryOut) == bundle::BOUNDARY_OUT &&
              int(ArgumentKind::BoundaryInGradient) == bundle::BOUNDARY_IN_GRADIENT &&
              int(ArgumentKind::BoundaryOutGradient) == bundle::BOUNDARY_OUT_GRADIENT &&
              int(ArgumentKind::Saved) == bundle::SAVED &&
              int(ArgumentKind::Scalars) == bundle::SCALARS &&
              int(ArgumentKind::Loss) == bundle::LOSS &&
              int(ArgumentKind::State) == bundle::STATE &&
              int(ArgumentKind::OptimizerStep) == bundle::OPTIMIZER_STEP &&
              int(ArgumentKind::SavedForWeightGrad) == bundle::SAVED_FOR_WEIGHT_GRAD);
static bundle::ArgumentKind kindOf(ArgumentAttr attribute) {
  return static_cast<bundle::ArgumentKind>(attribute.getKind());
}

uint32_t ArgumentLayout::argument(bundle::ArgumentKind kind, uint32_t index,
                                  bundle::AccessMode mode, const bundle::AffineSize &bytes,
                                  bundle::ElementType type, StringRef name) {
  for (int i = 0; i < compiled.arguments_size(); ++i) {
    bundle::FunctionArgument &argument = *compiled.mutable_arguments(i);
    if (argument.kind() != kind || argument.index() != index)
      continue;
    // An argument that is also a result is updated in place.
    if (argument.mode() != mode)
      argument.set_mode(bundle::UPDATE);
    return i;
  }
  bundle::FunctionArgument &argument = *compiled.add_arguments();
  argument.set_kind(kind);
  argument.set_index(index);
  argument.set_mode(mode);
  *argument.mutable_bytes() = bytes;
  argument.set_type(type);
  argument.set_name(name.str());
  return compiled.arguments_size() - 1;
}

Place ArgumentLayout::scalars(int64_t offset) {
  bundle::AffineSize bytes;
  bytes.set_fixed(offsetof(abi::StepScalars, sums)); // sums have their own argument
  return {argument(bundle::SCALARS, 0, bundle::READ, bytes, bundle::F64, "scalars"), offset, 0};
}

Place ArgumentLayout::workspace(const bundle::AffineSize &bytes) {
  return {argument(bundle::WORKSPACE, 0, bundle::WRITE, bytes, bundle::ELEMENT_TYPE_UNSPECIFIED,
                   "workspace"),
          0, 0};
}

bool ArgumentLayout::resultAccumulates(unsigned result) const {
  return compiled.arguments(results[result].argument).mode() == bundle::ACCUMULATE;
}

/// Returns the function that writes a packed block and determines its layout, for functions that
/// read only some of its tensors.
static func::FuncOp writerOf(func::FuncOp function, ArgumentKind block) {
  auto unitClass = dyn_cast_if_present<ClassOp>(function->getParentOp());
  func::FuncOp writer = unitClass ? unitClass.writerOf(block) : func::FuncOp();
  return writer ? writer : function;
}

LogicalResult ArgumentLayout::layOut(func::FuncOp function, ArgumentKind kind,
                                     PackedTensors &packed) {
  func::FuncOp owner = writerOf(function, kind);
  std::vector<std::pair<uint32_t, Type>> tensors;
  auto collect = [&](ArgumentAttr attribute, Type type) {
    if (isOfKind(attribute, kind))
      tensors.push_back({attribute.getIndex(), type});
  };
  for (unsigned i = 0; i < owner.getNumResults(); ++i)
    collect(attributeOfResult(owner, i), owner.getResultTypes()[i]);
  if (owner == function)
    for (unsigned i = 0; i < owner.getNumArguments(); ++i)
      collect(attributeOfArgument(owner, i), owner.getArgumentTypes()[i]);
  for (auto [index, type] : tensors) {
    if (index >= tensors.size())
      return function.emitError("expects ")
             << stringifyArgumentKind(kind) << " tensors of @" << owner.getSymName()
             << " to be numbered from 0 to " << tensors.size() - 1 << ", got " << index;
    packed.places.resize(tensors.size());
  }
  // Tensors without samples are first. The offset of the others is rows * (bytes per row of the
  // earlier ones).
  llvm::sort(tensors, [](auto &a, auto &b) { return a.first < b.first; });
  for (auto [index, type] : tensors)
    if (bundle::AffineSize bytes = tensorBytes(type); bytes.per_row() == 0) {
      packed.places[index].fixed = packed.bytes.fixed();
      packed.bytes.set_fixed(packed.bytes.fixed() + roundUp64(bytes.fixed()));
    }
  for (auto [index, type] : tensors)
    if (bundle::AffineSize bytes = tensorBytes(type); bytes.per_row() != 0) {
      packed.places[index] = {0, packed.bytes.fixed(), packed.bytes.per_row()};
      packed.bytes.set_per_row(packed.bytes.per_row() + roundUp64(bytes.per_row()));
    }
  return success();
}

int64_t zorse::codegen::offsetOfScalar(ArgumentAttr scalar) {
  using abi::StepScalars;
  constexpr int64_t kDecided = offsetof(StepScalars, decided);
  switch (scalar.getField()) {
  case ScalarField::LossSeed:
    return offsetof(StepScalars, lossGradient) + 8 * scalar.getIndex();
  case ScalarField::Known:
    return offsetof(StepScalars, known) + 8 * scalar.getIndex();
  case ScalarField::PerRow:
    return offsetof(StepScalars, perRow);
  case ScalarField::LearningRate:
    return offsetof(StepScalars, learningRate);
  case ScalarField::ClipFactor:
    return kDecided + offsetof(StepScalars::Decided, clipFactor);
  case ScalarField::Skip:
    return kDecided + offsetof(StepScalars::Decided, skip);
  }
  llvm_unreachable("an unknown field");
}

FailureOr<Place> ArgumentLayout::place(func::FuncOp function, bool isResult, unsigned position) {
  Type type = isResult ? function.getResultTypes()[position]
                       : function.getArgumentTypes()[position];
  ArgumentAttr attribute = isResult ? attributeOfResult(function, position)
                                    : attributeOfArgument(function, position);
  auto diagnose = [&] {
    return function.emitError() << (isResult ? "result " : "argument ") << position << " of @"
                                << function.getSymName() << " ";
  };
  if (!attribute)
    return diagnose() << "expects zorse.argument, got none";
  if (!isGraphTensor(type) || bundleType(type) == bundle::ELEMENT_TYPE_UNSPECIFIED)
    return diagnose() << "expects a tensor of f32, f64, bf16, f16, i64, i32 or i1, got " << type;
  const bundle::ArgumentKind kind = kindOf(attribute);
  const StringRef name = stringifyArgumentKind(attribute.getKind());
  const uint32_t index = attribute.getIndex();
  if (kind == bundle::SAVED || kind == bundle::SAVED_FOR_WEIGHT_GRAD) {
    const PackedTensors &packed = kind == bundle::SAVED ? saved : savedForWeightGrad;
    if (index >= packed.places.size())
      return diagnose() << "expects one of the " << packed.places.size() << " " << name
                        << " tensors there are, got " << attribute;
    Place place = packed.places[index];
    place.argument = argument(kind, 0, isResult ? bundle::WRITE : bundle::READ, packed.bytes,
                              bundle::ELEMENT_TYPE_UNSPECIFIED, name);
    return place;
  }
  if (kind == bundle::SCALARS) {
    const uint32_t max = attribute.getField() == ScalarField::Known
                             ? abi::kMaxKnown
                             : std::size(abi::StepScalars().lossGradient);
    if (index >= max)
      return diagnose() << "expects an index from 0 to " << max - 1 << ", got " << attribute;
    return scalars(offsetOfScalar(attribute));
  }
  bool accumulates = kind == bundle::PARAMETER_GRADIENT ||
                     (kind == bundle::BOUNDARY_IN_GRADIENT && !isHalf(bundleType(type)));
  bundle::AccessMode mode = !isResult     ? bundle::READ
                            : accumulates ? bundle::ACCUMULATE
                                          : bundle::WRITE;
  std::string label = (name + Twine(index)).str();
  return Place{argument(kind, index, mode, tensorBytes(type), bundleType(type), label), 0, 0};
}

void zorse::codegen::forEachExchange(func::FuncOp function,
                                     llvm::function_ref<void(Operation *, unsigned)> visit) {
  unsigned next = function.getNumResults();
  for (Operation &op : function.getBody().front())
    if (isa<AllReduceOp, AllGatherOp>(op)) {
      visit(&op, next);
      next += op.getNumResults();
    }
}

void ArgumentLayout::placeExchange(Operation *exchange) {
  std::vector<Place> places;
  bundle::AffineSize end;
  for (Value part : exchange->getResults()) {
    const bundle::AffineSize bytes = tensorBytes(part.getType());
    places.push_back({0, end.fixed(), end.per_row()});
    end.set_fixed(end.fixed() + roundUp64(bytes.fixed()));
    end.set_per_row(end.per_row() + roundUp64(bytes.per_row()));
  }
  const auto number =
      static_cast<uint32_t>(exchange->getAttrOfType<IntegerAttr>("number").getInt());
  const uint32_t index = argument(bundle::EXCHANGE, number, bundle::UPDATE, end,
                                  bundleType(exchange->getOperand(0).getType()),
                                  "exchange" + std::to_string(number));
  for (Place &place : places) {
    place.argument = index;
    results.push_back(place);
  }
}

LogicalResult ArgumentLayout::assign(func::FuncOp function) {
  if (failed(layOut(function, ArgumentKind::Saved, saved)) ||
      failed(layOut(function, ArgumentKind::SavedForWeightGrad, savedForWeightGrad)))
    return failure();
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    FailureOr<Place> found = place(function, false, i);
    if (failed(found))
      return failure();
    arguments.push_back(*found);
  }
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    FailureOr<Place> found = place(function, true, i);
    if (failed(found))
      return failure();
    results.push_back(*found);
  }
  forEachExchange(function, [&](Operation *exchange, unsigned) { placeExchange(exchange); });
  return success();
}
