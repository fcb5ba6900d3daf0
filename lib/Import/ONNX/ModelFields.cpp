// What a file holds and nothing here reads. Skipping it in silence would train other mathematics than the file says.
#include "Loader.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

using namespace zorse;
using namespace zorse::onnx_import;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// The first field, of `message` or of one inside it, that the schema does not have.
static std::string unknownField(const Message &message) {
  const google::protobuf::Reflection &reflection = *message.GetReflection();
  if (const auto &unknown = reflection.GetUnknownFields(message); !unknown.empty())
    return "field " + std::to_string(unknown.field(0).number()) + " of a " + message.GetDescriptor()->name();
  std::vector<const FieldDescriptor *> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor *field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      continue;
    int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i)
      if (std::string found =
              unknownField(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i) : reflection.GetMessage(message, field));
          !found.empty())
        return found;
  }
  return {};
}

static bool hasSparse(const onnx::Graph &graph) {
  bool found = graph.sparse_initializer_size() > 0;
  for (const onnx::Node &node : graph.node())
    for (const onnx::Attribute &attribute : node.attribute())
      found |= attribute.has_g() && hasSparse(attribute.g());
  return found;
}

std::string zorse::onnx_import::notRead(const onnx::Model &model) {
  bool sparse = hasSparse(model.graph());
  for (const onnx::TrainingInfo &info : model.training_info())
    sparse |= hasSparse(info.algorithm());
  if (sparse)
    return "holds sparse initializers, which are not supported; export them as dense tensors";
  if (std::string field = unknownField(model); !field.empty())
    return "holds " + field + ", which ONNX IR version " + std::to_string(model.ir_version()) +
           " does not define or this compiler does not know; it is not skipped, as it may change the meaning. "
           "Export with a PyTorch or onnx that writes IR version 7 to 13";
  return {};
}
