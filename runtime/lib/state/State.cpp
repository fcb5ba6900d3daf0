#include "zorse/runtime/State.h"
#include "zorse/Summary/Optimizers.h"

#include "ArgumentBindings.h"
#include "zorse/runtime/MatchTensors.h"
#include "zorse/runtime/OutputFile.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr int64_t kNumbersAtOnce = 1 << 18; ///< elements copied from or to a device together

int64_t elementsOf(const bundle::ParameterInfo &parameter) {
  return elementCount({parameter.shape().begin(), parameter.shape().end()}).value_or(0);
}

std::vector<int64_t> shapeOf(const bundle::ParameterInfo &parameter) {
  return {parameter.shape().begin(), parameter.shape().end()};
}

/// The parameter of which a parameter is a part, or the parameter itself.
bundle::ParameterInfo wholeOf(const bundle::ParameterInfo &parameter) {
  bundle::ParameterInfo whole = parameter;
  if (parameter.has_shard()) {
    whole.set_name(parameter.shard().of());
    *whole.mutable_shape() = parameter.shard().shape();
    whole.clear_shard();
  }
  return whole;
}

/// Calls visit(whole, part, count) for the runs of a part in its order: `count` elements at
/// element `whole` of the parameter and at element `part` of the part.
template <typename Visit>
void forShardRuns(const bundle::ParameterInfo::Shard &shard, Visit visit) {
  int64_t outer = 1, inner = 1, part = 0;
  const int64_t size = shard.shape(int(shard.dim()));
  for (int d = 0; d < shard.shape_size(); ++d)
    if (d != int(shard.dim()))
      (d < int(shard.dim()) ? outer : inner) *= shard.shape(d);
  for (int s = 0; s < shard.begins_size(); ++s) {
    const int64_t begin = shard.begins(s) + shard.first() * shard.widths(s),
                  points = shard.count() * shard.widths(s), together = outer == 1 ? points : 1;
    for (int64_t i = 0; i < points; i += together)
      for (int64_t o = 0; o < outer; ++o, part += together * inner)
        visit((o * size + begin + i) * inner, part, together * inner);
  }
}

/// The shape in files. It differs from the compiled shape by the permutation.
std::vector<int64_t> storedShape(const bundle::ParameterInfo &parameter,
                                 const WeightSource &source) {
  std::vector<int64_t> shape = shapeOf(parameter);
  if (!source.permutation.empty())
    for (size_t d = 0; d < shape.size(); ++d)
      shape[source.permutation[d]] = parameter.shape(d);
  return source.shape.empty() ? shape : source.shape;
}

Status checkPermutation(const WeightSource &source, size_t rank, const std::string &where) {
  if (source.permutation.empty())
    return Status::success();
  std::vector<bool> seen(rank, false);
  for (int64_t d : source.permutation)
    if (d < 0 || d >= int64_t(rank) || seen[d])
      return userError(where + ": its permutation is none of " + std::to_string(rank) +
                       " dimensions");
    else
      seen[d] = true;
  if (source.permutation.size() != rank)
    return userError(where + ": its permutation is none of " + std::to_string(rank) +
                     " dimensions");
  return Status::success();
}

/// The elements of one parameter in the layout of the device.
class Source {
public:
  /// Uses stored numbers with the file's shape; permutes and converts them if necessary.
  void set(const std::byte *data, StoredType type, const bundle::ParameterInfo &parameter,
           const WeightSource &weight) {
    StoredType wanted = storedType(parameter.type());
    data_ = data;
    if (!weight.permutation.empty()) {
      const bundle::ParameterInfo whole = wholeOf(parameter);
      permuted_.resize(elementsOf(whole) * bytesOf(type));
      permuteElements(data, permuted_.data(), bytesOf(type), storedShape(whole, weight),
                      weight.permutation);
      data_ = permuted_.data();
    }
    if (parameter.has_shard())
      takeShard(parameter.shard(), bytesOf(type));
    type_ = type;
    wanted_ = wanted;
  }

