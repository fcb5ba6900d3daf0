#include "zorse/runtime/MatchTensors.h"

#include "Renaming.h"

#include <algorithm>
#include <cstring>
#include <fnmatch.h>
#include <set>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr size_t kListed = 20; ///< maximum number of names in a message

using Shape = std::vector<int64_t>;

Shape reversed(const Shape &shape) { return {shape.rbegin(), shape.rend()}; }
bool isSquare(const Shape &shape) { return shape.size() == 2 && shape[0] == shape[1]; }

/// For example "'a' 4x8, 'b' 3, ... and 2 more".
std::string listed(const std::vector<std::string> &texts) {
  std::string out;
  for (size_t i = 0; i < texts.size() && i < kListed; ++i)
    out += (i ? ", " : "") + texts[i];
  return out +
         (texts.size() > kListed ? " and " + std::to_string(texts.size() - kListed) + " more" : "");
}

std::string counted(size_t count, const char *what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string shown(const std::string &name, const Shape &shape) {
  return "'" + name + "' " + shapeText(shape);
}

class Matcher {
public:
  Matcher(const TensorFiles &files, const std::vector<WantedTensor> &wanted,
          const bundle::HubModel &model, const std::vector<std::string> &skip,
          UnmatchedTensorPolicy leftOver)
      : files_(files), tensors_(files.tensors()), wanted_(wanted), model_(model), skip_(skip),
        leftOver_(leftOver) {
    out_.parameters.resize(wanted.size());
    for (const WantedTensor &each : wanted)
      facts_ |= !each.hub.names.empty();
  }

  Result<TensorMatching> run() {
    out_.byOnnxNames = hasOnnxNames();
    if (out_.byOnnxNames)
      byOnnxNames();
    else if (Status status = byHubNames(); status.failed())
      return status;
    checkTies();
    checkTypes();
    if (Status status = leftOver_ == UnmatchedTensorPolicy::Keep ? Status::success() : checkRest();
        status.failed())
      return status;
    std::string problems;
    auto add = [&](const std::vector<std::string> &texts, const std::string &what) {
      if (!texts.empty())
        problems += (problems.empty() ? "" : "; ") + what + ": " + listed(texts);
    };
    add(missing_, counted(missing_.size(), "parameter") + " of the model missing");
    for (const std::string &text : shapes_)
      problems += (problems.empty() ? "" : "; ") + text;
    add(ambiguous_, "square matrices that may be transposed or not, as others of the file are");
    add(left_, counted(left_.size(), "tensor") + (left_.size() == 1 ? " is" : " are") +
                   " not of the model");
    bool good = missing_.empty() && shapes_.empty() && ambiguous_.empty() &&
                (left_.empty() || out_.byOnnxNames);
    if (!good)
      return userError(files_.path() + ": " + problems + remedy());
    if (out_.byOnnxNames && !left_.empty())
      say(problems);
    if (!out_.note.empty())
      out_.note = files_.path() + ": " + out_.note;
    return std::move(out_);
  }

private:
  void say(const std::string &text) { out_.note += (out_.note.empty() ? "" : "; ") + text; }

  bool has(const std::string &name) const { return tensors_.count(name) != 0; }

  /// Whether the file has the names of the ONNX file: files that Zorse wrote and, without facts,
  /// files with the names of all trained parameters.
  bool hasOnnxNames() const {
    return files_.isOurs() ||
           (!facts_ && std::all_of(wanted_.begin(), wanted_.end(), [&](const WantedTensor &each) {
             return !each.trainable || has(each.name);
           }));
  }

  void byOnnxNames() {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!has(wanted_[i].name)) {
        if (wanted_[i].trainable)
          missing_.push_back(shown(wanted_[i].name, wanted_[i].shape));
        continue;
      }
      out_.parameters[i].names = {wanted_[i].name};
      checkShape(i, wanted_[i].shape);
    }
  }

  /// The names to look for; empty if the file may omit the tensor.
  std::vector<std::string> namesOf(const WantedTensor &each) const {
    if (!each.hub.names.empty())
      return each.hub.names;
    if (facts_ && !each.trainable)
      return {};
    std::vector<std::string> names = {each.name};
    names.insert(names.end(), each.hub.ties.begin(), each.hub.ties.end());
    return names;
  }

  /// Whether a tensor has a shape that the parameter may have in the file.
  bool fits(const WantedTensor &each, const Shape &found) const {
    if (!each.hub.names.empty())
      return found == (each.hub.transposed ? reversed(each.shape) : each.shape);
    return found == each.shape || (each.shape.size() == 2 && found == reversed(each.shape));
  }

  Status byHubNames() {
    std::set<std::string> names;
    for (const WantedTensor &each : wanted_)
      if (!each.hub.adapter)
        for (const std::string &name : namesOf(each))
          names.insert(name);
    std::set<std::string> there;
    for (const auto &[name, tensor] : tensors_)
      there.insert(name);
    std::vector<Renaming> best;
    size_t max = 0;
    for (const Renaming &renaming : possibleRenamings(names, there)) { // starts with no renaming
      size_t count = 0;
      for (const WantedTensor &each : wanted_)
        if (std::string name = oneOf(each, renaming); !name.empty() && !each.hub.adapter)
          count += fits(each, tensors_.at(name).entry.shape);
      if (count > max)
        best.clear();
      if (best.empty() || (count == max && !best.front().isNone()))
        best.push_back(renaming);
      max = std::max(max, count);
    }
    const Renaming renaming = best.front();
    for (const Renaming &other : best)
      for (const WantedTensor &each : wanted_)
        if (std::string one = oneOf(each, renaming), two = oneOf(each, other);
            one != two && !one.empty() && !two.empty())
          return bothFit(each.name, one + "' (" + renaming.text(), two + "' (" + other.text());
    if (max > 0 && !renaming.isNone())
      say(renaming.text());
    if (max > 0 && !facts_)
      say("the ONNX file does not say what its parameters are called in checkpoints of the hub: " +
          counted(max, "parameter") + " found by name and shape");
    assign(renaming);
    return Status::success();
  }

  Error bothFit(const std::string &parameter, const std::string &one,
                const std::string &other) const {
    return userError(files_.path() + ": parameter '" + parameter + "' may be tensor '" + one +
                     ") or '" + other +
                     "), and both choices match the same number of parameters; export the model "
                     "with zorse-torch-export --hf, which writes the names of the hub "
                     "into the ONNX file, or leave tensors out with --ignore-tensors=PATTERN");
  }

  std::string oneOf(const WantedTensor &each, const Renaming &renaming) const {
    for (const std::string &name : namesOf(each))
      if (std::string found = find(name, renaming); !found.empty())
        return found;
    return {};
  }

  /// The tensor with this name, renamed or unchanged; empty if there is none.
  std::string find(const std::string &name, const Renaming &renaming) const {
    std::string renamed = renaming.apply(name);
    return has(renamed) && !isSkipped(renamed) ? renamed
           : has(name) && !isSkipped(name)     ? name
                                               : std::string();
  }

  bool isSkipped(const std::string &name) const {
    return std::any_of(skip_.begin(), skip_.end(), [&](const std::string &pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
  }

  void assign(const Renaming &renaming) {
    std::vector<std::string> squares, turned;
    size_t kept = 0;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const WantedTensor &each = wanted_[i];
      MatchedTensor &match = out_.parameters[i];
      for (const std::string &name : namesOf(each))
        if (std::string found = find(name, renaming);
            !found.empty() &&
            std::find(match.names.begin(), match.names.end(), found) == match.names.end())
          match.names.push_back(found);
      if (match.names.empty()) {
        bool needed = each.trainable || !each.hub.names.empty();
        kept += !each.trainable && !each.constant && !facts_;
        if (needed && !each.hub.adapter)
          missing_.push_back(shown(each.name, each.shape) +
                             (each.hub.names.empty() || each.hub.names.front() == each.name
                                  ? ""
                                  : " ('" + each.hub.names.front() + "' there)"));
        continue;
      }
      const Shape &found = tensors_.at(match.names.front()).entry.shape;
      match.transposed = each.hub.names.empty() ? found != each.shape && fits(each, found)
                                                : each.hub.transposed;
      checkShape(i, match.transposed ? reversed(each.shape) : each.shape);
      if (each.hub.names.empty() && match.transposed)
        turned.push_back(shown(match.names.front(), found));
      if (each.hub.names.empty() && isSquare(found))
        squares.push_back(shown(match.names.front(), found));
    }
    if (kept > 0)
      say(counted(kept, "frozen parameter") + " not in it keep the values of the ONNX file");
    if (!turned.empty())
      say(counted(turned.size(), "matrix") + " transposed, by shape: " + listed(turned));
    if (!turned.empty())
      ambiguous_ = squares;
  }

  void checkShape(size_t i, const Shape &expected) {
    for (const std::string &name : out_.parameters[i].names)
      if (const Shape &found = tensors_.at(name).entry.shape; found != expected)
        shapes_.push_back(
            "tensor '" + name + "'" +
            (name == wanted_[i].name ? "" : " (parameter '" + wanted_[i].name + "')") +
            ": expects shape " + shapeText(expected) + ", got " + shapeText(found));
  }

  /// Several names of one parameter must have equal tensors.
  void checkTies() {
    for (MatchedTensor &match : out_.parameters)
      for (size_t k = 1; k < match.names.size(); ++k) {
        const SafetensorsEntry &a = tensors_.at(match.names[0]).entry,
                               &b = tensors_.at(match.names[k]).entry;
        if (a.type != b.type || a.bytes != b.bytes || std::memcmp(a.data, b.data, a.bytes) != 0)
          shapes_.push_back("tensors '" + match.names[0] + "' and '" + match.names[k] +
                            "' hold different numbers, and the model ties them "
                            "(tie_word_embeddings); export it untied, or leave one out with "
                            "--ignore-tensors=" +
                            match.names[k]);
      }
  }

  void checkTypes() {
    for (size_t i = 0; i < wanted_.size(); ++i)
      for (const std::string &name : out_.parameters[i].names)
        if (StoredType type = tensors_.at(name).entry.type; wanted_[i].floating && !isFloat(type))
          shapes_.push_back("tensor '" + name + "': expects floating-point numbers, got " +
                            safetensorsName(type));
  }

  /// Checks the tensors that no parameter uses.
  Status checkRest() {
    std::set<std::string> taken, buffers(model_.buffers.begin(), model_.buffers.end()), leaves,
        parameterLeaves;
    auto leaf = [](const std::string &name) { return name.substr(name.rfind('.') + 1); };
    for (const MatchedTensor &match : out_.parameters)
      taken.insert(match.names.begin(), match.names.end());
    for (const WantedTensor &each : wanted_)
      for (const std::string &name : namesOf(each))
        parameterLeaves.insert(leaf(name));
    for (const std::string &buffer : buffers)
      if (!parameterLeaves.count(leaf(buffer)))
        leaves.insert(leaf(buffer));
    auto isBuffer = [&](const std::string &name) {
      return leaves.count(leaf(name)) ||
             std::any_of(buffers.begin(), buffers.end(),
                         [&](const std::string &buffer) { return isEnd(name, buffer); });
    };
    std::vector<std::string> unused, skipped;
    for (const auto &[name, tensor] : tensors_)
      if (taken.count(name))
        continue;
      else if (isSkipped(name))
        skipped.push_back(shown(name, tensor.entry.shape));
      else if (!out_.byOnnxNames && (isBuffer(name) || !isFloat(tensor.entry.type)))
        unused.push_back(shown(name, tensor.entry.shape));
      else
        left_.push_back(shown(name, tensor.entry.shape));
    for (const std::string &pattern : skip_)
      if (std::none_of(tensors_.begin(), tensors_.end(), [&](const auto &each) {
            return fnmatch(pattern.c_str(), each.first.c_str(), 0) == 0;
          }))
        return userError(files_.path() + ": no tensor is called '" + pattern +
                         "' (--ignore-tensors); * stands for any characters");
    if (!unused.empty())
      say(counted(unused.size(), "tensor") +
          " not used, which the model computes itself: " + listed(unused));
    if (!skipped.empty())
      say(counted(skipped.size(), "tensor") + " left out (--ignore-tensors): " + listed(skipped));
    return Status::success();
  }

  std::string remedy() const {
    if (out_.byOnnxNames)
      return "; save tensors under the names of the ONNX file's initializers";
    std::string text;
    if (!missing_.empty())
      text += "; give the checkpoint of the model that was exported, or save tensors under the "
              "names of the ONNX file's initializers";
    if (!ambiguous_.empty() || (!missing_.empty() && !facts_))
      text += "; export the model with zorse-torch-export --hf, or write the names of the hub into "
              "the ONNX file (write_facts(..., hub=...))";
    if (!left_.empty())
      text += "; --ignore-tensors=PATTERN,... leaves tensors out that are not meant to be trained";
    return text;
  }

  const TensorFiles &files_;
  const std::map<std::string, FiledTensor> &tensors_;
  const std::vector<WantedTensor> &wanted_;
  const bundle::HubModel &model_;
  const std::vector<std::string> &skip_;
  const UnmatchedTensorPolicy leftOver_;
  bool facts_ = false; ///< whether the ONNX file contains the parameters' names on the hub
  TensorMatching out_;
  std::vector<std::string> missing_, shapes_, ambiguous_, left_; ///< for messages
};

} // namespace

Result<TensorMatching> zorse::runtime::matchTensors(const TensorFiles &files,
                                                    const std::vector<WantedTensor> &wanted,
                                                    const bundle::HubModel &model,
                                                    const std::vector<std::string> &skip,
                                                    UnmatchedTensorPolicy leftOver) {
  return Matcher(files, wanted, model, skip, leftOver).run();
}

std::string zorse::runtime::shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t dimension : shape)
    text += (text.empty() ? "" : "x") + std::to_string(dimension);
  return text.empty() ? "scalar" : text;
}
