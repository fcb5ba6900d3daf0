// Converts files that contain their own training to forward graphs with a loss, the only form that
// the importer reads. Zorse generates the gradients. The optimizer and its options in the file
// become FileTraining; an unsupported operator is an error that names it.
#pragma once

#include "Loader.h"
#include "zorse/Import/ONNX/FileTraining.h"

#include <map>
#include <set>

namespace zorse::onnx_import {

/// Converts the model to a forward graph and returns its training information, or nothing if the
/// file has none. Errors name what is not supported.
Result<std::optional<FileTraining>> takeTraining(LoadedModel &model);

/// Reads ModelProto.training_info (ONNX IR, "training information").
Result<FileTraining> takeTrainingInfo(LoadedModel &model);

/// Reads training_model.onnx of the training artifacts of onnxruntime. Parameters are inputs, and
/// gradients are nodes. The values of parameters are in the file "checkpoint" in the same folder,
/// the optimizer in "optimizer_model.onnx".
Result<FileTraining> takeRuntimeArtifact(LoadedModel &model);
bool isRuntimeArtifact(const onnx::Model &model);

// Access to nodes and their attributes.
std::string describe(const onnx::Node &node); ///< "Adam 'update'"
const onnx::Attribute *attributeOf(const onnx::Node &node, const std::string &name);
double realOf(const onnx::Node &node, const std::string &name, double otherwise);
int64_t integerOf(const onnx::Node &node, const std::string &name, int64_t otherwise);
std::string textOf(const onnx::Node &node, const std::string &name, const std::string &otherwise);

/// One flag per node of a list: whether the values `wanted` depend on it.
std::vector<bool> neededFor(const google::protobuf::RepeatedPtrField<onnx::Node> &nodes,
                            std::set<std::string> wanted);

} // namespace zorse::onnx_import