  const std::byte *at(int64_t element) const { return data_ + element * bytesOf(type_); }
  StoredType type() const { return type_; }
  StoredType wanted() const { return wanted_; }

private:
  /// Copies a part of the parameter.
  void takeShard(const bundle::ParameterInfo::Shard &shard, size_t elementBytes) {
    std::vector<std::byte> part;
    forShardRuns(shard, [&](int64_t whole, int64_t, int64_t count) {
      const std::byte *from = data_ + whole * elementBytes;
      part.insert(part.end(), from, from + count * elementBytes);
    });
    permuted_ = std::move(part);
    data_ = permuted_.data();
  }

  const std::byte *data_ = nullptr;
  std::vector<std::byte> permuted_;
  StoredType type_ = StoredType::F32, wanted_ = StoredType::F32;
};

/// Location of a part of a group's elements: an owner's shard, or a complete copy of a frozen
/// group.
struct Piece {
  uint32_t device;
  int64_t begin, end;
  const bundle::Region *region;
  size_t elementBytes;

  uint64_t offset(int64_t element) const { return uint64_t(element - begin) * elementBytes; }
};

/// \param which  of trainable groups; frozen groups have parameters only
std::vector<std::vector<Piece>> parameterPieces(const Executor &executor, const Bundle &bundle,
                                                SavedWeights which = SavedWeights::Parameters) {
  std::vector<std::vector<Piece>> pieces(bundle.summary.groups_size());
  auto statesOf = [&](const bundle::Value &value) {
    return optimizerStates(bundle.summary, bundle.summary.groups(int(value.id())));
  };
  auto wanted = [&](const bundle::Value &value) {
    const bool average = which == SavedWeights::Averages &&
                         (value.kind() == bundle::Value::MOMENTS ||
                          bundle.summary.groups(int(value.id())).trainable());
    return average ? value.kind() == bundle::Value::MOMENTS && value.cut() + 1 == statesOf(value)
                   : value.kind() == bundle::Value::PARAMETERS;
  };
  for (uint32_t device : executor.devices())
    for (const bundle::PersistentState &state : bundle.programs[device].state())
      if (wanted(state.value()))
        pieces[state.value().id()].push_back({device, state.value().begin(), state.value().end(),
                                              &state.region(), elementBytes(state.type())});
  for (auto &group : pieces)
    std::sort(group.begin(), group.end(), [](const Piece &a, const Piece &b) {
      return a.begin != b.begin ? a.begin < b.begin : a.device < b.device;
    });
  return pieces;
}

/// Opens each weights file once. The files of the bundle are already open.
class WeightFiles {
public:
  Result<const MappedFile *> open(const WeightSource &weight) {
    if (weight.contents)
      return weight.contents.get();
    const std::string &path = weight.file;
    auto found = files_.find(path);
    if (found == files_.end()) {
      Result<MappedFile> file = MappedFile::open(path);
      if (file.failed())
        return userError(file.message() +
                         " (initial weights; if the model's files have moved, give --load-weights "
                         "CHECKPOINT or compile with --weights=embed)");
      found = files_.emplace(path, std::move(*file)).first;
    }
    return &found->second;
  }

private:
  std::map<std::string, MappedFile> files_;
};

Status fromBundle(const Bundle &bundle, int index, WeightFiles &files, Source &out) {
  const bundle::ParameterInfo &stored = bundle.summary.parameters(index);
  const bundle::ParameterInfo parameter = wholeOf(stored);
  const WeightSource &weight = bundle.weights[index];
  std::string where = bundle.directory + "/weights.json: parameter '" + parameter.name() + "'";
  if (Status status = checkPermutation(weight, parameter.shape_size(), where); status.failed())
    return status;
  std::optional<StoredType> type = storedTypeNamed(weight.type);
  if (!type)
    return userError(where + ": unknown type '" + weight.type + "'");
  if (elementCount(storedShape(parameter, weight)) != elementsOf(parameter) ||
      uint64_t(elementsOf(parameter)) * bytesOf(*type) != weight.bytes)
    return userError(where + ": has " + std::to_string(weight.bytes) + " bytes of " + weight.type +
                     ", its shape " + shapeText(shapeOf(parameter)) + " needs " +
                     std::to_string(elementsOf(parameter)) + " elements");
  Result<const MappedFile *> file = files.open(weight);
  if (file.failed())
    return file.error();
  if (weight.offset > (*file)->size() || weight.bytes > (*file)->size() - weight.offset)
    return userError(where + ": bytes [" + std::to_string(weight.offset) + ", +" +
                     std::to_string(weight.bytes) + ") lie outside " + weight.file + " of " +
                     std::to_string((*file)->size()));
  out.set((*file)->data() + weight.offset, *type, stored, weight);
  return Status::success();
}

