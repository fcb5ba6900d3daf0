#include "HubDirectory.h"

#include "zorse/Bundle/OutputDirectory.h"
#include "zorse/Support/ShallowJson.h"
#include "zorse/runtime/MappedFile.h"
#include "zorse/runtime/OutputFile.h"

#include <algorithm>
#include <filesystem>
#include <set>

using namespace zorse;
using namespace zorse::exporting;
using namespace zorse::runtime;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

bool isCompanion(const std::string &name) {
  static const std::set<std::string> kinds{".json", ".txt", ".model", ".jinja", ".py"};
  const std::string index = ".index.json";
  bool isIndex = name.size() >= index.size() &&
                 name.compare(name.size() - index.size(), index.size(), index) == 0;
  return !isIndex && name[0] != '.' &&
         (kinds.count(fs::path(name).extension().string()) || name.rfind("LICENSE", 0) == 0);
}

const char *torchName(StoredType type) {
  switch (type) {
  case StoredType::F64:
    return "float64";
  case StoredType::F16:
    return "float16";
  case StoredType::BF16:
    return "bfloat16";
  default:
    return "float32";
  }
}

/// \param type  type of the weights to write into the configuration
Status copyCompanion(const std::string &from, const std::string &to,
                     std::optional<StoredType> type) {
  std::error_code failure;
  if (!type)
    return fs::copy_file(from, to, failure) && !failure
               ? Status::success()
               : Status(userError(from + ": cannot be copied: " + failure.message()));
  Result<ordered_json> config = readJson(from);
  if (config.failed())
    return config.error();
  for (const char *key : {"dtype", "torch_dtype"})
    if (config->is_object() && config->contains(key))
      (*config)[key] = torchName(*type);
  return writeJson(to, *config);
}

} // namespace

Status zorse::exporting::writeDirectory(const std::string &output,
                                        const std::function<Status(const std::string &)> &write) {
  Result<bundle::OutputDirectory> directory = bundle::OutputDirectory::create(output, nullptr);
  if (directory.failed())
    return directory.error();
  if (Status status = write(directory->path()); status.failed())
    return status;
  return directory->commit();
}

Status zorse::exporting::copyCompanions(const std::string &from, const std::string &to,
                                        std::optional<StoredType> type) {
  std::error_code failure;
  std::set<std::string> names;
  for (fs::directory_iterator each(from, failure), end; !failure && each != end;
       each.increment(failure))
    if (std::string name = each->path().filename().string();
        isCompanion(name) && fs::is_regular_file(each->path(), failure))
      names.insert(name);
  if (failure)
    return userError(from + ": cannot be read: " + failure.message());
  for (const std::string &name : names)
    if (Status status = copyCompanion((fs::path(from) / name).string(),
                                      (fs::path(to) / name).string(),
                                      name == "config.json" ? type : std::nullopt);
        status.failed())
      return status;
  return Status::success();
}

Status zorse::exporting::writeJson(const std::string &path, const ordered_json &json) {
  return writeOutput(path, json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

Result<ordered_json> zorse::exporting::readJson(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (file.failed())
    return file.error();
  const char *text = reinterpret_cast<const char *>(file->data());
  ordered_json json = zorse::parseShallow<ordered_json>(text, file->size(), 65);
  if (json.is_discarded())
    return userError(path + ": is not JSON");
  return json;
}
