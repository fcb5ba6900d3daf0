#include "zorse/runtime/Data.h"

#include "Files.h"
#include "Order.h"
#include "Prepared.h"
#include "StreamData.h"

#include <algorithm>
#include <sstream>

using namespace zorse;
using namespace zorse::runtime;

namespace {

bool isInteger(bundle::ElementType type) { return type == bundle::I64 || type == bundle::I32; }

int64_t elementsPerRow(const bundle::GraphInput &input) {
  return input.bytes_per_row() / int64_t(elementBytes(input.type()));
}

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t dimension : shape)
    text += (text.empty() ? "" : "x") + std::to_string(dimension);
  return text;
}

/// "[0, 256)" or "[0, 256) or -100"; empty if the input accepts any value.
std::string rangeText(const bundle::GraphInput &input) {
  if (!isInteger(input.type()) || input.upper_bound() == 0)
    return {};
  std::string text = "[" + std::to_string(input.lower_bound()) + ", " +
                     std::to_string(input.upper_bound()) + ")";
  return input.ignore_allowed() ? text + " or " + std::to_string(input.ignore_index()) : text;
}

bool inRange(const bundle::GraphInput &input, int64_t value) {
  if (!isInteger(input.type()) || input.upper_bound() == 0)
    return true;
  return (value >= input.lower_bound() && value < input.upper_bound()) ||
         (input.ignore_allowed() && value == input.ignore_index());
}

constexpr size_t kShown = 8; ///< number of values in descriptions

template <typename T> std::string listed(const std::vector<T> &values) {
  std::ostringstream text;
  for (size_t i = 0; i < values.size(); ++i)
    text << (i ? ", " : "") << values[i];
  return text.str();
}

/// Keeps the first lines and replaces the others by their count.
std::vector<std::string> shortened(std::vector<std::string> lines) {
  constexpr size_t kLines = 4;
  if (lines.size() > kLines + 1) {
    std::string rest = "... and " + std::to_string(lines.size() - kLines) + " more files";
    lines.resize(kLines);
    lines.push_back(std::move(rest));
  }
  return lines;
}

/// Supplies the values of one input, by rows.
class Feed {
public:
  explicit Feed(const bundle::GraphInput &input) : input_(input) {}
  virtual ~Feed() = default;
  virtual uint64_t samples() const = 0;
  virtual Status row(uint64_t sample, std::byte *target) const = 0;
  virtual std::string path() const = 0;
  virtual std::vector<std::string> description() const = 0; ///< one line per file

protected:
  const bundle::GraphInput &input_;
};

/// Concatenated token files. Samples do not cross file boundaries.
class TokenShards {
public:
  /// Sample s of a file starts at its token s * stride; feeds read `needed` tokens of it.
  TokenShards(std::vector<TokenFile> files, int64_t stride, int64_t needed)
      : files_(std::move(files)), stride_(stride) {
    uint64_t end = 0;
    for (const TokenFile &file : files_)
      ends_.push_back(
          end += file.count() < uint64_t(needed) ? 0 : (file.count() - needed) / stride + 1);
  }

  uint64_t samples() const { return ends_.back(); }
  const std::vector<TokenFile> &files() const { return files_; }
  uint64_t samplesOf(size_t file) const { return ends_[file] - (file ? ends_[file - 1] : 0); }

  struct Place {
    const TokenFile &file;
    uint64_t first; ///< first token of the sample
  };
  Place at(uint64_t sample) const {
    size_t file = size_t(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
    return {files_[file], (sample - (file ? ends_[file - 1] : 0)) * stride_};
  }

private:
  std::vector<TokenFile> files_;
  std::vector<uint64_t> ends_; ///< cumulative sample counts of the files
  int64_t stride_;
};

class TokenFeed final : public Feed {
public:
  /// Element i of a sample is its token i + shift.
  TokenFeed(const bundle::GraphInput &input, std::shared_ptr<const TokenShards> shards,
            int64_t shift)
      : Feed(input), shards_(std::move(shards)), shift_(shift), length_(elementsPerRow(input)) {}

  uint64_t samples() const override { return shards_->samples(); }