/// The parameters to look for in a weights file.
std::vector<WantedTensor> wantedTensors(const Bundle &bundle) {
  std::vector<WantedTensor> out;
  for (int i = 0; i < bundle.summary.parameters_size(); ++i) {
    const bundle::ParameterInfo parameter = wholeOf(bundle.summary.parameters(i));
    out.push_back({parameter.name(), storedShape(parameter, bundle.weights[i]),
                   parameter.trainable(), isFloat(storedType(parameter.type())),
                   bundle.weights[i].hub, parameter.constant()});
  }
  return out;
}

Status fromCheckpoint(const Bundle &bundle, int index, const TensorFiles &checkpoint,
                      const MatchedTensor &match, Source &out) {
  const bundle::ParameterInfo &parameter = bundle.summary.parameters(index);
  const SafetensorsEntry &tensor = checkpoint.tensors().at(match.names.front()).entry;
  if (Status status = checkPermutation(bundle.weights[index], parameter.shape_size(),
                                       bundle.directory + "/weights.json");
      status.failed())
    return status;
  WeightSource layout;
  layout.permutation = bundle.weights[index].permutation;
  layout.shape = tensor.shape;
  if (match.transposed && layout.permutation.empty())
    layout.permutation = {1, 0};
  else if (match.transposed)
    for (int64_t &dimension : layout.permutation)
      dimension = 1 - dimension;
  if (layout.permutation == std::vector<int64_t>{0, 1})
    layout.permutation.clear();
  out.set(tensor.data, tensor.type, parameter, layout);
  return Status::success();
}

/// Calls `visit(piece, from, to)` for every part of a parameter; the range contains elements of its
/// group.
template <typename Visit>
Status eachPart(const std::vector<Piece> &pieces, const bundle::ParameterInfo &parameter,
                Visit visit) {
  int64_t begin = parameter.offset(), end = begin + elementsOf(parameter);
  for (const Piece &piece : pieces)
    if (int64_t from = std::max(begin, piece.begin), to = std::min(end, piece.end); from < to)
      if (Status status = visit(piece, from, to); status.failed())
        return status;
  return Status::success();
}

/// Gathers a parameter from pieces into `target`, in the compiled layout.
Status gather(const Executor &executor, const std::vector<Piece> &pieces,
              const bundle::ParameterInfo &parameter, std::byte *target) {
  return eachPart(pieces, parameter, [&](const Piece &piece, int64_t from, int64_t to) {
    return executor.read(piece.device, *piece.region, piece.offset(from),
                         target + (from - parameter.offset()) * piece.elementBytes,
                         (to - from) * piece.elementBytes);
  });
}

/// Gathers a parameter, or its elements of the whole parameter, into `target`.
Status gatherPart(const Executor &executor, const std::vector<Piece> &pieces,
                  const bundle::ParameterInfo &parameter, std::byte *target) {
  if (!parameter.has_shard())
    return gather(executor, pieces, parameter, target);
  const size_t size = elementBytes(parameter.type());
  std::vector<std::byte> part(size_t(elementsOf(parameter)) * size);
  if (Status status = gather(executor, pieces, parameter, part.data()); status.failed())
    return status;
  forShardRuns(parameter.shard(), [&](int64_t whole, int64_t from, int64_t count) {
    std::memcpy(target + whole * size, part.data() + from * size, size_t(count) * size);
  });
  return Status::success();
}

