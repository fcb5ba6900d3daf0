// Reads a bundle: checks the files first (presence, digest, version), then their contents.
#include "HeldFile.h"

#include "zorse/Bundle/Manifest.h"
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/MappedFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <sys/stat.h>
#include <thread>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::json;

namespace {

/// Thrown and caught only in this file.
struct JsonError {
  std::string message;
};

/// Reads an integer. The JSON library would convert real numbers and wrap large ones.
template <typename T> T whole(const json &value, const std::string &what) {
  bool fits =
      value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(std::numeric_limits<T>::max())
      : value.is_number_integer()
          ? std::is_signed_v<T> && value.get<int64_t>() >= int64_t(std::numeric_limits<T>::min())
          : false;
  if (!fits)
    throw JsonError{what + ": expects a whole number" +
                    (std::is_signed_v<T> ? "" : " of at least 0") +
                    (value.is_structured()
                         ? ""
                         : ", got " + value.dump(-1, ' ', false, json::error_handler_t::replace))};
  return value.get<T>();
}

std::vector<int64_t> wholes(const json &list, const std::string &what) {
  std::vector<int64_t> numbers;
  for (const json &number : list)
    numbers.push_back(whole<int64_t>(number, what));
  return numbers;
}

constexpr size_t kMaxDimensions = 64; // of a stored parameter

class Loader {
public:
  using OpenFile = std::function<Result<MappedFile>(const std::string &path)>;

  Loader(const std::string &directory, const OpenFile &open, BundleUse use)
      : open_(open), use_(use) {
    bundle_.directory = directory;
  }

  Result<Bundle> load() {
    Status status = readManifest();
    for (Status (Loader::*step)() :
         {&Loader::readPlain, &Loader::readPrograms, &Loader::readWeights})
      if (status.succeeded() && (use_ == BundleUse::Execute || step != &Loader::readWeights))
        status = (this->*step)();
    if (status.failed())
      return status;
    if (Status check = checkPrograms(bundle_); check.failed())
      return check;
    for (const bundle::Program &program : bundle_.programs)
      for (const bundle::Queue &queue : program.queues())
        if (queue.kind() == bundle::DEVICE_TO_DEVICE && bundle_.hostStaged.empty())
          return userError(path("host_staged") +
                           ": expects programs without direct transfers, as device '" +
                           program.device_name() +
                           "' has some; the bundle is incomplete, compile the model again");
    if (!bundle_.hostStaged.empty()) {
      bundle_.programs.swap(bundle_.hostStaged);
      Status check = checkPrograms(bundle_);
      bundle_.programs.swap(bundle_.hostStaged);
      if (check.failed())
        return userError(check.message() +
                         " (of the programs without direct transfers, in host_staged/)");
    }
    return std::move(bundle_);
  }

private:
  std::string path(const std::string &name) const { return bundle_.directory + "/" + name; }

  Status readManifest() {
    auto read = [&](const std::string &path) -> Result<std::string> {
      Result<MappedFile> file = open_(path);
      if (file.failed())
        return file.error();
      return std::string(reinterpret_cast<const char *>(file->data()), file->size());
    };
    Result<bundle::Manifest> manifest = bundle::readManifest(bundle_.directory, read);
    if (manifest.failed())
      return manifest.error();
    manifest_ = std::move(*manifest);
    bundle_.digest = manifest_.digest;
    bundle_.model = manifest_.model;
    bundle_.precision = manifest_.precision;
    bundle_.batch = manifest_.batch;
    bundle_.sequence = manifest_.sequence;
    for (const bundle::BundleDevice &device : manifest_.devices)
      bundle_.devices.push_back({device.name, device.kind, device.threads, device.memory,
                                 device.target, device.d2dGroup});
    return checkFiles();
  }

