// Fuzzes the parts of the ONNX reader that need no IR: loading, inlining and ordering, bytes of
// tensors, and constants.
#include "Fuzz.h"

#include "Graph.h"
#include "Lazy.h"
#include "Loader.h"

using namespace zorse;
using namespace zorse::onnx_import;

namespace {

void readTensor(LoadedModel &model, const onnx::Tensor &tensor) {
  Result<TensorBytes> bytes = model.bytes(tensor);
  if (bytes.failed()) {
    ZORSE_FUZZ_EXPECT(!bytes.message().empty());
    return;
  }
  fuzz::touch(bytes->data, bytes->size);
  auto kind = static_cast<ElementKind>(tensor.data_type());
  int64_t count = int64_t(bytes->size) / byteSize(kind);
  std::vector<double> floats(count);
  std::vector<int64_t> ints(count);
  LazyPtr lazy = makeBytes(kind, *bytes, count);
  lazy->readFloats(0, 1, count, floats.data());
  lazy->readInts(0, 1, count, ints.data());
}

void readTensors(LoadedModel &model, const GraphBody &body) {
  for (const auto &[value, tensor] : body.initializers)
    readTensor(model, *tensor);
  for (const GraphNode &node : body.nodes) {
    for (const auto &[name, attribute] : node.attributes)
      if (attribute->has_t())
        readTensor(model, attribute->t());
    for (const auto &[name, nested] : node.bodies)
      readTensors(model, *nested);
  }
}

} // namespace

bool fuzz::readOne(std::string_view bytes) {
  // A file in the model's directory, for tensors with external data.
  static const std::string path = [] {
    static ScratchFile data("d");
    data.write(std::string(64, 'x'));
    return scratchDirectory() + "m.onnx";
  }();
  Result<std::unique_ptr<LoadedModel>> model =
      LoadedModel::load(MappedFile::view(bytes.data(), bytes.size()), path);
  if (model.failed()) {
    ZORSE_FUZZ_EXPECT(!model.message().empty());
    return false;
  }
  Result<FlatGraph> graph = flatten(**model);
  if (graph.failed()) {
    ZORSE_FUZZ_EXPECT(!graph.message().empty());
    return false;
  }
  readTensors(**model, graph->body);
  return true;
}