/// Whether every number of a part is finite.
Result<bool> isFinite(const Executor &executor, const Piece &piece, StoredType type, int64_t from,
                      int64_t to) {
  std::vector<std::byte> numbers;
  for (int64_t count; from < to; from += count) {
    count = std::min<int64_t>(to - from, kNumbersAtOnce);
    numbers.resize(count * piece.elementBytes);
    if (Status status = executor.read(piece.device, *piece.region, piece.offset(from),
                                      numbers.data(), numbers.size());
        status.failed())
      return status;
    if (firstNotFinite(numbers.data(), type, count))
      return false;
  }
  return true;
}

/// An item that writes a parameter-shaped tensor in the layout of files.
SafetensorsItem itemOf(const bundle::ParameterInfo &parameter, const WeightSource &weight,
                       StoredType type, std::function<void(std::byte *)> compiledLayout) {
  SafetensorsItem item{parameter.name(), type, storedShape(parameter, weight), compiledLayout};
  if (weight.permutation.empty())
    return item;
  std::vector<int64_t> shape = shapeOf(parameter), inverse(weight.permutation.size());
  for (size_t d = 0; d < inverse.size(); ++d)
    inverse[weight.permutation[d]] = int64_t(d);
  item.produce = [=](std::byte *target) {
    std::vector<std::byte> compiled(elementCount(shape).value_or(0) * bytesOf(type));
    compiledLayout(compiled.data());
    permuteElements(compiled.data(), target, bytesOf(type), shape, inverse);
  };
  return item;
}

} // namespace

Status zorse::runtime::writeElements(Executor &executor, uint32_t device,
                                     const bundle::Region &region, uint64_t offset,
                                     const std::byte *numbers, StoredType stored, StoredType wanted,
                                     int64_t count) {
  if (stored == wanted)
    return executor.write(device, region, offset, numbers, count * bytesOf(wanted));
  std::vector<std::byte> converted(std::min(count, kNumbersAtOnce) * bytesOf(wanted));
  for (int64_t done = 0; done < count; done += kNumbersAtOnce) {
    int64_t now = std::min(count - done, kNumbersAtOnce);
    convertElements(numbers + done * bytesOf(stored), stored, converted.data(), wanted, now);
    if (Status status = executor.write(device, region, offset + done * bytesOf(wanted),
                                       converted.data(), now * bytesOf(wanted));
        status.failed())
      return status;
  }
  return Status::success();
}

Status zorse::runtime::writeOptimizerStep(Executor &executor, const Bundle &bundle,
                                          const abi::OptimizerStep &step) {
  for (uint32_t device : executor.devices())
    for (const bundle::PersistentState &state : bundle.programs[device].state())
      if (state.value().kind() == bundle::Value::OPTIMIZER_STEP)
        if (Status status = executor.write(device, state.region(), 0, &step,
                                           std::min<uint64_t>(state.region().bytes(), sizeof step));
            status.failed())
          return status;
  return Status::success();
}

Status zorse::runtime::loadState(Executor &executor, const Bundle &bundle,
                                 const std::string &checkpoint, std::string *note,
                                 const std::vector<std::string> &skip, Initial initial) {
  std::vector<std::vector<Piece>> pieces = parameterPieces(executor, bundle);
  for (uint32_t device : executor.devices())
    for (const bundle::PersistentState &state : bundle.programs[device].state())
      if (Status status = executor.clear(device, state.region()); status.failed())
        return status;
  abi::OptimizerStep first = {};
  first.lossScale = bundle.summary.training().loss_scale();
  if (Status status = writeOptimizerStep(executor, bundle, first); status.failed())
    return status;

  std::optional<TensorFiles> given;
  TensorMatching matching;
  matching.parameters.resize(bundle.summary.parameters_size());
  if (!checkpoint.empty()) {
    Result<TensorFiles> files = TensorFiles::open(checkpoint);
    if (files.failed())
      return files.error();
    given = std::move(*files);
    Result<TensorMatching> matched = matchTensors(*given, wantedTensors(bundle), bundle.hub, skip);
    if (matched.failed())
      return matched.error();
    matching = std::move(*matched);
    if (note)
      *note = matching.note;
  }

  WeightFiles files;
  for (int i = 0; i < bundle.summary.parameters_size(); ++i) {
    const bundle::ParameterInfo &parameter = bundle.summary.parameters(i);
    if (initial == Initial::Frozen && parameter.trainable())
      continue;
    Source source;
    const MatchedTensor &match = matching.parameters[i];
    Status found = match.names.empty() ? fromBundle(bundle, i, files, source)
                                       : fromCheckpoint(bundle, i, *given, match, source);
    if (found.failed())
      return found;
    Status status = eachPart(
        pieces[parameter.group()], parameter, [&](const Piece &piece, int64_t from, int64_t to) {
          return writeElements(executor, piece.device, *piece.region, piece.offset(from),
                               source.at(from - parameter.offset()), source.type(), source.wanted(),
                               to - from);
        });
    if (status.failed())
      return status;
  }
  return Status::success();
}

