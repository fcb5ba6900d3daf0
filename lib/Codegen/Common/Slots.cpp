#include "Slots.h"

#include "LibraryOps.h"

#include "zorse/Summary/Summary.h"

#include "zorse/runtime/abi/StepScalars.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

bundle::Extent zorse::codegen::tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  bundle::Extent bytes;
  int64_t count = elementCount(tensor) * elementBytes(tensor);
  carriesSamples(tensor) ? bytes.set_per_row(count) : bytes.set_fixed(count);
  return bytes;
}

static bundle::SlotKind slotKind(StringRef name) {
  static const std::pair<StringRef, bundle::SlotKind> kinds[] = {{"parameter", bundle::PARAMETER},
                                                                 {"parameter_gradient", bundle::PARAMETER_GRADIENT},
                                                                 {"input", bundle::INPUT},
                                                                 {"boundary_in", bundle::BOUNDARY_IN},
                                                                 {"boundary_out", bundle::BOUNDARY_OUT},
                                                                 {"boundary_in_gradient", bundle::BOUNDARY_IN_GRADIENT},
                                                                 {"boundary_out_gradient", bundle::BOUNDARY_OUT_GRADIENT},
                                                                 {"saved", bundle::SAVED},
                                                                 {"deferred", bundle::DEFERRED},
                                                                 {"scalars", bundle::SCALARS},
                                                                 {"known", bundle::SCALARS},
                                                                 {"loss", bundle::LOSS},
                                                                 {"state", bundle::STATE},
                                                                 {"sums_slot", bundle::SUMS_SLOT},
                                                                 {"optimizer_step_slot", bundle::OPTIMIZER_STEP_SLOT}};
  for (auto [text, kind] : kinds)
    if (name == text)
      return kind;
  return bundle::SLOT_UNSPECIFIED;
}

uint32_t Slots::slot(bundle::SlotKind kind, uint32_t index, bundle::AccessMode mode, const bundle::Extent &bytes, bundle::ElementType type,
                     StringRef name) {
  for (int i = 0; i < body.slots_size(); ++i) {
    bundle::Slot &slot = *body.mutable_slots(i);
    if (slot.kind() != kind || slot.index() != index)
      continue;
    // An argument that is also a result is updated in place.
    if (slot.mode() != mode)
      slot.set_mode(bundle::UPDATE);
    return i;
  }
  bundle::Slot &slot = *body.add_slots();
  slot.set_kind(kind);
  slot.set_index(index);
  slot.set_mode(mode);
  *slot.mutable_bytes() = bytes;
  slot.set_type(type);
  slot.set_name(name.str());
  return body.slots_size() - 1;
}

Place Slots::scalars(int64_t offset) {
  bundle::Extent bytes;
  bytes.set_fixed(offsetof(abi::StepScalars, sums)); // sums are a slot of their own
  return {slot(bundle::SCALARS, 0, bundle::READ, bytes, bundle::F64, "scalars"), offset, 0};
}

Place Slots::workspace(const bundle::Extent &bytes) {
  return {slot(bundle::WORKSPACE, 0, bundle::WRITE, bytes, bundle::ELEMENT_TYPE_UNSPECIFIED, "workspace"), 0, 0};
}

bool Slots::resultAccumulates(unsigned result) const { return body.slots(results[result].slot).mode() == bundle::ACCUMULATE; }

static int64_t slotIndex(DictionaryAttr attributes) {
  auto index = attributes ? attributes.getAs<IntegerAttr>(attributes::kIndex) : IntegerAttr();
  return index ? index.getInt() : 0;
}

/// The function that writes what this one reads of a packed slot: it says where everything lies, for readers of only some of it.
static func::FuncOp writerOf(func::FuncOp function, ArrayRef<StringRef> readers, StringRef writer) {
  StringRef name = function.getSymName();
  for (StringRef suffix : readers)
    if (name.consume_back(suffix)) {
      auto module = function->getParentOfType<ModuleOp>();
      auto found = module ? module.lookupSymbol<func::FuncOp>((name + writer).str()) : func::FuncOp();
      return found ? found : function;
    }
  return function;
}

