#include "Phases.h"

#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Summary/Summary.h"
#include "zorse/Transforms/Passes.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"

#include <set>

using namespace mlir;

namespace zorse::pipelines {

namespace {

const char *nameOf(WeightSource::Type type) {
  switch (type) {
  case WeightSource::Type::F32:
    return "f32";
  case WeightSource::Type::F64:
    return "f64";
  case WeightSource::Type::F16:
    return "f16";
  case WeightSource::Type::BF16:
    return "bf16";
  case WeightSource::Type::I64:
    return "i64";
  case WeightSource::Type::I32:
    return "i32";
  case WeightSource::Type::I16:
    return "i16";
  case WeightSource::Type::I8:
    return "i8";
  case WeightSource::Type::U8:
    return "u8";
  case WeightSource::Type::Bool:
    return "i1";
  }
  return "f32";
}

std::string nameOf(Type type) {
  std::string name;
  llvm::raw_string_ostream os(name);
  type.print(os);
  return name;
}

/// Returns the elements in the bundle's format: row-major, little-endian, booleans as one byte.
std::optional<std::string> elementsOf(Attribute attr) {
  if (std::optional<StringRef> resource = bytesOf(attr))
    return resource->str();
  auto dense = dyn_cast<DenseElementsAttr>(attr);
  if (!dense)
    return std::nullopt;
  std::string bytes;
  if (dense.getElementType().isInteger(1)) {
    for (bool value : dense.getValues<bool>())
      bytes.push_back(value);
  } else if (dense.isSplat()) {
    for (int64_t i = 0; i < dense.getNumElements(); ++i)
      bytes.append(dense.getRawData().data(), dense.getRawData().size());
  } else {
    bytes.assign(dense.getRawData().data(), dense.getRawData().size());
  }
  return bytes;
}

} // namespace

Result<std::vector<bundle::WeightData>> collectWeights(const ImportedModel &imported,
                                                       const bundle::ModelSummary &summary) {
  std::vector<bundle::WeightData> weights;
  llvm::StringMap<const WeightSource *> sources;
  for (const WeightSource &source : imported.weights)
    sources[source.parameter] = &source;
  auto constants =
      ModuleOp(imported.module.get())->getAttrOfType<DictionaryAttr>(kConstantValueAttr);

  std::set<std::string> named;
  for (const bundle::ParameterInfo &parameter : summary.parameters()) {
    const std::string &name = fileNameOf(parameter);
    if (!named.insert(name).second) // another part of the parameter
      continue;
    bundle::WeightData weight;
    weight.name = name;
    if (auto found = sources.find(name); found != sources.end()) {
      const WeightSource &source = *found->second;
      weight.type = nameOf(source.storedType);
      weight.shape = source.shape;
      weight.hub = {source.hub.names, source.hub.ties, source.hub.transposed, source.hub.adapter};
      if (source.file.empty()) {
        if (source.owned)
          weight.bytes.assign(source.owned->begin(), source.owned->end());
        else
          weight.bytes.assign(reinterpret_cast<const char *>(source.data), source.bytes);
      } else {
        llvm::SmallString<256> path(source.file);
        llvm::sys::fs::make_absolute(path);
        weight.file = path.str().str();
        weight.offset = source.offset;
        weight.size = source.bytes;
      }
    } else if (Attribute constant = constants ? constants.get(name) : Attribute()) {
      auto elements = dyn_cast<ElementsAttr>(constant);
      std::optional<std::string> bytes = elementsOf(constant);
      if (!elements || !bytes)
        return userError("constant '" + name + "': its elements are not in memory");
      weight.type = nameOf(elements.getElementType());
      weight.shape.assign(elements.getShapedType().getShape().begin(),
                          elements.getShapedType().getShape().end());
      weight.bytes = std::move(*bytes);
    } else {
      return userError("parameter '" + name + "' has no initial value in the model file");
    }
    weights.push_back(std::move(weight));
  }
  return weights;
}

} // namespace zorse::pipelines