Status zorse::runtime::saveWeights(const Executor &executor, const Bundle &bundle,
                                   const std::string &path, SavedWeights which) {
  std::vector<std::vector<Piece>> pieces = parameterPieces(executor, bundle, which);
  std::vector<SafetensorsItem> items;
  std::optional<Error> trouble;                  // error while items are written
  std::map<std::string, std::vector<int>> parts; // parameters by the name in the file
  for (int i = 0; i < bundle.summary.parameters_size(); ++i) {
    const bundle::ParameterInfo &parameter = bundle.summary.parameters(i);
    const std::vector<Piece> &group = pieces[parameter.group()];
    if (parameter.constant() || group.empty())
      continue; // not a parameter of the model, or on no device
    Status checked =
        eachPart(group, parameter, [&](const Piece &piece, int64_t from, int64_t to) -> Status {
          Result<bool> finite =
              parameter.trainable()
                  ? isFinite(executor, piece, storedType(parameter.type()), from, to)
                  : Result<bool>(true);
          if (finite.failed())
            return finite.error();
          return *finite
                     ? Status::success()
                     : Status(Error{ErrorKind::User,
                                    path + ": not written: parameter '" + bundle.weights[i].name +
                                        "' holds numbers that are not finite",
                                    UINT32_MAX,
                                    {},
                                    3});
        });
    if (checked.failed())
      return checked;
    const bundle::ParameterInfo whole = wholeOf(parameter);
    if (!parts.emplace(whole.name(), std::vector<int>()).second) {
      parts[whole.name()].push_back(i);
      continue;
    }
    parts[whole.name()].push_back(i);
    items.push_back(itemOf(whole, bundle.weights[i], storedType(parameter.type()),
                           [&, name = whole.name()](std::byte *target) {
                             for (int p : parts.at(name)) {
                               const bundle::ParameterInfo &part = bundle.summary.parameters(p);
                               Status status =
                                   gatherPart(executor, pieces[part.group()], part, target);
                               if (status.failed() && !trouble)
                                 trouble = status.error();
                             }
                           }));
  }
  Status written = writeSafetensors(path, std::move(items), nullptr, onnxNames());
  return trouble ? Status(*trouble) : written;
}

GradientDump::GradientDump(const Bundle &bundle) : bundle_(bundle) {
  for (const bundle::FlatGroupInfo &group : bundle.summary.groups())
    groups_.emplace_back(group.trainable() ? group.elements() * elementBytes(group.type()) : 0);
}

void GradientDump::observe(const ObservedCall &call) {
  if (call.evaluation || !call.instruction.has_compute() ||
      call.instruction.compute().task() != bundle::Compute::UPDATE_GROUP)
    return;
  double scale = 0; // loss scale of this step, by which gradients are still multiplied
  for (int i = 0; i < call.function.arguments_size(); ++i)
    if (call.function.arguments(i).kind() == bundle::SCALARS) {
      abi::StepScalars scalars;
      keep(call.memory.read(&scalars, call.addresses[i], offsetof(abi::StepScalars, lossGradient)));
      scale = scalars.decided.lossScale;
    }
  const bundle::ArgumentBindings bindings(bundle_.programs[call.device], call.call);
  for (int i = 0; i < call.function.arguments_size(); ++i) {
    const bundle::FunctionArgument &argument = call.function.arguments(i);
    const bundle::Value &value = bindings[i].value;
    if (argument.kind() != bundle::STATE || argument.index() != 1 || value.id() >= groups_.size())
      continue;
    size_t bytes = elementBytes(bundle_.summary.groups(value.id()).type());
    int64_t begin = std::max<int64_t>(value.begin(), 0),
            end = std::min<int64_t>(value.end(), groups_[value.id()].size() / bytes);
    if (begin >= end)
      continue;
    std::byte *data = groups_[value.id()].data() + begin * bytes;
    keep(call.memory.read(data, call.addresses[i], (end - begin) * bytes));
    if (scale > 1) // a power of two: exact
      for (int64_t e = 0; e < end - begin; ++e)
        bytes == 8 ? reinterpret_cast<double *>(data)[e] /= scale
                   : reinterpret_cast<float *>(data)[e] /= float(scale);
  }
}

