#include "Files.h"

#include <cstring>

using namespace zorse::runtime;

namespace {

constexpr size_t kTokenHeader = 1024;

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

template <typename T> T load(const std::byte *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

} // namespace

Result<TokenFile> TokenFile::open(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (mapped.failed())
    return mapped.error();
  return parse(std::move(*mapped));
}

Result<TokenFile> TokenFile::parse(MappedFile mapped) {
  const std::string path = mapped.path();
  TokenFile file;
  int32_t magic = mapped.size() >= 4 ? load<int32_t>(mapped.data()) : 0;
  if (mapped.size() >= kTokenHeader && (magic == 20240520 || magic == 20240801)) {
    file.type_ = magic == 20240520 ? StoredType::U16 : StoredType::U32;
    file.format_ = "llm.c tokens";
    file.tokens_ = mapped.data() + kTokenHeader;
    uint64_t said = uint64_t(uint32_t(load<int32_t>(mapped.data() + 8)));
    file.count_ = (mapped.size() - kTokenHeader) / bytesOf(file.type_);
    if (said != file.count_ || file.count_ * bytesOf(file.type_) != mapped.size() - kTokenHeader)
      return userError(path + ": its header says " + std::to_string(said) + " tokens, the file holds " + std::to_string(file.count_) + ": it is truncated or damaged");
  } else if (endsWith(path, ".bin")) {
    file.type_ = StoredType::U16;
    file.format_ = "uint16 tokens";
    file.tokens_ = mapped.data();
    file.count_ = mapped.size() / 2;
    if (mapped.size() % 2)
      return userError(path + ": a .bin file without a header is read as uint16 tokens, but has an odd number of bytes (" + std::to_string(mapped.size()) +
                       "); a file with another suffix is read as bytes");
  } else {
    file.format_ = "bytes";
    file.tokens_ = mapped.data();
    file.count_ = mapped.size();
  }
  file.file_ = std::move(mapped);
  return file;
}

int64_t TokenFile::at(uint64_t index) const {
  switch (type_) {
  case StoredType::U16:
    return load<uint16_t>(tokens_ + 2 * index);
  case StoredType::U32:
    return load<uint32_t>(tokens_ + 4 * index);
  default:
    return int64_t(tokens_[index]);
  }
}

Result<ArrayFile> ArrayFile::open(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (mapped.failed())
    return mapped.error();
  return parse(std::move(*mapped));
}

Result<ArrayFile> ArrayFile::parse(MappedFile mapped) {
  const std::string path = mapped.path();
  auto bad = [&](const std::string &what) { return userError(path + ": is not a .npy array: " + what); };
  if (mapped.size() < 10 || std::memcmp(mapped.data(), "\x93NUMPY", 6) != 0)
    return bad("it does not start as one");
  int version = int(mapped.data()[6]);
  size_t start = version == 1 ? 10 : 12;
  if (mapped.size() < start)
    return bad("it ends in its header");
  size_t length = version == 1 ? load<uint16_t>(mapped.data() + 8) : load<uint32_t>(mapped.data() + 8);
  if (length > mapped.size() - start)
    return bad("it ends in its header");
  std::string header(reinterpret_cast<const char *>(mapped.data()) + start, length);

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
  } const types[] = {{"<f8", StoredType::F64}, {"<f4", StoredType::F32}, {"<f2", StoredType::F16}, {"<i8", StoredType::I64}, {"<i4", StoredType::I32},
                     {"<i2", StoredType::I16}, {"|i1", StoredType::I8},  {"<u8", StoredType::U64}, {"<u4", StoredType::U32}, {"<u2", StoredType::U16},
                     {"|u1", StoredType::U8},  {"|b1", StoredType::Bool}};
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
  size_t available = mapped.size() - start - length;
  if (!count || uint64_t(*count) > available / bytesOf(file.type_))
    return bad("its shape needs more bytes than the " + std::to_string(available) + " there are");
  file.data_ = mapped.data() + start + length;
  file.file_ = std::move(mapped);
  return file;
}
