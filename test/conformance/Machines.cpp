#include "RunCase.h"

#include "EmulatedFunction.h"

#include "zorse/runtime/Drivers.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace zorse;
using namespace zorse::conformance;

namespace {

class Emulator final : public Machine {
public:
  explicit Emulator(const std::string &arch)
      : Machine(arch), products(std::move(*runtime::CpuDevice::create({}))) {}

  std::string load(const codegen::CompiledFunctions &compiled) override {
    library = compiled.library;
    std::string error;
    // If the PTX of an architecture also runs, results are compared bit by bit.
    code = emulator::HostCode::compile(compiled.object, error, true, {}, arch != "emu");
    return error;
  }

  std::string run(int function, const Call &call) override {
    emulator::EmulatedCall emulated{call.rows, call.sampleBase, call.rngIdBase, call.arguments,
                                    call.overwrite};
    std::vector<std::string> findings =
        emulator::runFunction(*code, *products, library.functions(function), emulated);
    return findings.empty() ? "" : findings.front();
  }

private:
  std::unique_ptr<runtime::CpuDevice> products;
  bundle::FunctionLibrary library;
  std::unique_ptr<emulator::HostCode> code;
};

class Driven final : public Machine {
public:
  Driven(const runtime::Driver &driver, const std::string &arch) : Machine(arch), driver(driver) {
    directory =
        (std::filesystem::temp_directory_path() / ("zorse-conformance-" + std::to_string(getpid())))
            .string();
    std::filesystem::create_directories(directory + "/" + arch);
    if (arch != "emu") // keep the GPU's context between cases
      if (auto made = make("context"); !made.failed())
        context = std::move(*made);
  }
  ~Driven() override {
    device.reset();
    context.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }

  /// A device loads functions only once, so each library has a separate device.
  std::string load(const codegen::CompiledFunctions &compiled) override {
    library = compiled.library;
    if (library.objects_size() > 0)
      std::ofstream(directory + "/" + arch + "/" + library.objects(0), std::ios::binary)
          << compiled.object;
    device.reset();
    auto made = make("conformance");
    if (made.failed())
      return made.message();
    device = std::move(*made);
    runtime::Status status = device->loadFunctions(library, directory);
    return status.failed() ? status.message() : "";
  }

  std::string run(int index, const Call &call) override {
    const bundle::CompiledFunction &function = library.functions(index);
    std::vector<std::unique_ptr<runtime::DeviceMemory>> memory;
    std::vector<runtime::DeviceAddress> addresses;
    std::vector<size_t> sizes;
    for (int s = 0; s < function.arguments_size(); ++s) {
      sizes.push_back(size_t(function.arguments(s).bytes().fixed() +
                             function.arguments(s).bytes().per_row() * call.rows));
      auto made = device->allocate(bundle::DEVICE, sizes.back() + 64, {});
      if (made.failed())
        return made.message();
      addresses.push_back((*made)->base());
      memory.push_back(std::move(*made));
      if (runtime::Status status =
              device->write(addresses.back(), call.arguments[size_t(s)], sizes.back());
          status.failed())
        return status.message();
    }
    runtime::FunctionArguments arguments{
        {call.rows, call.sampleBase, call.rngIdBase}, addresses.data(), call.overwrite.data()};
    if (runtime::Status status = device->runFunction(uint32_t(index), arguments); status.failed())
      return status.message();
    for (int s = 0; s < function.arguments_size(); ++s)
      if (runtime::Status status =
              device->read(call.arguments[size_t(s)], addresses[size_t(s)], sizes[size_t(s)]);
          status.failed())
        return status.message();
    return "";
  }

private:
  const runtime::Driver &driver;
  std::string directory;
  bundle::FunctionLibrary library;
  std::unique_ptr<runtime::QueuedDevice> context, device;

  runtime::Result<std::unique_ptr<runtime::QueuedDevice>> make(const char *name) const {
    runtime::DeviceRequest request;
    request.name = name;
    return driver.make(request);
  }
};

} // namespace

std::unique_ptr<Machine> conformance::makeEmulator(const std::string &arch) {
  return std::make_unique<Emulator>(arch);
}

/// Loads the fakes under the names of the libraries, so that the driver gets them when it opens
/// these names.
static bool loadStandIns(std::string &error) {
  for (const char *library : {"libcuda.so.1", "libcublasLt.so.13"})
    if (!::dlopen((std::string(ZORSE_BINARY_DIR "/standin/") + library).c_str(),
                  RTLD_NOW | RTLD_GLOBAL)) {
      error = ::dlerror();
      return false;
    }
  ::setenv("ZORSE_EMULATOR_CHECK", "1", 1);
  return true;
}

std::unique_ptr<Machine> conformance::makeDriver(const std::string &arch, std::string &error) {
  if (arch == "emu" && !loadStandIns(error))
    return nullptr;
  auto driver = runtime::findDriver("cuda", "conformance");
  if (driver.failed()) {
    error = driver.message();
    return nullptr;
  }
  return std::make_unique<Driven>(**driver, arch);
}
