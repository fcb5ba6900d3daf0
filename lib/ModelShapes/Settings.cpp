// Settings of shapes by name, and checks of their dimensions.
#include "zorse/ModelShapes/ModelShape.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::shapes;

namespace {

constexpr int64_t kMaxLayers = 4096, kMaxWidth = int64_t(1) << 24, kMaxSequence = int64_t(1) << 24,
                  kMaxExperts = 1024, kMaxImage = 1 << 14;
/// Biases of scores are constants of sequence² bytes.
constexpr int64_t kMaxRelativePositions = 4096;

struct Dimension {
  const char *key;
  int64_t ModelShape::*value;
  int64_t max;
};

constexpr Dimension kDimensions[] = {
    {"layers", &ModelShape::layers, kMaxLayers},
    {"hidden", &ModelShape::hidden, kMaxWidth},
    {"ffn", &ModelShape::ffn, kMaxWidth},
    {"heads", &ModelShape::heads, kMaxWidth},
    {"kv_heads", &ModelShape::kvHeads, kMaxWidth},
    {"head_dim", &ModelShape::headSize, kMaxWidth},
    {"vocabulary", &ModelShape::vocabulary, kMaxWidth},
    {"sequence", &ModelShape::sequence, kMaxSequence},
    {"experts", &ModelShape::experts, kMaxExperts},
    {"experts_per_token", &ModelShape::activeExperts, kMaxExperts},
    {"image", &ModelShape::image, kMaxImage},
    {"patch", &ModelShape::patch, kMaxImage},
    {"classes", &ModelShape::classes, kMaxWidth},
};

Error wrong(const ModelShape &shape, const std::string &text) {
  return userError("model '" + shape.name + "': " + text);
}

/// Whether the shape needs the dimension.
bool isNeeded(const ModelShape &shape, const std::string &key) {
  const bool image = shape.task == ModelShape::Task::Image;
  if (key == "image" || key == "patch" || key == "classes")
    return image;
  if (key == "vocabulary")
    return !image;
  if (key == "experts" || key == "experts_per_token")
    return shape.experts > 0 || shape.activeExperts > 0;
  return true;
}

} // namespace

Status shapes::applySetting(ModelShape &shape, const ShapeSetting &setting) {
  const auto &[key, value] = setting;
  if (key == "tied") {
    if (value != "yes" && value != "no")
      return userError("tied: expected yes or no, got '" + value + "'");
    shape.tied = value == "yes";
    return Status::success();
  }
  const auto *known = std::find_if(std::begin(kDimensions), std::end(kDimensions),
                                   [&](const Dimension &d) { return key == d.key; });
  if (known == std::end(kDimensions)) {
    std::string keys;
    for (const Dimension &d : kDimensions)
      keys += std::string(d.key) + ", ";
    return userError("unknown setting '" + key + "'; known settings: family, " + keys +
                     "tied, precision");
  }
  if (value.empty() || value.size() > 15 ||
      value.find_first_not_of("0123456789") != std::string::npos)
    return userError(key + ": expected a whole number, got '" + value + "'");
  shape.*known->value = std::stoll(value);
  return Status::success();
}

Status shapes::complete(ModelShape &shape) {
  if (shape.kvHeads == 0)
    shape.kvHeads = shape.heads;
  if (shape.task == ModelShape::Task::Image && shape.patch > 0)
    shape.sequence = shape.image / shape.patch * (shape.image / shape.patch) + 1;
  if (shape.headSize == 0 && shape.heads > 0) {
    if (shape.hidden % shape.heads != 0)
      return wrong(shape, std::to_string(shape.heads) + " heads do not divide a hidden size of " +
                              std::to_string(shape.hidden) +
                              ". Give heads that divide it, or head_dim");
    shape.headSize = shape.hidden / shape.heads;
  }
  for (const auto &[key, value, max] : kDimensions)
    if (isNeeded(shape, key) && (shape.*value < 1 || shape.*value > max))
      return wrong(shape, std::string(key) + " is " + std::to_string(shape.*value) +
                              ", expected 1 to " + std::to_string(max));
  if (shape.heads % shape.kvHeads != 0)
    return wrong(shape, std::to_string(shape.heads) + " heads are no multiple of " +
                            std::to_string(shape.kvHeads) +
                            " heads of keys and values. Give kv_heads that divide heads");
  if (shape.positions == ModelShape::Positions::Rotary && shape.headSize % 2 != 0)
    return wrong(shape, "heads of " + std::to_string(shape.headSize) +
                            " channels cannot be rotated. Give an even head_dim");
  if (shape.activeExperts > shape.experts)
    return wrong(shape, "experts_per_token is " + std::to_string(shape.activeExperts) +
                            ", expected at most the " + std::to_string(shape.experts) + " experts");
  if (shape.task == ModelShape::Task::Image && shape.image % shape.patch != 0)
    return wrong(shape, "patches of " + std::to_string(shape.patch) +
                            " pixels do not divide an image of " + std::to_string(shape.image) +
                            ". Give a patch that divides image");
  if (shape.positions == ModelShape::Positions::Relative && shape.sequence > kMaxRelativePositions)
    return wrong(shape, std::to_string(shape.sequence) +
                            " tokens with relative positions, expected at most " +
                            std::to_string(kMaxRelativePositions));
  return Status::success();
}