LogicalResult Slots::layOut(func::FuncOp function, func::FuncOp owner, StringRef kind, Packed &packed) {
  std::vector<std::pair<int64_t, Type>> tensors;
  auto collect = [&](DictionaryAttr attributes, Type type) {
    if (auto slot = attributes ? attributes.getAs<StringAttr>(attributes::kSlot) : StringAttr(); slot && slot.getValue() == kind)
      tensors.push_back({slotIndex(attributes), type});
  };
  for (unsigned i = 0; i < owner.getNumResults(); ++i)
    collect(owner.getResultAttrDict(i), owner.getResultTypes()[i]);
  if (owner == function)
    for (unsigned i = 0; i < owner.getNumArguments(); ++i)
      collect(owner.getArgAttrDict(i), owner.getArgumentTypes()[i]);
  for (auto [index, type] : tensors) {
    if (index < 0 || index >= static_cast<int64_t>(tensors.size()))
      return function.emitError("expects ") << kind << " tensors of @" << owner.getSymName() << " to be numbered from 0 to " << tensors.size() - 1
                                            << ", got zorse.index = " << index;
    packed.places.resize(tensors.size());
  }
  // Tensors without samples come first, then rows * (bytes per row of the earlier ones).
  llvm::sort(tensors, [](auto &a, auto &b) { return a.first < b.first; });
  for (auto [index, type] : tensors)
    if (bundle::Extent bytes = tensorBytes(type); bytes.per_row() == 0) {
      packed.places[index].fixed = packed.bytes.fixed();
      packed.bytes.set_fixed(packed.bytes.fixed() + roundUp64(bytes.fixed()));
    }
  for (auto [index, type] : tensors)
    if (bundle::Extent bytes = tensorBytes(type); bytes.per_row() != 0) {
      packed.places[index] = {0, packed.bytes.fixed(), packed.bytes.per_row()};
      packed.bytes.set_per_row(packed.bytes.per_row() + roundUp64(bytes.per_row()));
    }
  return success();
}

FailureOr<Place> Slots::place(func::FuncOp function, bool isResult, unsigned position) {
  DictionaryAttr attributes = isResult ? function.getResultAttrDict(position) : function.getArgAttrDict(position);
  Type type = isResult ? function.getResultTypes()[position] : function.getArgumentTypes()[position];
  auto name = attributes ? attributes.getAs<StringAttr>(attributes::kSlot) : StringAttr();
  bundle::SlotKind kind = name ? slotKind(name.getValue()) : bundle::SLOT_UNSPECIFIED;
  auto diagnose = [&] { return function.emitError() << (isResult ? "result " : "argument ") << position << " of @" << function.getSymName() << " "; };
  if (kind == bundle::SLOT_UNSPECIFIED)
    return diagnose() << "expects zorse.slot to name a slot kind, got " << (name ? "'" + name.getValue() + "'" : Twine("none"));
  if (!isGraphTensor(type) || bundleType(type) == bundle::ELEMENT_TYPE_UNSPECIFIED)
    return diagnose() << "expects a tensor of f32, f64, bf16, f16, i64, i32 or i1, got " << type;
  int64_t index = slotIndex(attributes);
  if (kind == bundle::SAVED || kind == bundle::DEFERRED) {
    const Packed &packed = kind == bundle::SAVED ? saved : deferred;
    if (index < 0 || index >= static_cast<int64_t>(packed.places.size()))
      return diagnose() << "expects one of the " << packed.places.size() << " " << name.getValue()
                        << " tensors there are, got zorse.index = " << index;
    Place place = packed.places[index];
    place.slot = slot(kind, 0, isResult ? bundle::WRITE : bundle::READ, packed.bytes, bundle::ELEMENT_TYPE_UNSPECIFIED, name.getValue());
    return place;
  }
  if (kind == bundle::SCALARS && name.getValue() == "known") {
    if (index < 0 || index >= abi::kMaxKnown)
      return diagnose() << "expects zorse.index of a known number to be from 0 to " << abi::kMaxKnown - 1 << ", got " << index;
    return scalars(offsetof(abi::StepScalars, known) + 8 * index);
  }
  if (kind == bundle::SCALARS) {
    auto field = attributes.getAs<StringAttr>("zorse.scalar");
    if (!field)
      return scalars(offsetof(abi::StepScalars, lossSeed) + 8 * index);
    static const std::pair<StringRef, int64_t> fields[] = {
        {"per_row", offsetof(abi::StepScalars, perRow)},
        {"learning_rate", offsetof(abi::StepScalars, learningRate)},
        {"clip_factor", offsetof(abi::StepScalars, decided) + offsetof(abi::StepScalars::Decided, clipFactor)},
        {"skip", offsetof(abi::StepScalars, decided) + offsetof(abi::StepScalars::Decided, skip)}};
    for (auto [text, offset] : fields)
      if (field.getValue() == text)
        return scalars(offset);
    return diagnose() << "expects zorse.scalar to be per_row, learning_rate, clip_factor or skip, got '" << field.getValue() << "'";
  }
  bool accumulates = kind == bundle::PARAMETER_GRADIENT || (kind == bundle::BOUNDARY_IN_GRADIENT && !isHalf(bundleType(type)));
  bundle::AccessMode mode = !isResult ? bundle::READ : accumulates ? bundle::ACCUMULATE : bundle::WRITE;
  std::string label = (name.getValue() + Twine(index)).str();
  return Place{slot(kind, index, mode, tensorBytes(type), bundleType(type), label), 0, 0};
}

LogicalResult Slots::assign(func::FuncOp function) {
  if (failed(
          layOut(function, writerOf(function, {".backward", ".backward_inputs", ".backward_weights", ".recompute"}, ".forward"), "saved", saved)) ||
      failed(layOut(function, writerOf(function, {".backward_weights"}, ".backward_inputs"), "deferred", deferred)))
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
  return success();
}
