#include "Files.h"

#include "zorse/runtime/Data.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <glob.h>

using namespace zorse::runtime;

namespace {

constexpr size_t kTokenHeader = 1024, kLongestHeader = 1 << 20;

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

template <typename T> T load(const std::byte *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

const std::string kAsBytes = "bytes:";

/// "a Parquet file", of what is known to be neither text nor tokens by how it begins or is called; empty: nothing of that kind.
Result<std::string> otherFormat(const DataFile &file) {
  struct Known {
    const char *what;
    std::vector<std::string> beginnings, suffixes;
  };
  using namespace std::string_literals;
  static const std::vector<Known> known = {
      {"a NumPy array, which belongs to one input (NAME=FILE.npy)", {"\x93NUMPY"}, {".npy"}},
      {"a ZIP archive, as torch.save and numpy.savez write it", {"PK\x03\x04", "PK\x05\x06"}, {".zip", ".pt", ".pth", ".npz", ".ckpt"}},
      {"a safetensors file", {}, {".safetensors"}},
      {"compressed by gzip", {"\x1f\x8b"}, {".gz", ".tgz"}},
      {"compressed by Zstandard", {"\x28\xb5\x2f\xfd"}, {".zst"}},
      {"compressed by xz", {"\xfd\x37zXZ\0"s}, {".xz"}},
      {"compressed by bzip2", {"BZh91AY&SY"}, {".bz2"}},
      {"compressed by LZ4", {"\x04\x22\x4d\x18"}, {".lz4"}},
      {"a Parquet file", {"PAR1"}, {".parquet"}},
      {"an Arrow file", {"ARROW1", "\xff\xff\xff\xff\x10\0\0\0"s}, {".arrow", ".feather"}},
      {"a pickle",
       {"\x80\x02}", "\x80\x02]",
        "\x80\x02"
        "c",
        "\x80\x03", "\x80\x04\x95", "\x80\x05\x95"},
       {".pkl", ".pickle"}},
      {"a picture", {"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "GIF87a", "GIF89a"}, {".png", ".jpg", ".jpeg", ".gif", ".webp"}},
      {"a PDF file", {"%PDF-"}, {".pdf"}},
      {"a program (ELF)",
       {"\x7f"
        "ELF"},
       {".so"}},
      {"an SQLite database", {"SQLite format 3\0"s}, {".sqlite", ".db"}},
      {"an HDF5 file", {"\x89HDF\r\n\x1a\n"}, {".h5", ".hdf5"}},
      {"an ONNX model", {}, {".onnx"}},
      {"JSON", {}, {".json", ".jsonl", ".ndjson"}},
      {"a tar archive", {}, {".tar"}},
  };
  std::string head(size_t(std::min<uint64_t>(file.size(), 512)), '\0'), name = file.path();
  if (Status status = file.read(0, head.data(), head.size()); status.failed())
    return status.error();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  // Tokens of nanoGPT's .bin may begin with any two bytes: of such a file a beginning counts from four bytes on.
  const size_t shortest = endsWith(name, ".bin") ? 4 : 1;
  for (const Known &each : known) {
    for (const std::string &beginning : each.beginnings)
      if (beginning.size() >= shortest && head.compare(0, beginning.size(), beginning) == 0)
        return std::string(each.what);
    for (const std::string &suffix : each.suffixes)
      if (endsWith(name, suffix))
        return std::string(each.what);
  }
  if (head.size() > 262 && head.compare(257, 5, "ustar") == 0)
    return std::string("a tar archive");
  // A length, and that much JSON: safetensors under another name.
  if (head.size() > 16 && head[8] == '{' && head[9] == '"' && load<uint64_t>(reinterpret_cast<const std::byte *>(head.data())) <= file.size() - 8)
    return std::string("a safetensors file");
  // Lines of JSON under another name.
  if (size_t begin = head.find_first_not_of(" \t\r\n");
      begin != std::string::npos && head.compare(begin, 2, "{\"") == 0 && head.find("\":", begin) != std::string::npos)
    return std::string("JSON");
  return std::string();
}

} // namespace

Result<std::vector<std::string>> zorse::runtime::filesOf(const std::string &path) {
  std::error_code ignored;
  if (path.find_first_of("*?[") == std::string::npos || std::filesystem::exists(path, ignored))
    return std::vector<std::string>{path};
  glob_t found = {};
  int failed = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + (failed ? 0 : found.gl_pathc));
  ::globfree(&found);
  if (files.empty())
    return userError(path + ": expects files of names that match, found none");
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> zorse::runtime::dataFiles(const std::string &specification) {
  std::vector<std::string> all;
  std::istringstream parts(specification);
  for (std::string part; std::getline(parts, part, ',');) {
    size_t equals = part.find('=');
    std::string path = equals == std::string::npos ? withoutBytes(part) : part.substr(equals + 1);
    Result<std::vector<std::string>> files = filesOf(path);
    if (files.failed())
      all.push_back(path);
    else
      all.insert(all.end(), files->begin(), files->end());
  }
  return all;
}

std::string zorse::runtime::withoutBytes(const std::string &path) { return path.rfind(kAsBytes, 0) == 0 ? path.substr(kAsBytes.size()) : path; }

Result<TokenFile> TokenFile::open(const std::string &path) {
  Result<DataFile> opened = DataFile::open(withoutBytes(path));
  if (opened.failed())
    return opened.error();
  return parse(std::move(*opened), withoutBytes(path) != path);
}

Result<TokenFile> TokenFile::parse(DataFile opened, bool asBytes) {
  const std::string path = opened.path();
  TokenFile file;
  if (asBytes) {
    file.format_ = "bytes";
    file.count_ = opened.size();
    file.file_ = std::move(opened);
    return file;
  }
  int32_t head[3] = {}; // magic number, version, tokens
  if (opened.size() >= kTokenHeader)
    if (Status status = opened.read(0, head, sizeof head); status.failed())
      return status.error();
  if (head[0] == 20240520 || head[0] == 20240801) {
    file.type_ = head[0] == 20240520 ? StoredType::U16 : StoredType::U32;
    file.format_ = "llm.c tokens";
    file.start_ = kTokenHeader;
    uint64_t said = uint64_t(uint32_t(head[2]));
    file.count_ = (opened.size() - kTokenHeader) / bytesOf(file.type_);
    if (said != file.count_ || file.count_ * bytesOf(file.type_) != opened.size() - kTokenHeader)
      return userError(path + ": its header says " + std::to_string(said) + " tokens, the file holds " + std::to_string(file.count_) +
                       ": it is truncated or damaged");
  } else if (Result<std::string> other = otherFormat(opened); other.failed() || !other->empty()) {
    return other.failed() ? other.error()
                          : userError(path + ": expected text or tokens, found " + *other +
                                      ": the model would learn the bytes of that format. Convert it to tokens (llm.c's or "
                                      "nanoGPT's .bin) or to plain text, or give bytes:" +
                                      path + " to train on its bytes all the same");
  } else if (endsWith(path, ".bin")) {
    file.type_ = StoredType::U16;
    file.format_ = "uint16 tokens";
    file.count_ = opened.size() / 2;
    if (opened.size() % 2)
      return userError(path + ": a .bin file without a header is read as uint16 tokens, but has an odd number of bytes (" +
                       std::to_string(opened.size()) + "); a file with another suffix is read as bytes");
  } else {
    file.format_ = "bytes";
    file.count_ = opened.size();
  }
  file.file_ = std::move(opened);
  return file;
}

Status TokenFile::read(uint64_t first, uint64_t count, int64_t *tokens) const {
  std::vector<std::byte> bytes(count * bytesOf(type_));
  if (Status status = file_.read(start_ + first * bytesOf(type_), bytes.data(), bytes.size()); status.failed())
    return status;
  convertElements(bytes.data(), type_, tokens, StoredType::I64, int64_t(count));
  return Status::success();
}

Result<ArrayFile> ArrayFile::open(const std::string &path) {
  Result<DataFile> opened = DataFile::open(path);
  if (opened.failed())
    return opened.error();
  return parse(std::move(*opened));
}

Result<ArrayFile> ArrayFile::parse(DataFile opened) {
  const std::string path = opened.path();
  auto bad = [&](const std::string &what) { return userError(path + ": is not a .npy array: " + what); };
  std::vector<std::byte> head(size_t(std::min<uint64_t>(opened.size(), 12)));
  if (Status status = opened.read(0, head.data(), head.size()); status.failed())
    return status.error();
  if (head.size() < 10 || std::memcmp(head.data(), "\x93NUMPY", 6) != 0)
    return bad("it does not start as one");
  int version = int(head[6]);
  size_t start = version == 1 ? 10 : 12;
  if (head.size() < start)
    return bad("it ends in its header");
  size_t length = version == 1 ? load<uint16_t>(head.data() + 8) : load<uint32_t>(head.data() + 8);
  if (length > opened.size() - start)
    return bad("it ends in its header");
  if (length > kLongestHeader)
    return bad("its header has " + std::to_string(length) + " bytes");
  std::string header(length, ' ');
  if (Status status = opened.read(start, header.data(), length); status.failed())
    return status.error();

  // {'descr': '<i8', 'fortran_order': False, 'shape': (4, 16), }
  auto valueOf = [&](const std::string &key) {
    size_t at = header.find("'" + key + "'");
    at = at == std::string::npos ? at : header.find(':', at);
    at = at == std::string::npos ? at : header.find_first_not_of(' ', at + 1);
    return at == std::string::npos ? std::string() : header.substr(at);
  };
  ArrayFile file;
  std::string descr = valueOf("descr");
  if (descr.size() < 5 || descr[0] != '\'')
    return bad("its header has no simple 'descr'");
  descr = descr.substr(1, descr.find('\'', 1) - 1);
  struct {
    const char *name;
    StoredType type;
  } const types[] = {{"<f8", StoredType::F64}, {"<f4", StoredType::F32}, {"<f2", StoredType::F16}, {"<i8", StoredType::I64},
                     {"<i4", StoredType::I32}, {"<i2", StoredType::I16}, {"|i1", StoredType::I8},  {"<u8", StoredType::U64},
                     {"<u4", StoredType::U32}, {"<u2", StoredType::U16}, {"|u1", StoredType::U8},  {"|b1", StoredType::Bool}};
  bool known = false;
  for (const auto &type : types)
    if (descr == type.name) {
      file.type_ = type.type;
      known = true;
    }
  if (!known)
    return bad("numbers of type '" + descr + "' are not supported");
  if (valueOf("fortran_order").rfind("False", 0) != 0)
    return userError(path + ": expects an array in C order; save it with numpy.ascontiguousarray");
  std::string shape = valueOf("shape");
  if (shape.empty() || shape[0] != '(')
    return bad("its header has no 'shape'");
  for (size_t at = 1; at < shape.size() && shape[at] != ')';) {
    if (shape[at] == ' ' || shape[at] == ',') {
      ++at;
      continue;
    }
    int64_t dimension = 0;
    size_t digits = 0;
    for (; at < shape.size() && shape[at] >= '0' && shape[at] <= '9' && digits < 18; ++at, ++digits)
      dimension = dimension * 10 + (shape[at] - '0');
    if (digits == 0)
      return bad("its 'shape' cannot be read");
    file.shape_.push_back(dimension);
  }
  std::optional<int64_t> count = elementCount(file.shape_);
  uint64_t available = opened.size() - start - length;
  if (!count || uint64_t(*count) > available / bytesOf(file.type_))
    return bad("its shape needs more bytes than the " + std::to_string(available) + " there are");
  file.start_ = start + length;
  file.file_ = std::move(opened);
  return file;
}
