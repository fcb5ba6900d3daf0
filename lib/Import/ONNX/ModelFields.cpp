// Finds parts of a model file that the importer does not read. They are errors: skipping them
// silently would change the mathematics of the model.
#include "Loader.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

using namespace zorse;
using namespace zorse::onnx_import;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Largest length of a name. Names appear in messages, in MLIR attributes and in file names.
static constexpr size_t kLongestName = 4096;

/// Searches `message` and the messages inside it, depth first. Returns the first nonempty result of
/// `find`.
template <typename Find> static std::string firstOf(const Message &message, const Find &find) {
  if (std::string found = find(message); !found.empty())
    return found;
  const google::protobuf::Reflection &reflection = *message.GetReflection();
  std::vector<const FieldDescriptor *> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor *field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      continue;
    int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i)
      if (std::string found = firstOf(field->is_repeated()
                                          ? reflection.GetRepeatedMessage(message, field, i)
                                          : reflection.GetMessage(message, field),
                                      find);
          !found.empty())
        return found;
  }
  return {};
}

/// A field that the schema does not define.
static std::string unknownField(const Message &message) {
  const auto &unknown = message.GetReflection()->GetUnknownFields(message);
  return unknown.empty() ? std::string()
                         : "field " + std::to_string(unknown.field(0).number()) + " of a " +
                               message.GetDescriptor()->name();
}

/// A name that is too long. Values of metadata are not names.
static std::string longName(const Message &message) {
  const google::protobuf::Reflection &reflection = *message.GetReflection();
  std::vector<const FieldDescriptor *> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor *field : fields) {
    if (field->type() != FieldDescriptor::TYPE_STRING ||
        (message.GetDescriptor()->name() == "StringPair" && field->name() == "value"))
      continue;
    int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    std::string storage;
    for (int i = 0; i < count; ++i) {
      const std::string &text =
          field->is_repeated() ? reflection.GetRepeatedStringReference(message, field, i, &storage)
                               : reflection.GetStringReference(message, field, &storage);
      if (text.size() > kLongestName)
        return "a name of " + std::to_string(text.size()) + " bytes (" + field->name() + " of a " +
               message.GetDescriptor()->name() + ", '" + text.substr(0, 40) + "...')";
    }
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
  if (std::string name = firstOf(model, longName); !name.empty())
    return "holds " + name + "; at most " + std::to_string(kLongestName) +
           " bytes are supported: give it a shorter name";
  if (std::string field = firstOf(model, unknownField); !field.empty())
    return "holds " + field + ", which ONNX IR version " + std::to_string(model.ir_version()) +
           " does not define or this compiler does not know; it is not skipped, as it may change "
           "the meaning. "
           "Export with a PyTorch or onnx that writes IR version 7 to 13";
  return {};
}
