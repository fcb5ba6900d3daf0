#include "CaseFile.h"

#include <cstring>
#include <fstream>
#include <sstream>

using namespace zorse::conformance;

namespace {

constexpr char kMagic[] = "zorse kernel case 1\n";

/// Writes numbers as in memory, and lists after their lengths. Writer and reader both run on
/// x86-64.
class Writer {
public:
  std::string bytes;
  template <typename T> void number(T value) {
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
  }
  void text(const std::string &value) { list(value); }
  template <typename List> void list(const List &values) {
    number(uint64_t(values.size()));
    bytes.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof values[0]);
  }
};

class Reader {
public:
  explicit Reader(const std::string &bytes, size_t at) : bytes(bytes), at(at) {}
  bool failed = false;
  template <typename T> T number() {
    T value{};
    take(&value, sizeof value);
    return value;
  }
  template <typename List> void list(List &values) {
    const auto count = number<uint64_t>();
    if (failed || count > (bytes.size() - at) / sizeof values[0]) {
      failed = true;
      return;
    }
    values.resize(count);
    take(values.data(), count * sizeof values[0]);
  }

private:
  void take(void *to, size_t count) {
    failed |= count > bytes.size() - at;
    if (failed || count == 0)
      return;
    std::memcpy(to, bytes.data() + at, count);
    at += count;
  }
  const std::string &bytes;
  size_t at;
};

} // namespace

std::string CaseFile::write(const std::string &path) const {
  Writer out;
  out.bytes = kMagic;
  out.text(name);
  out.text(library.SerializeAsString());
  out.text(object);
  out.number(uint64_t(runs.size()));
  for (const CaseRun &run : runs) {
    out.number(run.rows), out.number(run.sampleBase), out.number(run.rngIdBase);
    out.list(run.bytes);
    out.number(uint64_t(run.arguments.size()));
    for (const std::string &argument : run.arguments)
      out.text(argument);
    out.list(run.overwrite);
    out.number(uint64_t(run.results.size()));
    for (const ExpectedResult &result : run.results) {
      out.number(result.argument), out.number(result.offset);
      out.text(result.type);
      out.list(result.middle), out.list(result.error);
    }
  }
  std::ofstream file(path, std::ios::binary);
  file.write(out.bytes.data(), std::streamsize(out.bytes.size()));
  file.close();
  return file.good() ? "" : path + " cannot be written";
}

std::string CaseFile::read(const std::string &path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = all.str();
  if (bytes.rfind(kMagic, 0) != 0)
    return path + " is no case of a kernel";
  Reader in(bytes, sizeof kMagic - 1);
  std::string functions;
  in.list(name), in.list(functions), in.list(object);
  runs.resize(in.failed ? 0 : std::min<uint64_t>(in.number<uint64_t>(), 16));
  for (CaseRun &run : runs) {
    run.rows = in.number<int64_t>(), run.sampleBase = in.number<int64_t>(),
    run.rngIdBase = in.number<uint64_t>();
    in.list(run.bytes);
    run.arguments.resize(std::min<uint64_t>(in.number<uint64_t>(), run.bytes.size()));
    for (std::string &argument : run.arguments)
      in.list(argument);
    in.list(run.overwrite);
    run.results.resize(std::min<uint64_t>(in.number<uint64_t>(), 256));
    for (ExpectedResult &result : run.results) {
      result.argument = in.number<uint32_t>(), result.offset = in.number<uint64_t>();
      in.list(result.type), in.list(result.middle), in.list(result.error);
      in.failed |= result.argument >= run.bytes.size() ||
                   result.middle.size() != result.error.size();
    }
    in.failed |= run.overwrite.size() != run.bytes.size();
  }
  return in.failed || !library.ParseFromString(functions) ? path + " is damaged" : "";
}
