#include "zorse/runtime/Data.h"

#include "Files.h"
#include "Order.h"

#include <algorithm>
#include <sstream>

using namespace zorse;
using namespace zorse::runtime;

namespace {

bool isInteger(bundle::ElementType type) { return type == bundle::I64 || type == bundle::I32; }

int64_t elementsPerRow(const bundle::GraphInput &input) { return input.bytes_per_row() / int64_t(elementBytes(input.type())); }

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t dimension : shape)
    text += (text.empty() ? "" : "x") + std::to_string(dimension);
  return text;
}

/// "[0, 256)", "[0, 256) or -100"; empty where any value will do.
std::string rangeText(const bundle::GraphInput &input) {
  if (!isInteger(input.type()) || input.upper_bound() == 0)
    return {};
  std::string text = "[" + std::to_string(input.lower_bound()) + ", " + std::to_string(input.upper_bound()) + ")";
  return input.ignore_allowed() ? text + " or " + std::to_string(input.ignore_index()) : text;
}

bool inRange(const bundle::GraphInput &input, int64_t value) {
  if (!isInteger(input.type()) || input.upper_bound() == 0)
    return true;
  return (value >= input.lower_bound() && value < input.upper_bound()) || (input.ignore_allowed() && value == input.ignore_index());
}

constexpr size_t kShown = 8; ///< values that descriptions show

template <typename T> std::string listed(const std::vector<T> &values) {
  std::ostringstream text;
  for (size_t i = 0; i < values.size(); ++i)
    text << (i ? ", " : "") << values[i];
  return text.str();
}

/// Feeds one input with rows.
class Feed {
public:
  explicit Feed(const bundle::GraphInput &input) : input_(input) {}
  virtual ~Feed() = default;
  virtual uint64_t samples() const = 0;
  virtual Status row(uint64_t sample, std::byte *target) const = 0;
  virtual std::string path() const = 0;
  virtual std::string description() const = 0;

protected:
  const bundle::GraphInput &input_;
};

class TokenFeed final : public Feed {
public:
  /// Element i of sample s is token s * stride + i + shift.
  TokenFeed(const bundle::GraphInput &input, std::shared_ptr<const TokenFile> file, int64_t stride, int64_t shift)
      : Feed(input), file_(std::move(file)), stride_(stride), shift_(shift), length_(elementsPerRow(input)) {}

  uint64_t samples() const override {
    int64_t needed = std::max(length_ + shift_, stride_);
    return file_->count() < uint64_t(needed) ? 0 : (file_->count() - needed) / stride_ + 1;
  }

  Status row(uint64_t sample, std::byte *target) const override {
    const uint64_t first = sample * stride_ + shift_;
    std::vector<int64_t> tokens(length_);
    if (Status status = file_->read(first, length_, tokens.data()); status.failed())
      return status;
    for (int64_t i = 0; i < length_; ++i) {
      uint64_t position = first + i;
      int64_t token = tokens[i];
      if (!inRange(input_, token))
        return userError(file_->path() + ": token " + std::to_string(position) + " is " + std::to_string(token) + "; input '" + input_.name() +
                         "' expects ids in " + rangeText(input_) + " (the file was read as " + file_->format() + ")");
      convertElements(&token, StoredType::I64, target + i * elementBytes(input_.type()), storedType(input_.type()), 1);
    }
    return Status::success();
  }
  std::string path() const override { return file_->path(); }
  std::string description() const override {
    std::vector<int64_t> first(std::min<uint64_t>(kShown, file_->count()));
    std::string text = path() + ": " + file_->format() + ", " + std::to_string(file_->count()) + " tokens";
    return file_->read(0, first.size(), first.data()).failed() || first.empty() ? text : text + ", the first are " + listed(first);
  }

private:
  std::shared_ptr<const TokenFile> file_;
  int64_t stride_, shift_, length_;
};

class ArrayFeed final : public Feed {
public:
  ArrayFeed(const bundle::GraphInput &input, ArrayFile file) : Feed(input), file_(std::move(file)) {}