  Status row(uint64_t sample, std::byte *target) const override {
    const TokenShards::Place place = shards_->at(sample);
    const uint64_t first = place.first + shift_;
    std::vector<int64_t> tokens(length_);
    if (Status status = place.file.read(first, length_, tokens.data()); status.failed())
      return status;
    for (int64_t i = 0; i < length_; ++i) {
      uint64_t position = first + i;
      int64_t token = tokens[i];
      if (!inRange(input_, token))
        return userError(place.file.path() + ": token " + std::to_string(position) + " is " +
                         std::to_string(token) + "; input '" + input_.name() + "' expects ids in " +
                         rangeText(input_) + " (the file was read as " + place.file.format() +
                         "; --data-type sets another type)");
      convertElements(&token, StoredType::I64, target + i * elementBytes(input_.type()),
                      storedType(input_.type()), 1);
    }
    return Status::success();
  }
  std::string path() const override {
    return shards_->files()[0].path() + (shards_->files().size() > 1 ? " and others" : "");
  }
  std::vector<std::string> description() const override {
    std::vector<std::string> lines;
    const std::vector<TokenFile> &files = shards_->files();
    for (size_t f = 0; f < files.size(); ++f) {
      std::vector<int64_t> first(std::min<uint64_t>(kShown, files[f].count()));
      std::string line = files[f].path() + ": " + files[f].format() + ", " +
                         std::to_string(files[f].count()) + " tokens";
      if (files.size() > 1 && shards_->samplesOf(f) == 0)
        line += ", too few for a sample: it is not used";
      else if (!first.empty() && files[f].read(0, first.size(), first.data()).succeeded())
        line += ", the first are " + listed(first);
      lines.push_back(line);
    }
    return shortened(std::move(lines));
  }

private:
  std::shared_ptr<const TokenShards> shards_;
  int64_t shift_, length_;
};

/// Concatenated arrays.
class ArrayFeed final : public Feed {
public:
  ArrayFeed(const bundle::GraphInput &input, std::vector<ArrayFile> files)
      : Feed(input), files_(std::move(files)) {
    uint64_t end = 0;
    for (const ArrayFile &file : files_)
      ends_.push_back(end += file.shape()[0]);
  }

  uint64_t samples() const override { return ends_.back(); }

  Status row(uint64_t sample, std::byte *target) const override {
    size_t which = size_t(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
    const ArrayFile &file = files_[which];
    sample -= which ? ends_[which - 1] : 0;
    int64_t length = elementsPerRow(input_);
    std::vector<std::byte> row(length * bytesOf(file.type()));
    if (Status status = file.read(sample * length, length, row.data()); status.failed())
      return status;
    convertElements(row.data(), file.type(), target, storedType(input_.type()), length);
    if (rangeText(input_).empty())
      return Status::success();
    for (int64_t i = 0; i < length; ++i) {
      int64_t value;
      convertElements(target + i * elementBytes(input_.type()), storedType(input_.type()), &value,
                      StoredType::I64, 1);
      if (!inRange(input_, value))
        return userError(file.path() + ": sample " + std::to_string(sample) + ", position " +
                         std::to_string(i) + " is " + std::to_string(value) + "; input '" +
                         input_.name() + "' expects values in " + rangeText(input_));
    }
    return Status::success();
  }
  std::string path() const override {
    return files_[0].path() + (files_.size() > 1 ? " and others" : "");
  }
  std::vector<std::string> description() const override {
    std::vector<std::string> lines;
    for (const ArrayFile &file : files_) {
      std::string line = file.path() + ": input '" + input_.name() + "', " +
                         safetensorsName(file.type()) + " [" + shapeText(file.shape()) + "]";
      std::vector<std::byte> stored(kShown * bytesOf(file.type()));
      int64_t count = std::min<int64_t>(kShown, elementCount(file.shape()).value_or(0));
      if (count > 0 && file.read(0, count, stored.data()).succeeded()) {
        std::vector<double> first(count);
        convertElements(stored.data(), file.type(), first.data(), StoredType::F64, count);
        line += ", the first values are " + listed(first);
      }
      lines.push_back(line);
    }
    return shortened(std::move(lines));
  }

private:
  std::vector<ArrayFile> files_; ///< at least one; none is a scalar
  std::vector<uint64_t> ends_;   ///< cumulative sample counts of the files
};

class FileData final : public DataSource {
public:
  /// \param inputs  owns the inputs that `feeds` refer to
  /// \param notes   lines of the description that follow those of the files
  FileData(const Bundle &bundle, std::unique_ptr<std::vector<bundle::GraphInput>> inputs,
           std::vector<std::unique_ptr<Feed>> feeds, std::vector<std::string> notes,
           uint64_t samples, std::optional<uint64_t> seed)
      : bundle_(bundle), inputs_(std::move(inputs)), feeds_(std::move(feeds)),
        notes_(std::move(notes)), samples_(samples), order_(samples, seed) {}

