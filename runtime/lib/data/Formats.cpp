#include "Formats.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

using namespace zorse::runtime;

namespace {

const char *const kJson = "JSON";

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

template <typename T> T load(const std::byte *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

} // namespace

Result<std::string> zorse::runtime::otherFormat(const DataFile &file) {
  struct Known {
    const char *what;
    std::vector<std::string> beginnings, suffixes;
  };
  using namespace std::string_literals;
  static const std::vector<Known> known = {
      {"a NumPy array, which belongs to one input (NAME=FILE.npy)", {"\x93NUMPY"}, {".npy"}},
      {"a ZIP archive, as torch.save and numpy.savez write it",
       {"PK\x03\x04", "PK\x05\x06"},
       {".zip", ".pt", ".pth", ".npz", ".ckpt"}},
      {"a safetensors file", {}, {".safetensors"}},
      {"compressed by gzip", {"\x1f\x8b"}, {".gz", ".tgz"}},
      {"compressed by Zstandard", {"\x28\xb5\x2f\xfd"}, {".zst"}},
      {"compressed by xz", {"\xfd\x37zXZ\0"s}, {".xz"}},
      {"compressed by bzip2", {"BZh91AY&SY"}, {".bz2"}},
      {"compressed by LZ4", {"\x04\x22\x4d\x18"}, {".lz4"}},
      {"a Parquet file", {"PAR1"}, {".parquet"}},
      {"an Arrow file", {"ARROW1", "\xff\xff\xff\xff\x10\0\0\0"s}, {".arrow", ".feather"}},
      {"a pickle", {}, {".pkl", ".pickle"}},
      {"a picture",
       {"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "GIF87a", "GIF89a"},
       {".png", ".jpg", ".jpeg", ".gif", ".webp"}},
      {"a PDF file", {"%PDF-"}, {".pdf"}},
      {"a program (ELF)",
       {"\x7f"
        "ELF"},
       {".so"}},
      {"an SQLite database", {"SQLite format 3\0"s}, {".sqlite", ".db"}},
      {"an HDF5 file", {"\x89HDF\r\n\x1a\n"}, {".h5", ".hdf5"}},
      {"an ONNX model", {}, {".onnx"}},
      {kJson, {}, {".json", ".jsonl", ".ndjson"}},
      {"a tar archive", {}, {".tar"}},
  };
  std::string head(size_t(std::min<uint64_t>(file.size(), 512)), '\0'), name = file.path();
  if (Status status = file.read(0, head.data(), head.size()); status.failed())
    return status.error();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  // A nanoGPT .bin may begin with any two bytes. Only magic numbers of at least four bytes count
  // for such a file.
  const size_t shortest = endsWith(name, ".bin") ? 4 : 1;
  for (const Known &each : known) {
    for (const std::string &beginning : each.beginnings)
      if (beginning.size() >= shortest && head.compare(0, beginning.size(), beginning) == 0)
        return std::string(each.what);
    for (const std::string &suffix : each.suffixes)
      if (endsWith(name, suffix))
        return std::string(each.what);
  }
  if (Result<bool> pickle = isPickle(file); pickle.failed() || *pickle)
    return pickle.failed() ? Result<std::string>(pickle.error()) : std::string("a pickle");
  if (head.size() > 262 && head.compare(257, 5, "ustar") == 0)
    return std::string("a tar archive");
  // A length and JSON of that size: safetensors with another suffix.
  if (head.size() > 16 && head[8] == '{' && head[9] == '"' &&
      load<uint64_t>(reinterpret_cast<const std::byte *>(head.data())) <= file.size() - 8)
    return std::string("a safetensors file");
  // Lines of JSON with another suffix.
  if (size_t begin = head.find_first_not_of(" \t\r\n");
      begin != std::string::npos && head.compare(begin, 2, "{\"") == 0 &&
      head.find("\":", begin) != std::string::npos)
    return std::string(kJson);
  return std::string();
}

std::string zorse::runtime::remedyFor(const std::string &format, const std::string &path) {
  return format == kJson
             ? "python3 -m zorse.data " + path +
                   " -o FOLDER makes tokens of lines of JSON (.jsonl; docs/guides/prepare-data.md)"
             : "Convert it to tokens (llm.c's or nanoGPT's .bin) or to plain text";
}
