// Files that bring their own training: turned into forward graphs with a loss, which is all that the importer reads. Gradients are made here; what
// the file does with them becomes FileTraining, or an error names the operator.
#pragma once

#include "Loader.h"
#include "zorse/Import/ONNX/FileTraining.h"

#include <map>
#include <set>

namespace zorse::onnx_import {

/// The model as a forward graph, and what the file said of training; nothing where it says nothing. Errors say what is not understood.
Result<std::optional<FileTraining>> takeTraining(LoadedModel &model);

/// ModelProto.training_info (ONNX IR, "training information").
Result<FileTraining> takeTrainingInfo(LoadedModel &model);

/// training_model.onnx of onnxruntime's training artifacts: parameters are inputs, and gradients are nodes. Parameters' values are in the file
/// "checkpoint" beside it, the optimizer in "optimizer_model.onnx".
Result<FileTraining> takeRuntimeArtifact(LoadedModel &model);
bool isRuntimeArtifact(const onnx::Model &model);

// Of nodes.
std::string describe(const onnx::Node &node); ///< "Adam 'update'"
const onnx::Attribute *attributeOf(const onnx::Node &node, const std::string &name);
double realOf(const onnx::Node &node, const std::string &name, double otherwise);
int64_t integerOf(const onnx::Node &node, const std::string &name, int64_t otherwise);
std::string textOf(const onnx::Node &node, const std::string &name, const std::string &otherwise);

/// Which nodes of a list the values `wanted` depend on, as a flag a node.
std::vector<bool> neededFor(const google::protobuf::RepeatedPtrField<onnx::Node> &nodes, std::set<std::string> wanted);

} // namespace zorse::onnx_import