  Result<std::shared_ptr<const Batch>> batchOf(uint64_t first, uint64_t samples,
                                               uint64_t padding) override {
    auto batch = std::make_shared<Batch>();
    for (const bundle::GraphInput &input : bundle_.summary.inputs())
      batch->inputs.emplace_back(bundle_.batch * input.bytes_per_row());
    for (int64_t n = 0; n < bundle_.samples(); ++n) {
      const uint64_t place = uint64_t(n) < samples
                                 ? uint64_t(n)
                                 : samples - padding + (uint64_t(n) - samples) % padding;
      uint64_t sample = order_.at(first + place);
      for (size_t i = 0; i < feeds_.size(); ++i)
        if (Status status =
                feeds_[i]->row(sample, batch->inputs[i].data() + n * (*inputs_)[i].bytes_per_row());
            status.failed())
          return status;
    }
    return std::shared_ptr<const Batch>(std::move(batch));
  }

  uint64_t samplesPerEpoch() const override { return samples_; }

  std::vector<std::string> description() const override {
    std::vector<std::string> lines;
    for (const std::unique_ptr<Feed> &feed : feeds_)
      for (std::string &line : feed->description())
        if (std::find(lines.begin(), lines.end(), line) == lines.end())
          lines.push_back(std::move(line));
    lines.insert(lines.end(), notes_.begin(), notes_.end());
    return lines;
  }

private:
  const Bundle &bundle_;
  std::unique_ptr<std::vector<bundle::GraphInput>> inputs_;
  std::vector<std::unique_ptr<Feed>> feeds_;
  std::vector<std::string> notes_;
  uint64_t samples_;
  SampleOrder order_;
};

/// Inputs with the shape of one sample, as in files, if a row contains several samples.
std::vector<bundle::GraphInput>
inputsOfSamples(const Bundle &bundle,
                const google::protobuf::RepeatedPtrField<bundle::GraphInput> &ofRows) {
  std::vector<bundle::GraphInput> inputs(ofRows.begin(), ofRows.end());
  for (bundle::GraphInput &input : inputs)
    if (bundle.samplesPerRow > 1) {
      input.set_bytes_per_row(input.bytes_per_row() / bundle.samplesPerRow);
      input.mutable_shape()->erase(input.mutable_shape()->begin());
    }
  return inputs;
}

} // namespace

std::string zorse::runtime::inputRole(const bundle::GraphInput &input) {
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

TokenReading zorse::runtime::tokenReading(const Bundle &bundle,
                                          std::optional<StoredType> tokenType) {
  TokenReading reading;
  reading.type = tokenType;
  for (const bundle::GraphInput &input : bundle.summary.inputs())
    if (inputRole(input) == "ids")
      reading.vocabulary = std::max<int64_t>(reading.vocabulary, input.upper_bound());
  return reading;
}

/// Opens the shards in the order of their names on the command line. The files of a pattern are
/// sorted by name.
static Result<std::vector<TokenFile>> openTokens(const std::vector<std::string> &parts,
                                                 const TokenReading &reading) {
  std::vector<TokenFile> files;
  for (const std::string &part : parts) {
    Result<std::vector<std::string>> paths = filesOf(withoutBytes(part));
    if (paths.failed())
      return paths.error();
    for (const std::string &path : *paths) {
      Result<TokenFile> opened =
          TokenFile::open(part.substr(0, part.size() - withoutBytes(part).size()) + path, reading);
      if (opened.failed())
        return opened.error();
      files.push_back(std::move(*opened));
    }
  }
  return files;
}

/// Opens the array files of an input and checks their shapes and types.
static Result<std::vector<ArrayFile>> openArrays(const bundle::GraphInput &input,
                                                 const std::string &text) {
  Result<std::vector<std::string>> paths = filesOf(text);
  if (paths.failed())
    return paths.error();
  std::vector<ArrayFile> files;
  for (const std::string &path : *paths) {
    if (Status status = checkPrepared(input, path); status.failed())
      return status.error();
    Result<ArrayFile> file = ArrayFile::open(path);
    if (file.failed())
      return file.error();
    std::vector<int64_t> expected(input.shape().begin(), input.shape().end());
    if (file->shape().empty() ||
        std::vector<int64_t>(file->shape().begin() + 1, file->shape().end()) != expected)
      return userError(file->path() + ": input '" + input.name() +
                       "' expects an array of shape samples" + (expected.empty() ? "" : "x") +
                       shapeText(expected) + ", got " + shapeText(file->shape()));
    if (isFloat(file->type()) && !isFloat(storedType(input.type())))
      return userError(file->path() + ": input '" + input.name() +
                       "' expects integers, got floating-point numbers");
    files.push_back(std::move(*file));
  }
  return files;
}

static std::string namesOf(const google::protobuf::RepeatedPtrField<bundle::GraphInput> &inputs) {
  std::string text;
  for (const bundle::GraphInput &input : inputs)
    text += (text.empty() ? "'" : ", '") + input.name() + "'";
  return text;
}

/// Returns an error if two arrays have different numbers of samples.
static Status checkSamples(const std::vector<const Feed *> &arrays) {
  for (const Feed *array : arrays)
    if (array->samples() != arrays.front()->samples())
      return userError(array->path() + ": has " + std::to_string(array->samples()) + " samples, " +
                       arrays.front()->path() + " has " +
                       std::to_string(arrays.front()->samples()));
  return Status::success();
}

/// Feeds token files to the inputs of ids and labels that have no feed.
/// \param notes  receives a line for every input whose role is inferred from its name
static Status feedTokens(const Bundle &bundle, const std::vector<bundle::GraphInput> &inputs,
                         const std::vector<std::string> &tokens,
                         std::optional<StoredType> tokenType,
                         std::vector<std::unique_ptr<Feed>> &feeds,
                         std::vector<std::string> &notes) {
  Result<std::vector<TokenFile>> files = openTokens(tokens, tokenReading(bundle, tokenType));
  if (files.failed())
    return files.error();
  auto isTokens = [&](size_t i) {
    return !feeds[i] && (inputRole(inputs[i]) == "ids" || inputRole(inputs[i]) == "labels");
  };
  auto shiftOf = [&](size_t i) {
    return inputRole(inputs[i]) == "labels" && !inputs[i].shifted_in_graph() ? 1 : 0;
  };
  int64_t stride = 0, needed = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputRole(inputs[i]) == "ids")
      stride = std::max(stride, elementsPerRow(inputs[i]));
    if (isTokens(i))
      needed = std::max(needed, elementsPerRow(inputs[i]) + shiftOf(i));
  }
  if (stride == 0)
    return userError("--data " + tokens.front() + ": no input of the model takes token ids (" +
                     namesOf(bundle.summary.inputs()) + "); give NAME=FILE.npy for each");
  auto shards =
      std::make_shared<const TokenShards>(std::move(*files), stride, std::max(needed, stride));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!isTokens(i))
      continue;
    if (inputs[i].role().empty())
      notes.push_back("input '" + inputs[i].name() + "' is assumed to hold " +
                      (inputRole(inputs[i]) == "ids" ? "token ids" : "labels, the next tokens,") +
                      " by its name; " + inputs[i].name() + "=FILE.npy sets its values");
    feeds[i] = std::make_unique<TokenFeed>(inputs[i], shards, shiftOf(i));
  }
  return Status::success();
}

