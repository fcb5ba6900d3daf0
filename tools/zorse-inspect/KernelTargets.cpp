// Selects the code that a question about kernels refers to, and the GPU that is assumed to run it.
#include "KernelTable.h"

#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Planning/Cluster.h"

namespace zorse::inspect {

namespace {

bool isPtx(const std::string &arch) { return arch.rfind("sm_", 0) == 0; }

/// Returns the functions of target 0, 1, ...
const bundle::FunctionLibrary &targetOf(const bundle::BundleView &bundle, size_t target) {
  return target == 0 ? bundle.functions : bundle.otherTargets[target - 1];
}

/// Finds the type of a device in the bundle's cluster file, with the bandwidth given there.
bool describedType(const bundle::BundleView &bundle, const std::string &device,
                   KernelTable &table) {
  Result<std::string> text = bundle.read(bundle.directory + "/cluster.yaml");
  if (text.failed())
    return false;
  Result<planning::Cluster> cluster = planning::readCluster(*text);
  if (cluster.failed())
    return false;
  for (const planning::ClusterDevice &known : cluster->devices)
    if (known.name == device && planning::findDeviceType(known.type) && known.memoryBandwidth > 0) {
      table.gpu = known.type;
      table.bandwidth = known.memoryBandwidth;
      return true;
    }
  return false;
}

Status chooseGpu(const bundle::BundleView &bundle, const std::string &asked, KernelTable &table) {
  const std::string &arch = table.target->arch();
  std::string names;
  for (const planning::DeviceType &type : planning::deviceTypes())
    if (arch == type.arch)
      names += (names.empty() ? "" : ", ") + std::string(type.name);
  if (!asked.empty()) {
    const planning::DeviceType *type = planning::findDeviceType(asked);
    if (!type || arch != type->arch)
      return userError("--gpu: expected a known GPU type of " + arch + ", got '" + asked + "'" +
                       (type && *type->arch ? ", which is " : "") + (type ? type->arch : "") +
                       ". Types of " + arch + ": " + names +
                       ". Select other kernels with --arch or --device");
    table.gpu = type->name;
    table.bandwidth = type->memoryBandwidth;
    return Status::success();
  }
  for (int device : table.devices)
    if (describedType(bundle, bundle.devices[size_t(device)].name, table))
      return Status::success();
  for (const planning::DeviceType &type : planning::deviceTypes())
    if (arch == type.arch) {
      table.gpu = type.name;
      table.bandwidth = type.memoryBandwidth;
      return Status::success();
    }
  return userError(bundle.directory + ": contains code for " + arch +
                   ", for which no GPU type is known; select another architecture with --arch");
}

} // namespace

Result<std::vector<KernelTable>> findTargets(const InspectedBundle &what,
                                             const KernelQuery &asked) {
  const bundle::BundleView &bundle = what.bundle;
  std::vector<KernelTable> tables;
  std::string gpus, all, devices;
  for (size_t target = 0; target <= bundle.otherTargets.size(); ++target) {
    const std::string &arch = targetOf(bundle, target).arch();
    all += (all.empty() ? "" : ", ") +
           (arch == "emu" ? "emu (LLVM bitcode for the emulator)" : arch);
    if (!isPtx(arch))
      continue;
    gpus += (gpus.empty() ? "" : ", ") + arch;
    KernelTable table;
    table.target = &targetOf(bundle, target);
    for (size_t d = 0; d < bundle.devices.size(); ++d)
      if (bundle.devices[d].target == target)
        table.devices.push_back(int(d));
    tables.push_back(std::move(table));
  }
  if (tables.empty())
    return userError(
        bundle.directory + ": --kernels expects code for GPUs, found code for " + all +
        " only. Compile the model for a cluster that has GPUs (docs/reference/cluster-yaml.md)");
  for (const bundle::BundleDevice &device : bundle.devices)
    if (isPtx(targetOf(bundle, device.target).arch()))
      devices += (devices.empty() ? "" : ", ") + device.name;
  std::vector<KernelTable> chosen;
  for (KernelTable &table : tables) {
    if (!asked.device.empty()) {
      const int device = bundle.findDevice(asked.device);
      if (std::find(table.devices.begin(), table.devices.end(), device) == table.devices.end())
        continue;
      table.devices = {device};
    }
    if (asked.arch.empty() || asked.arch == table.target->arch())
      chosen.push_back(std::move(table));
  }
  if (chosen.empty() && !asked.arch.empty())
    return userError("--arch: expects a GPU architecture that the bundle has code for, got '" +
                     asked.arch + "'. It has: " + gpus);
  if (chosen.empty())
    return userError("--device: expects a GPU of the bundle, got '" + asked.device +
                     "'. Its GPUs: " + (devices.empty() ? "none" : devices));
  for (KernelTable &table : chosen)
    if (Status status = chooseGpu(bundle, asked.gpu, table); status.failed())
      return status;
  return chosen;
}

} // namespace zorse::inspect
