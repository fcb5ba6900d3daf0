#include "Files.h"

#include "Formats.h"
#include "TokenTypes.h"

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

std::string zorse::runtime::withoutBytes(const std::string &path) {
  return path.rfind(kAsBytes, 0) == 0 ? path.substr(kAsBytes.size()) : path;
}

Result<TokenFile> TokenFile::open(const std::string &path, const TokenReading &reading) {
  Result<DataFile> opened = DataFile::open(withoutBytes(path));
  if (opened.failed())
    return opened.error();
  TokenReading mine = reading;
  if (withoutBytes(path) != path)
    mine.type = StoredType::U8;
  return parse(std::move(*opened), mine);
}

namespace {

/// The type of the numbers in a file without a header; U8: its bytes.
Result<StoredType> typeWithoutHeader(const DataFile &file, const TokenReading &reading) {
  const std::string &path = file.path();
  if (reading.type) {
    if (file.size() % bytesOf(*reading.type))
      return userError(path + ": --data-type says " + tokenTypeName(*reading.type) +
                       " tokens, but the file has " + std::to_string(file.size()) +
                       " bytes, no multiple of " + std::to_string(bytesOf(*reading.type)));
    return *reading.type;
  }
  Result<std::string> other = otherFormat(file);
  if (other.failed())
    return other.error();
  if (!other->empty())
    return userError(path + ": expected text or tokens, found " + *other +
                     ": the model would learn the bytes of that format. " +
                     remedyFor(*other, path) + ", or give bytes:" + path +
                     " to train on its bytes");
  if (endsWith(path, ".bin")) {
    if (file.size() % 2)
      return userError(path +
                       ": a .bin file without a header is read as uint16 tokens or wider ones, but "
                       "has an odd number of bytes (" +
                       std::to_string(file.size()) +
                       "); a file with another suffix is read as bytes, and so is this one with "
                       "--data-type=uint8");
    return tokenTypeOf(file, reading.vocabulary);
  }
  if (!bytesAreTokens(reading.vocabulary))
    return userError(
        path + ": expected token ids below " + std::to_string(reading.vocabulary) +
        ", found a text, whose bytes are no tokens of this model. python3 -m zorse.data " + path +
        " -o FOLDER --tokenizer TOKENIZER makes tokens of it; bytes:" + path +
        " trains on its bytes, and --data-type sets "
        "the type of other files without a header");
  return StoredType::U8;
}

const char *formatOf(StoredType type) {
  switch (type) {
  case StoredType::U16:
    return "uint16 tokens";
  case StoredType::U32:
    return "uint32 tokens";
  case StoredType::I32:
    return "int32 tokens";
  case StoredType::I64:
    return "int64 tokens";
  default:
    return "bytes";
  }
}

} // namespace

Result<TokenFile> TokenFile::parse(DataFile opened, const TokenReading &reading) {
  const std::string path = opened.path();
  TokenFile file;
  int32_t head[3] = {}; // magic number, version, tokens
  const bool asBytes = reading.type == StoredType::U8;
  if (opened.size() >= kTokenHeader && !asBytes)
    if (Status status = opened.read(0, head, sizeof head); status.failed())
      return status.error();
  if (head[0] == 20240520 || head[0] == 20240801) {
    file.type_ = head[0] == 20240520 ? StoredType::U16 : StoredType::U32;
    file.format_ = "llm.c tokens";
    file.start_ = kTokenHeader;
    uint64_t said = uint64_t(uint32_t(head[2]));
    file.count_ = (opened.size() - kTokenHeader) / bytesOf(file.type_);
    if (said != file.count_ || file.count_ * bytesOf(file.type_) != opened.size() - kTokenHeader)
      return userError(path + ": its header says " + std::to_string(said) +
                       " tokens, the file holds " + std::to_string(file.count_) +
                       ": it is truncated or damaged");
    if (reading.type && bytesOf(*reading.type) != bytesOf(file.type_))
      return userError(path + ": its header says " + tokenTypeName(file.type_) +
                       " tokens, and --data-type says " + tokenTypeName(*reading.type) +
                       "; leave the option out, which is for files without a header");
  } else {
    Result<StoredType> type = typeWithoutHeader(opened, reading);
    if (type.failed())
      return type.error();
    file.type_ = *type;
    file.format_ = formatOf(*type);
    file.count_ = opened.size() / bytesOf(*type);
  }
  file.file_ = std::move(opened);
  return file;
}

Status TokenFile::read(uint64_t first, uint64_t count, int64_t *tokens) const {
  std::vector<std::byte> bytes(count * bytesOf(type_));
  if (Status status = file_.read(start_ + first * bytesOf(type_), bytes.data(), bytes.size());
      status.failed())
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
  auto bad = [&](const std::string &what) {
    return userError(path + ": is not a .npy array: " + what);
  };
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
  } const types[] = {{"<f8", StoredType::F64}, {"<f4", StoredType::F32}, {"<f2", StoredType::F16},
                     {"<i8", StoredType::I64}, {"<i4", StoredType::I32}, {"<i2", StoredType::I16},
                     {"|i1", StoredType::I8},  {"<u8", StoredType::U64}, {"<u4", StoredType::U32},
                     {"<u2", StoredType::U16}, {"|u1", StoredType::U8},  {"|b1", StoredType::Bool}};
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
