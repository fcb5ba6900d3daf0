#include "Source.h"

#include "zorse/runtime/Safetensors.h"

using namespace zorse::exporting;
using namespace zorse::runtime;

Status zorse::exporting::exportSafetensors(const Source &source, const std::string &path, std::string &note) {
  Status problem;
  std::vector<SafetensorsItem> items;
  const std::vector<SnapshotParameter> &parameters = source.index().parameters;
  for (uint32_t p = 0; p < parameters.size(); ++p) {
    const SnapshotParameter &parameter = parameters[p];
    if (!parameter.trainable) {
      std::vector<std::byte> bytes(size_t(parameter.elements()) * bytesOf(parameter.type));
      if (Status status = source.frozen(p, bytes.data()); status.failed()) {
        note += (note.empty() ? "" : "\n") + ("frozen parameter '" + parameter.name + "' is left out: " + status.message());
        continue;
      }
    }
    items.push_back({parameter.name, parameter.type, parameter.storedShape(), [&, p](std::byte *target) {
                       Status status = parameters[p].trainable ? source.trained(p, parameters[p].type, target) : source.frozen(p, target);
                       if (status.failed() && problem.succeeded())
                         problem = status;
                     }});
  }
  return writeSafetensors(path, std::move(items), &problem);
}
