// Every line of the pipe is a value of --data. It is opened as any data are, so that shapes, types
// and ranges are checked, and must have the samples of one step.
#include "StreamData.h"

#include "zorse/runtime/FileDescriptor.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

using namespace zorse::runtime;

namespace {

class StreamData final : public DataSource {
public:
  StreamData(const Bundle &bundle, std::string path, FileDescriptor pipe,
             std::optional<StoredType> tokenType)
      : bundle_(bundle), path_(std::move(path)), pipe_(std::move(pipe)), tokenType_(tokenType) {}

  uint64_t samplesPerEpoch() const override { return 0; }
  bool isStream() const override { return true; }
  std::vector<std::string> description() const override {
    return {path_ + ": a stream, one line per step"};
  }

  Result<bool> awaitBatch() override {
    if (batch_)
      return true;
    Result<bool> read = readLine();
    if (read.failed() || !*read)
      return read;
    Result<std::unique_ptr<DataSource>> step =
        DataSource::open(bundle_, line_, std::nullopt, tokenType_, DataUse::Training);
    if (step.failed())
      return step.error();
    if ((*step)->isStream() || (*step)->samplesPerEpoch() != uint64_t(bundle_.samples()))
      return userError(path_ + ": line " + std::to_string(lines_) + ", '" + line_ + "', has " +
                       std::to_string((*step)->samplesPerEpoch()) +
                       " samples, expected those of one step, " +
                       std::to_string(bundle_.samples()));
    Result<std::shared_ptr<const Batch>> batch = (*step)->batchFrom(0);
    if (batch.failed())
      return batch.error();
    batch_ = std::move(*batch);
    return true;
  }

  Result<std::shared_ptr<const Batch>> batchOf(uint64_t, uint64_t, uint64_t) override {
    Result<bool> here = awaitBatch();
    if (here.failed())
      return here.error();
    if (!*here)
      return userError(path_ + ": the stream has ended");
    line_.clear();
    return std::move(batch_);
  }

private:
  /// Reads the next line that is not empty. Returns false at the end.
  Result<bool> readLine() {
    for (;;) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        line_ = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        ++lines_;
        if (!line_.empty())
          return true;
        continue;
      }
      char bytes[4096];
      const ssize_t count = ::read(pipe_.get(), bytes, sizeof bytes);
      if (count > 0)
        buffer_.append(bytes, size_t(count));
      else if (count == 0)
        return false;
      else if (errno != EINTR)
        return userError(path_ + ": cannot read the stream: " + std::strerror(errno));
    }
  }

  const Bundle &bundle_;
  const std::string path_;
  const FileDescriptor pipe_;
  const std::optional<StoredType> tokenType_;
  std::string buffer_, line_; ///< read; the line of the next batch, or empty
  uint64_t lines_ = 0;
  std::shared_ptr<const Batch> batch_; ///< of `line_`
};

} // namespace

std::optional<std::string> zorse::runtime::streamOf(const std::string &specification) {
  const std::string prefix = "stream:";
  if (specification.compare(0, prefix.size(), prefix) != 0)
    return std::nullopt;
  return specification.substr(prefix.size());
}

Result<std::unique_ptr<DataSource>>
zorse::runtime::openStream(const Bundle &bundle, const std::string &path,
                           std::optional<StoredType> tokenType) {
  FileDescriptor pipe(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (pipe.get() < 0)
    return userError("--data stream:" + path + ": cannot open it: " + std::strerror(errno));
  return std::unique_ptr<DataSource>(
      std::make_unique<StreamData>(bundle, path, std::move(pipe), tokenType));
}