Status GradientDump::write(const std::string &path) const {
  if (trouble_.failed())
    return trouble_;
  std::vector<SafetensorsItem> items;
  std::map<std::string, std::vector<int>> parts; // parameters by the name in the file
  for (int i = 0; i < bundle_.summary.parameters_size(); ++i) {
    const bundle::ParameterInfo &parameter = bundle_.summary.parameters(i);
    if (!parameter.trainable() || parameter.running_stat())
      continue;
    const bundle::ParameterInfo whole = wholeOf(parameter);
    std::vector<int> &known = parts[whole.name()];
    known.push_back(i);
    if (known.size() > 1)
      continue;
    items.push_back(itemOf(whole, bundle_.weights[i], storedType(parameter.type()),
                           [this, &parts, name = whole.name()](std::byte *target) {
                             for (int p : parts.at(name))
                               copyGradient(bundle_.summary.parameters(p), target);
                           }));
  }
  return writeSafetensors(path, std::move(items));
}

void GradientDump::copyGradient(const bundle::ParameterInfo &parameter, std::byte *target) const {
  const size_t bytes = elementBytes(parameter.type());
  const std::byte *data = groups_[parameter.group()].data() + parameter.offset() * bytes;
  if (!parameter.has_shard()) {
    std::memcpy(target, data, elementsOf(parameter) * bytes);
    return;
  }
  forShardRuns(parameter.shard(), [&](int64_t whole, int64_t part, int64_t count) {
    std::memcpy(target + whole * bytes, data + part * bytes, count * bytes);
  });
}

LossRows::LossRows(const Bundle &bundle)
    : bundle_(bundle), rows_(bundle.summary.loss_size(), std::vector<double>(bundle.batch, 0.0)) {}

void LossRows::observe(const ObservedCall &call) {
  if (!call.instruction.has_compute() ||
      call.instruction.compute().task() != bundle::Compute::SUM_LOSS)
    return;
  const bundle::ArgumentBindings bindings(bundle_.programs[call.device], call.call);
  for (int i = 0; i < call.function.arguments_size(); ++i) {
    const bundle::FunctionArgument &argument = call.function.arguments(i);
    const bundle::Value &value = bindings[i].value;
    if (argument.kind() != bundle::LOSS || argument.index() >= rows_.size())
      continue;
    const StoredType type = storedType(argument.type());
    std::vector<std::byte> numbers(call.call.rows() * bytesOf(type));
    std::vector<double> rows(call.call.rows());
    keep(call.memory.read(numbers.data(), call.addresses[i], numbers.size()));
    convertElements(numbers.data(), type, rows.data(), StoredType::F64, call.call.rows());
    for (int64_t row = 0; row < call.call.rows(); ++row)
      if (int64_t sample = value.begin() + row; sample >= 0 && sample < bundle_.batch)
        rows_[argument.index()][sample] = rows[row];
  }
}

Status LossRows::write(const std::string &path) const {
  if (trouble_.failed())
    return trouble_;
  std::string text = "[";
  for (size_t term = 0; term < rows_.size(); ++term) {
    text += term ? ",\n [" : "[";
    for (size_t i = 0; i < rows_[term].size(); ++i) {
      char number[40];
      snprintf(number, sizeof number, "%s%.17g", i ? ", " : "", rows_[term][i]);
      text += std::strchr(number, 'n') ? (i ? ", NaN" : "NaN") : number; // as Python reads it
    }
    text += "]";
  }
  text += "]\n";
  return writeOutput(path, text);
}