  uint64_t samples() const override { return file_.shape().empty() ? 0 : file_.shape()[0]; }

  Status row(uint64_t sample, std::byte *target) const override {
    int64_t length = elementsPerRow(input_);
    std::vector<std::byte> row(length * bytesOf(file_.type()));
    if (Status status = file_.read(sample * length, length, row.data()); status.failed())
      return status;
    convertElements(row.data(), file_.type(), target, storedType(input_.type()), length);
    if (rangeText(input_).empty())
      return Status::success();
    for (int64_t i = 0; i < length; ++i) {
      int64_t value;
      convertElements(target + i * elementBytes(input_.type()), storedType(input_.type()), &value, StoredType::I64, 1);
      if (!inRange(input_, value))
        return userError(file_.path() + ": sample " + std::to_string(sample) + ", position " + std::to_string(i) + " is " + std::to_string(value) +
                         "; input '" + input_.name() + "' expects values in " + rangeText(input_));
    }
    return Status::success();
  }
  std::string path() const override { return file_.path(); }
  std::string description() const override {
    std::string text = path() + ": input '" + input_.name() + "', " + safetensorsName(file_.type()) + " [" + shapeText(file_.shape()) + "]";
    std::vector<std::byte> stored(kShown * bytesOf(file_.type()));
    int64_t count = std::min<int64_t>(kShown, elementCount(file_.shape()).value_or(0));
    if (count == 0 || file_.read(0, count, stored.data()).failed())
      return text;
    std::vector<double> first(count);
    convertElements(stored.data(), file_.type(), first.data(), StoredType::F64, count);
    return text + ", the first values are " + listed(first);
  }

private:
  ArrayFile file_;
};

/// "ids" and "labels" as the importer recognised them, otherwise by type and name.
std::string roleOf(const bundle::GraphInput &input) {
  if (!input.role().empty() || !isInteger(input.type()))
    return input.role();
  for (const char *word : {"label", "target"})
    if (input.name().find(word) != std::string::npos)
      return "labels";
  for (const char *word : {"mask", "position", "type"})
    if (input.name().find(word) != std::string::npos)
      return "";
  return "ids";
}

class FileData final : public DataSource {
public:
  FileData(const Bundle &bundle, std::vector<std::unique_ptr<Feed>> feeds, uint64_t samples, std::optional<uint64_t> seed)
      : bundle_(bundle), feeds_(std::move(feeds)), samples_(samples), order_(samples, seed) {}

  Result<std::shared_ptr<const Batch>> batchFrom(uint64_t first) override {
    auto batch = std::make_shared<Batch>();
    for (const bundle::GraphInput &input : bundle_.summary.inputs())
      batch->inputs.emplace_back(bundle_.batch * input.bytes_per_row());
    for (int64_t n = 0; n < bundle_.batch; ++n) {
      uint64_t sample = order_.at(first + n);
      for (size_t i = 0; i < feeds_.size(); ++i)
        if (Status status = feeds_[i]->row(sample, batch->inputs[i].data() + n * bundle_.summary.inputs(i).bytes_per_row()); status.failed())
          return status;
    }
    return std::shared_ptr<const Batch>(std::move(batch));
  }

  uint64_t samplesPerEpoch() const override { return samples_; }

  std::vector<std::string> description() const override {
    std::vector<std::string> lines;
    for (const std::unique_ptr<Feed> &feed : feeds_)
      if (std::string line = feed->description(); std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(line);
    return lines;
  }

private:
  const Bundle &bundle_;
  std::vector<std::unique_ptr<Feed>> feeds_;
  uint64_t samples_;
  SampleOrder order_;
};

std::string inputNames(const Bundle &bundle) {
  std::string text;
  for (const bundle::GraphInput &input : bundle.summary.inputs())
    text += (text.empty() ? "'" : ", '") + input.name() + "'";
  return text;
}

} // namespace