  Status readSummary() {
    if (Status status = readMessage("summary.pb", bundle_.summary); status.failed())
      return status;
    bundle_.samplesPerRow = samplesPerRow(bundle_.summary);
    if (bundle_.batch % bundle_.samplesPerRow != 0)
      return userError(bundle_.directory + ": expects a batch that is a multiple of " +
                       std::to_string(bundle_.samplesPerRow) + ", got " +
                       std::to_string(bundle_.batch));
    for (const bundle::GraphInput &input : bundle_.summary.inputs())
      if (bundle_.samplesPerRow > 1 &&
          (input.shape_size() == 0 || input.shape(0) != bundle_.samplesPerRow))
        return userError(bundle_.directory + ": input '" + input.name() + "' expects rows of " +
                         std::to_string(bundle_.samplesPerRow) +
                         " samples: the bundle was damaged. Compile it again");
    bundle_.batch /= bundle_.samplesPerRow;
    return Status::success();
  }

  /// Reads and hashes all files, large ones in parallel: one thread hashes 1 to 2 GB/s.
  Status checkFiles() {
    uint64_t bytes = 0;
    for (const auto &[name, hash] : manifest_.files) {
      HeldFile held{name, hash, {}, {}, {}, {}, {}};
      if (use_ != BundleUse::Execute &&
          (held.isCode() || held.isWeights() || name == "weights.json"))
        continue;
      Result<MappedFile> file = open_(path(name));
      if (file.failed())
        return userError(file.message() + "; the bundle is incomplete, compile the model again");
      bytes += file->size();
      held.mapped = std::make_shared<MappedFile>(std::move(*file));
      files_.push_back(std::move(held));
    }
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i; (i = next++) < files_.size();)
        files_[i].hold();
    };
    constexpr uint64_t kWorthAThread = 16 << 20;
    std::vector<std::thread> threads;
    for (size_t t = 1; t < std::min<size_t>({files_.size(), size_t(bytes / kWorthAThread),
                                             std::thread::hardware_concurrency()});
         ++t)
      threads.emplace_back(work);
    work();
    for (std::thread &thread : threads)
      thread.join();
    for (const HeldFile &file : files_) {
      if (file.status.failed())
        return file.status;
      if (file.found != file.hash)
        return userError(path(file.name) + ": its SHA-256 is " + file.found +
                         ", the manifest says " + file.hash +
                         ": the file was changed or damaged; compile the model again");
      if (file.code)
        bundle_.kernels.add(file.name.substr(sizeof "kernels/" - 1), file.code);
    }
    return Status::success();
  }

  HeldFile *find(const std::string &name) { // sorted like the manifest's map
    auto found = std::lower_bound(
        files_.begin(), files_.end(), name,
        [](const HeldFile &file, const std::string &name) { return file.name < name; });
    return found == files_.end() || found->name != name ? nullptr : &*found;
  }

  /// Returns the bytes of a listed file. They can be read only once.
  Result<std::string> take(const std::string &name) {
    HeldFile *file = find(name);
    if (!file)
      return userError(path("manifest.json") + ": does not list " + name +
                       "; compile the model again");
    return std::move(file->bytes);
  }

  template <typename Message> Status readMessage(const std::string &name, Message &message) {
    Result<std::string> bytes = take(name);
    if (bytes.failed())
      return bytes.error();
    if (bytes->size() > size_t(INT32_MAX) ||
        !message.ParseFromArray(bytes->data(), static_cast<int>(bytes->size())))
      return userError(path(name) + ": cannot be decoded; compile the model again");
    // Programs are verified against the others, every field of them, and are large.
    if (name.rfind("programs/", 0) != 0 && name.rfind("host_staged/", 0) != 0 &&
        !bundle::knownFieldsOnly(message))
      return userError(path(name) +
                       ": holds fields that this version does not know; compile the model again");
    return Status::success();
  }

  Status readText(const std::string &name, std::string &text) {
    Result<std::string> bytes = take(name);
    if (bytes.failed())
      return bytes.error();
    text = std::move(*bytes);
    return Status::success();
  }

  Status readPlain() {
    if (Status status = readText("plan.json", bundle_.plan); status.failed())
      return status;
    if (manifest_.files.count("cluster.yaml"))
      if (Status status = readText("cluster.yaml", bundle_.cluster); status.failed())
        return status;
    if (Status status = readSummary(); status.failed())
      return status;
    if (std::string problem = bundle::contradiction(manifest_, bundle_.plan, bundle_.summary);
        !problem.empty())
      return userError(bundle_.directory + ": " + problem);
    if (Status status = readTargets(); status.failed())
      return status;
    if (manifest_.files.count("topology.pb"))
      if (Status status = readTopology(); status.failed())
        return status;
    return Status::success();
  }

  /// Reads a function library for each target. All of them have the same functions with the same
  /// arguments.
  Status readTargets() {
    uint32_t count = 1;
    for (const BundleDevice &device : bundle_.devices)
      count = std::max(count, device.target + 1);
    while (manifest_.files.count(bundle::functionsFile(count))) // target of the host if all devices
                                                                // are GPUs
      ++count;
    bundle_.otherTargets.resize(count - 1);
    for (uint32_t target = 0; target < count; ++target) {
      const std::string file = bundle::functionsFile(target);
      bundle::FunctionLibrary &functions = target == 0 ? bundle_.functions
                                                       : bundle_.otherTargets[target - 1];
      if (Status status = readMessage(file, functions); status.failed())
        return status;
      if (std::string problem = bundle::differentArguments(bundle_.functions, functions);
          !problem.empty())
        return userError(path(file) + ": " + problem + "; compile the model again");
      for (const std::string &object : functions.objects())
        if (std::string name = "kernels/" + functions.arch() + "/" + object;
            !manifest_.files.count(name))
          return userError(path("manifest.json") + ": does not list " + name +
                           ", which the functions need; compile the model again");
    }
    return Status::success();
  }

  Status readTopology() {
    bundle::Topology &t = bundle_.topology;
    if (Status status = readMessage("topology.pb", t); status.failed())
      return status;
    std::string problem;
    auto link = [&](const bundle::LinkSpec &l) {
      for (double value :
           {l.bandwidth(), l.latency(), l.per_flow_bandwidth(), l.half_bandwidth_bytes()})
        if (!std::isfinite(value) || value < 0)
          problem = "a link has a bandwidth or latency that is not a number of at least 0";
    };
    auto site = [&](uint32_t s) {
      if (s >= uint32_t(t.sites_size()))
        problem = "site " + std::to_string(s) + " of " + std::to_string(t.sites_size()) +
                  " does not exist";
    };
    for (const auto &node : t.nodes()) {
      site(node.site());
      link(node.port());
      link(node.bus());
      link(node.nic());
    }
    for (const auto &s : t.sites()) {
      link(s.fabric());
      link(s.uplink());
    }
    link(t.between_sites());
    for (const auto &pair : t.site_pairs()) {
      site(pair.a());
      site(pair.b());
      link(pair.link());
    }
    for (uint32_t node : t.node_of_device())
      if (node >= uint32_t(t.nodes_size()))
        problem = "node " + std::to_string(node) + " of " + std::to_string(t.nodes_size()) +
                  " does not exist";
    for (const auto &moving : t.cpu_communication_costs())
      for (double value : {moving.per_byte(), moving.per_message(), moving.delay()})
        if (!std::isfinite(value) || value < 0)
          problem = "the cost of moving data is not a number of at least 0 on some device";
    if (t.cpu_communication_costs_size() != 0 &&
        t.cpu_communication_costs_size() != int(bundle_.devices.size()))
      problem = "it has the cost of moving data of " +
                std::to_string(t.cpu_communication_costs_size()) + " devices, the manifest names " +
                std::to_string(bundle_.devices.size());
    if (t.direct_group_of_device_size() != 0 &&
        t.direct_group_of_device_size() != int(bundle_.devices.size()))
      problem = "it has the direct groups of " + std::to_string(t.direct_group_of_device_size()) +
                " devices, the manifest names " + std::to_string(bundle_.devices.size());
    if (t.node_of_device_size() != int(bundle_.devices.size()))
      problem = "it assigns nodes to " + std::to_string(t.node_of_device_size()) +
                " devices, the manifest names " + std::to_string(bundle_.devices.size());
    return problem.empty() ? Status::success()
                           : Status(userError(path("topology.pb") + ": " + problem +
                                              "; compile the model again"));
  }

  Status readPrograms() {
    bundle_.programs.resize(bundle_.devices.size());
    for (size_t i = 0; i < bundle_.devices.size(); ++i)
      if (Status status = readMessage(bundle::programFile(uint32_t(i)), bundle_.programs[i]);
          status.failed())
        return status;
    if (!manifest_.files.count(bundle::stagedFile(0)))
      return Status::success();
    bundle_.hostStaged.resize(bundle_.devices.size());
    for (size_t i = 0; i < bundle_.devices.size(); ++i)
      if (Status status = readMessage(bundle::stagedFile(uint32_t(i)), bundle_.hostStaged[i]);
          status.failed())
        return status;
    return Status::success();
  }

  Status readWeights() {
    std::string text, name = path("weights.json");
    if (Status status = readText("weights.json", text); status.failed())
      return status;
    std::map<std::string, WeightSource> sources;
    auto badHub = [&](const std::string &parameter, const std::string &what) {
      return userError(name + ": " + (parameter.empty() ? "" : "'" + parameter + "': ") + what +
                       "; compile the model again");
    };
    try {
      json weights = json::parse(text);
      if (weights.contains("hub"))
        if (Status status = bundle::fromJson(weights["hub"], bundle_.hub); status.failed())
          return badHub("", status.message());
      // `references` is one explicit option for all weights. A changed instruction in a bundle from
      // another machine can therefore not name a file of this machine.
      const bool references = weights.at("references").get<bool>();
      for (const json &entry : weights.at("parameters")) {
        WeightSource source;
        source.name = entry.at("name");
        source.file = entry.at("file");
        source.offset = whole<uint64_t>(entry.at("offset"), "offset");
        source.bytes = whole<uint64_t>(entry.at("bytes"), "bytes");
        source.type = entry.at("type");
        if (entry.contains("shape"))
          source.shape = wholes(entry.at("shape"), "shape");
        if (entry.contains("permutation"))
          source.permutation = wholes(entry.at("permutation"), "permutation");
        if (entry.contains("hub"))
          if (Status status = bundle::fromJson(entry["hub"], source.hub); status.failed())
            return badHub(source.name, status.message());
        if (source.shape.size() > kMaxDimensions || source.permutation.size() > kMaxDimensions)
          return userError(
              name + ": '" + source.name + "': expects at most " + std::to_string(kMaxDimensions) +
              " dimensions, got " +
              std::to_string(std::max(source.shape.size(), source.permutation.size())));
        if (source.file.empty() || source.file[0] != '/') {
          if (!manifest_.files.count(source.file))
            return userError(name + ": '" + source.name + "' is in '" + source.file +
                             "', which is no file of the bundle: weights outside it are named by "
                             "absolute paths, in bundles made with --weights=reference");
          if (const HeldFile *file = find(source.file))
            source.contents = file->mapped;
          source.file = path(source.file);
        } else if (!references) {
          return userError(name + ": '" + source.name + "' is in " + source.file +
                           ", outside the bundle, which was not made with references to the "
                           "model's files (--weights=reference): its weights were "
                           "changed; compile the model again");
        }
        sources[source.name] = source;
      }
    } catch (const json::exception &exception) {
      return userError(name + ": is not the weights list of a bundle: " + exception.what());
    } catch (const JsonError &error) {
      return userError(name + ": " + error.message);
    }
    for (const bundle::ParameterInfo &parameter : bundle_.summary.parameters()) {
      auto found = sources.find(parameter.has_shard() ? parameter.shard().of() : parameter.name());
      if (found == sources.end())
        return userError(name + ": has no bytes for parameter '" + parameter.name() + "'");
      bundle_.weights.push_back(found->second);
    }
    return Status::success();
  }

  const OpenFile &open_;
  BundleUse use_;
  Bundle bundle_;
  bundle::Manifest manifest_;
  std::vector<HeldFile> files_;
};

} // namespace

Result<Bundle> zorse::runtime::loadBundle(const std::string &directory, BundleUse use) {
  std::string clean = directory;
  while (clean.size() > 1 && clean.back() == '/')
    clean.pop_back();
  struct stat info = {};
  if (::stat(clean.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return userError(clean + ": expects a bundle, a directory that zorse-compile wrote");
  return loadBundle(clean, MappedFile::open, use);
}

Result<Bundle>
zorse::runtime::loadBundle(const std::string &directory,
                           const std::function<Result<MappedFile>(const std::string &path)> &open,
                           BundleUse use) {
  return Loader(directory, open, use).load();
}