Result<std::unique_ptr<DataSource>> DataSource::open(const Bundle &bundle,
                                                     const std::string &specification,
                                                     std::optional<uint64_t> shuffleSeed,
                                                     std::optional<StoredType> tokenType,
                                                     DataUse use) {
  const std::string flag = use == DataUse::Evaluation ? "evaluation data" : "--data";
  if (const std::optional<std::string> stream = streamOf(specification)) {
    if (use == DataUse::Evaluation || shuffleSeed)
      return userError(flag + " " + specification +
                       ": a stream is training data in its order; "
                       "give files for an evaluation, and remove --shuffle-seed");
    return openStream(bundle, *stream, tokenType);
  }
  auto ofSamples = std::make_unique<std::vector<bundle::GraphInput>>(
      inputsOfSamples(bundle, bundle.summary.inputs()));
  const std::vector<bundle::GraphInput> &inputs = *ofSamples,
                                        unread =
                                            inputsOfSamples(bundle, bundle.summary.unread_inputs());
  std::vector<std::unique_ptr<Feed>> feeds(inputs.size()), ignored(unread.size());
  std::vector<const Feed *> arrays; ///< feeds that read arrays
  std::vector<std::string> notes;
  std::vector<std::string> tokens;

  for (size_t begin = 0; begin <= specification.size();) {
    size_t end = std::min(specification.find(',', begin), specification.size());
    std::string part = specification.substr(begin, end - begin);
    begin = end + 1;
    size_t equals = part.find('=');
    if (equals == std::string::npos) {
      if (part.empty())
        return userError(flag + ": expects files of tokens, or NAME=FILE.npy for each input (" +
                         namesOf(bundle.summary.inputs()) + "), got '" + specification + "'");
      tokens.push_back(part);
      continue;
    }
    std::string name = part.substr(0, equals);
    auto indexIn = [&](const std::vector<bundle::GraphInput> &among) {
      return size_t(
          std::find_if(among.begin(), among.end(),
                       [&](const bundle::GraphInput &input) { return input.name() == name; }) -
          among.begin());
    };
    const size_t index = indexIn(inputs), other = indexIn(unread);
    const bool isRead = index < inputs.size();
    if (!isRead && other == unread.size())
      return userError(
          flag + ": the model has no input '" + name + "'; its inputs are " +
          namesOf(bundle.summary.inputs()) +
          (unread.empty() ? ""
                          : "; not read by the loss: " + namesOf(bundle.summary.unread_inputs())));
    const bundle::GraphInput &input = isRead ? inputs[index] : unread[other];
    std::unique_ptr<Feed> &feed = isRead ? feeds[index] : ignored[other];
    if (feed)
      return userError(flag + ": names an input twice: '" + name +
                       "'; several files of one input are joined by a pattern (part-*.npy)");
    Result<std::vector<ArrayFile>> files = openArrays(input, part.substr(equals + 1));
    if (files.failed())
      return files.error();
    feed = std::make_unique<ArrayFeed>(input, std::move(*files));
    arrays.push_back(feed.get());
    if (!isRead)
      notes.push_back(feed->path() + ": the loss does not read input '" + name +
                      "', or only its shape: the file is not used");
  }

  if (!tokens.empty())
    if (Status status = feedTokens(bundle, inputs, tokens, tokenType, feeds, notes);
        status.failed())
      return status.error();

  uint64_t samples = UINT64_MAX;
  std::string shortest;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!feeds[i])
      return userError(flag + ": nothing feeds input '" + inputs[i].name() + "'; add " +
                       inputs[i].name() + "=FILE.npy");
    if (feeds[i]->samples() < samples) {
      samples = feeds[i]->samples();
      shortest = feeds[i]->path();
    }
  }
  if (Status status = checkSamples(arrays); status.failed())
    return status.error();
  if (inputs.empty())
    return userError("the model has no inputs: there is nothing to train on");
  if (const uint64_t needed = use == DataUse::Evaluation ? 1 : uint64_t(bundle.samples());
      samples < needed)
    return userError(
        shortest + ": holds " + std::to_string(samples) + " samples, one " +
        (needed == 1 ? "evaluation" : "batch") + " needs " + std::to_string(needed) +
        (tokens.empty() ? "" : " (of " + std::to_string(bundle.sequence) + " tokens each)") +
        "; give more data or compile with a smaller --global-batch-size");
  return std::unique_ptr<DataSource>(new FileData(bundle, std::move(ofSamples), std::move(feeds),
                                                  std::move(notes), samples, shuffleSeed));
}