Result<std::unique_ptr<DataSource>> DataSource::open(const Bundle &bundle, const std::string &specification, std::optional<uint64_t> shuffleSeed) {
  const auto &inputs = bundle.summary.inputs();
  std::vector<std::unique_ptr<Feed>> feeds(inputs.size());
  std::string tokens;

  for (size_t begin = 0; begin <= specification.size();) {
    size_t end = std::min(specification.find(',', begin), specification.size());
    std::string part = specification.substr(begin, end - begin);
    begin = end + 1;
    size_t equals = part.find('=');
    if (equals == std::string::npos) {
      if (part.empty() || !tokens.empty())
        return userError("--data: expects one file of tokens, or NAME=FILE.npy for each input (" + inputNames(bundle) + "), got '" + specification +
                         "'");
      tokens = part;
      continue;
    }
    std::string name = part.substr(0, equals);
    auto found = std::find_if(inputs.begin(), inputs.end(), [&](const bundle::GraphInput &input) { return input.name() == name; });
    if (found == inputs.end())
      return userError("--data: the model has no input '" + name + "'; its inputs are " + inputNames(bundle));
    Result<ArrayFile> file = ArrayFile::open(part.substr(equals + 1));
    if (file.failed())
      return file.error();
    std::vector<int64_t> expected(found->shape().begin(), found->shape().end());
    if (file->shape().empty() || std::vector<int64_t>(file->shape().begin() + 1, file->shape().end()) != expected)
      return userError(file->path() + ": input '" + name + "' expects an array of shape samples" + (expected.empty() ? "" : "x") +
                       shapeText(expected) + ", got " + shapeText(file->shape()));
    if (isFloat(file->type()) && !isFloat(storedType(found->type())))
      return userError(file->path() + ": input '" + name + "' expects integers, got floating-point numbers");
    feeds[found - inputs.begin()] = std::make_unique<ArrayFeed>(*found, std::move(*file));
  }

  if (!tokens.empty()) {
    Result<TokenFile> opened = TokenFile::open(tokens);
    if (opened.failed())
      return opened.error();
    auto file = std::make_shared<const TokenFile>(std::move(*opened));
    int64_t stride = 0;
    for (const bundle::GraphInput &input : inputs)
      if (roleOf(input) == "ids")
        stride = std::max(stride, elementsPerRow(input));
    if (stride == 0)
      return userError("--data " + tokens + ": no input of the model takes token ids (" + inputNames(bundle) + "); give NAME=FILE.npy for each");
    for (int i = 0; i < inputs.size(); ++i)
      if (!feeds[i])
        if (std::string role = roleOf(inputs[i]); role == "ids" || role == "labels")
          feeds[i] = std::make_unique<TokenFeed>(inputs[i], file, stride, role == "labels" && !inputs[i].shifted_in_graph() ? 1 : 0);
  }

  uint64_t samples = UINT64_MAX;
  std::string shortest;
  for (int i = 0; i < inputs.size(); ++i) {
    if (!feeds[i])
      return userError("--data: nothing feeds input '" + inputs[i].name() + "'; add " + inputs[i].name() + "=FILE.npy");
    if (feeds[i]->samples() < samples) {
      samples = feeds[i]->samples();
      shortest = feeds[i]->path();
    }
    for (int j = 0; j < i; ++j)
      if (dynamic_cast<ArrayFeed *>(feeds[i].get()) && dynamic_cast<ArrayFeed *>(feeds[j].get()) && feeds[i]->samples() != feeds[j]->samples())
        return userError(feeds[i]->path() + ": has " + std::to_string(feeds[i]->samples()) + " samples, " + feeds[j]->path() + " has " +
                         std::to_string(feeds[j]->samples()));
  }
  if (inputs.empty())
    return userError("the model has no inputs: there is nothing to train on");
  if (samples < uint64_t(bundle.batch))
    return userError(shortest + ": holds " + std::to_string(samples) + " samples, one batch needs " + std::to_string(bundle.batch) +
                     (tokens.empty() ? "" : " (of " + std::to_string(bundle.sequence) + " tokens each)") +
                     "; give more data or compile with a smaller --batch");
  return std::unique_ptr<DataSource>(new FileData(bundle, std::move(feeds), samples, shuffleSeed));
}
