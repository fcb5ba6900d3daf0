// Tests that GPU-to-GPU transfers give the same bits as blocking transports. Runs random lists of
// operations on emulated GPUs with the fake NCCL and compares the results with plain sums.
//
//   direct-conformance [--devices N] [--lists N] [--first SEED] [--spawn]
//
// There is one thread per GPU, or with --spawn one process.
//
// The lists contain transfers, gathers and reductions of uneven shards with any members, in place
// and in separate buffers, in one or several rounds, and sums of more terms than one function adds.
// Each is followed by a random sum by levels, which must have the bits of its tree.
// Some sets of members have a separate communicator. Then errors are tested: different sizes, a
// device that never joins, and bytes that fail a self-test. Prints the number of equal operations
// and fails at the first different one. The directory of the fakes must be first in
// LD_LIBRARY_PATH.
#include "LevelSums.h"
#include "RandomOperations.h"

#include "FileGroup.h"

#include "zorse/Codegen/Codegen.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/DeviceTransport.h"
#include "zorse/runtime/Drivers.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <sys/wait.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

constexpr uint32_t kTerms = 3; ///< maximum of one function: sums over more devices need several

[[noreturn]] void fail(const std::string &what) {
  std::printf("direct-conformance: %s\n", what.c_str());
  std::fflush(stdout);
  ::_exit(1);
}
void must(const Status &status) {
  if (status.failed())
    fail(status.message());
}
template <typename T> T must(Result<T> result) {
  if (result.failed())
    fail(result.message());
  return std::move(*result);
}

/// The sum functions, as compiled for emulated GPUs.
struct Sums {
  bundle::FunctionLibrary library;
  std::string directory;
  DeviceSums sums;
};
Sums compileSums(const std::string &directory) {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  codegen::CodegenOptions options;
  options.useCache = false;
  options.threads = 1;
  options.arch = "emu";
  bundle::ModelSummary summary;
  summary.set_compute_type(bundle::F32);
  auto compiled = codegen::lowerFunctions(*module, options);
  if (mlir::failed(compiled))
    fail("nothing compiles");
  codegen::appendBuiltinFunctions(&context, *compiled, summary, kTerms);
  if (mlir::failed(codegen::compileKernels(*compiled, module->getLoc())))
    fail("sums do not compile");
  std::filesystem::create_directories(directory + "/emu");
  std::ofstream(directory + "/emu/" + compiled->library.objects(0), std::ios::binary)
      << compiled->object;
  Sums made{compiled->library, directory, {}};
  for (int b = 0; b < made.library.functions_size(); ++b)
    for (auto [type, list] :
         {std::pair(bundle::F32, &made.sums.f32), std::pair(bundle::F64, &made.sums.f64)})
      for (uint32_t terms = 2; terms <= kTerms; ++terms)
        if (made.library.functions(b).name() == codegen::sumName(type, terms))
          list->push_back(uint32_t(b));
  auto find = [&](const std::string &name) {
    for (int b = 0; b < made.library.functions_size(); ++b)
      if (made.library.functions(b).name() == name)
        return uint32_t(b);
    fail("no function " + name);
  };
  made.sums.rounded.round = find(codegen::kRoundTermsName);
  for (uint32_t terms = 2; terms <= kTerms; ++terms) {
    made.sums.rounded.first.push_back(find(codegen::roundedSumName(terms, false)));
    made.sums.rounded.next.push_back(find(codegen::roundedSumName(terms, true)));
  }
  return made;
}

std::unique_ptr<QueuedDevice> makeGpu(uint32_t device, const Sums &sums) {
  DeviceRequest request;
  request.name = "g" + std::to_string(device);
  request.ordinal = int(device);
  auto made = must(must(findDriver("cuda", request.name))->make(request));
  must(made->loadFunctions(sums.library, sums.directory));
  return made;
}

/// A blocking transport that uses a non-blocking one: copies host memory to the GPU and back.
class Blocking final : public Transport {
public:
  Blocking(QueuedDevice &gpu, std::unique_ptr<DeviceTransport> direct, uint64_t seed)
      : gpu_(gpu), direct_(std::move(direct)), seed_(seed) {}

  Status send(Operation, uint32_t peer, const void *data, size_t bytes) override {
    Memory memory(*this, data, bytes);
    return onStream(
        [&](WorkStream &stream) { return direct_->send(peer, memory.at, bytes, stream); });
  }
  Status receive(Operation, uint32_t peer, void *data, size_t bytes) override {
    Memory memory(*this, data, bytes);
    Status status = onStream(
        [&](WorkStream &stream) { return direct_->receive(peer, memory.at, bytes, stream); });
    return status.failed() ? status : memory.back(data);
  }
  Status allGather(Operation, const AllGatherArguments &a) override {
    const size_t size = a.elementBytes;
    const Held there(Compact(a.reads, device), Compact(a.shards, device),
                     addressOf(a.shard) - addressOf(a.full), size);
    const Held here(there.whole, Compact(a.shards, device), firstPlace(there, size),
                    size); // an owner that reads its shards stores them in place
    Memory full(*this, a.full, size_t(there.whole.elements()) * size);
    Memory apart(*this, nullptr, here.inside ? 0 : size_t(here.shards.elements()) * size);
    const DeviceAddress shard = here.inside ? full.at + firstPlace(here, size) : apart.at;
    const auto *from = static_cast<const std::byte *>(a.shard);
    for (const Compact::Run &run : here.shards.runs())
      must(gpu_.write(shard + placeOf(run, here.shards, size),
                      from + placeOf(run, there.shards, size), size_t(run.end - run.begin) * size));
    DeviceAllGather gather{size, a.shards, a.reads, full.at, shard};
    Status status =
        onStream([&](WorkStream &stream) { return direct_->allGather(gather, stream); });
    return status.failed() || !a.full ? status : full.back(a.full);
  }
  Status reduceScatter(Operation operation, const ReduceScatterArguments &a) override {
    const size_t size = bytesOf(a.type);
    const Held held(Compact(a.terms, device), Compact(a.shards, device),
                    addressOf(a.shard) - addressOf(a.full), size);
    int64_t largest = 1;
    for (const Shard &shard : a.shards)
      largest = std::max(largest, shard.end - shard.begin);
    // The chunk size must be equal on all devices: several rounds, or one.
    const int64_t chunk =
        (seed_ + operation.instruction) % 2
            ? largest
            : std::min<int64_t>(largest, 128 * int64_t(1 + (seed_ + operation.instruction) % 5));
    Memory full(*this, a.full, size_t(held.whole.elements()) * size);
    Memory apart(*this, nullptr, held.inside ? 0 : size_t(held.shards.elements()) * size);
    Memory parts(*this, nullptr, (a.terms.size() + 2) * partStride(uint64_t(chunk) * size));
    Memory sends(*this, nullptr, a.shards.size() * roundedStride(chunk));
    const DeviceAddress shard = held.inside ? full.at + firstPlace(held, size) : apart.at;
    DeviceReduction reduction{a.type,   a.terms, a.shards,    full.at, shard,
                              parts.at, chunk,   a.bf16Terms, sends.at};
    Status status =
        onStream([&](WorkStream &stream) { return direct_->reduceScatter(reduction, stream); });
    for (const Compact::Run &run : held.shards.runs())
      if (const uint64_t place = placeOf(run, held.shards, size); status.succeeded())
        status = gpu_.read(static_cast<std::byte *>(a.shard) + place, shard + place,
                           size_t(run.end - run.begin) * size);
    return status;
  }
  Status allReduce(Operation, const AllReduceArguments &a) override {
    const size_t bytes = size_t(a.count) * sizeof(double);
    if (a.members.size() < 2 || bytes == 0)
      return Status::success();
    Memory data(*this, a.data, bytes), parts(*this, nullptr, (a.members.size() + 2) * bytes);
    DeviceSum sum{a.members, data.at, parts.at, a.count};
    Status status = onStream([&](WorkStream &stream) { return direct_->allReduce(sum, stream); });
    return status.failed() ? status : data.back(a.data);
  }
  uint64_t moved() const override { return direct_->moved(); }
  void abort(const Error &why) override { direct_->abort(why); }

  uint32_t device = 0;

private:
  /// GPU memory with a copy of host memory.
  struct Memory {
    Memory(Blocking &all, const void *data, size_t bytes) : gpu(all.gpu_), bytes(bytes) {
      if (bytes == 0)
        return;
      memory = must(gpu.allocate(bundle::DEVICE, bytes, {}));
      at = memory->base();
      if (data)
        must(gpu.write(at, data, bytes));
    }
    Status back(void *data) const { return bytes ? gpu.read(data, at, bytes) : Status::success(); }
    QueuedDevice &gpu;
    size_t bytes;
    std::unique_ptr<DeviceMemory> memory;
    DeviceAddress at;
  };
  struct Task final : StreamTask {
    explicit Task(std::function<Status(WorkStream &)> what) : what(std::move(what)) {}
    Status put(uint64_t, WorkStream &stream) override { return what(stream); }
    std::function<Status(WorkStream &)> what;
  };
  Status onStream(std::function<Status(WorkStream &)> what) {
    Task task(std::move(what));
    return gpu_.onStream(task);
  }
  static uint64_t addressOf(const void *data) { return DeviceAddress::ofHost(data).value; }
  static uint64_t placeOf(const Compact::Run &run, const Compact &places, size_t size) {
    return uint64_t(places.place(run.begin, run.end)) * size;
  }
  /// Offset of a device's first shard in the whole; any value if it has no shard.
  static uint64_t firstPlace(const Held &held, size_t size) {
    return held.shards.empty() ? 0 : placeOf(held.shards.runs()[0], held.whole, size);
  }

  QueuedDevice &gpu_;
  std::unique_ptr<DeviceTransport> direct_;
  const uint64_t seed_;
};

/// Makes a list that direct transports support: one order, f32 and f64, and shards at valid
/// beginnings of state.
RandomProgram listOf(uint64_t seed, uint32_t devices, size_t operations, int64_t largest) {
  RandomProgram program = randomProgram(seed, devices, 1, operations, largest);
  for (RandomOperation &op : program.operations) {
    op.type = op.kind == RandomOperation::Sum ? NumberType::F64
              : op.type == NumberType::F64    ? NumberType::F64
                                              : NumberType::F32;
    if (op.kind == RandomOperation::Sum)
      op.count = (op.count / 8 + 1) * 8 % 4096 + 8;
    for (std::vector<Shard> *list : {&op.shards, &op.runs})
      for (Shard &run : *list) {
        run.begin = run.begin == op.count ? run.begin : run.begin / 128 * 128;
        run.end = run.end == op.count ? run.end : run.end / 128 * 128;
      }
    if (seed % 3 == 0 && op.kind == RandomOperation::Gather) { // equal shards of all devices in
                                                               // order: NCCL's all-gather
      op.shards.clear();
      op.runs.clear();
      op.members.clear();
      const int64_t each = (op.count / devices + 1 + 127) / 128 * 128;
      op.count = each * devices;
      for (uint32_t d = 0; d < devices; ++d) {
        op.shards.push_back({d, d * each, (d + 1) * each});
        op.runs.push_back({d, 0, op.count});
        op.members.push_back(d);
      }
      op.inPlace = true;
    }
  }
  return program;
}

DeviceTransportOptions optionsOf(const RandomProgram &program, const Sums &sums,
                                 const std::string &exchange) {
  DeviceTransportOptions options;
  options.sums = sums.sums;
  options.allGatherBytes = exchange;
  options.connectSeconds = 60;
  options.plan.groups.emplace_back();
  for (uint32_t d = 0; d < program.devices; ++d) {
    options.plan.groups.front().push_back(d);
    options.names.push_back("g" + std::to_string(d));
  }
  for (uint32_t d = 0; d < program.devices; ++d) {
    std::vector<uint32_t> &others = options.plan.peers.emplace_back(options.plan.groups.front());
    others.erase(others.begin() + d);
  }
  for (const RandomOperation &op : program.operations) { // sets of devices that gather
    std::vector<uint32_t> group = op.members;
    std::sort(group.begin(), group.end());
    if (op.kind == RandomOperation::Gather && group.size() > 1 &&
        options.plan.groups.size() < kMaxCommunicators &&
        std::find(options.plan.groups.begin(), options.plan.groups.end(), group) ==
            options.plan.groups.end())
      options.plan.groups.push_back(group);
  }
  return options;
}

/// \returns the number of equal operations
size_t compare(const std::vector<Bytes> &found, const std::vector<Bytes> &expected,
               const RandomProgram &program, uint32_t device) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (found[i] != expected[i])
      fail("list " + std::to_string(program.seed) + ", device " + std::to_string(device) +
           ", operation " + std::to_string(i) + " of kind " +
           std::to_string(program.operations[i % program.operations.size()].kind) + " differs");
  return expected.size();
}

constexpr uint64_t kSteps = 2;

/// Rounded sums that have other bits if only terms that travel are rounded.
size_t roundedSums = 0;

/// Expected results by device, with the operations of all steps in order.
std::vector<std::vector<Bytes>> expectedOf(const RandomProgram &program) {
  std::vector<std::vector<Bytes>> expected(program.devices);
  for (uint64_t step = 0; step < kSteps; ++step)
    for (const RandomOperation &op : program.operations) {
      std::vector<Bytes> results = plainResults(program, op, step);
      roundedSums += op.bf16Terms && plainResults(program, op, step, true) != results;
      for (uint32_t d = 0; d < program.devices; ++d)
        expected[d].push_back(std::move(results[d]));
    }
  return expected;
}

/// GPUs of this process and their transports, for the communicators of a list.
struct Gpus {
  Gpus(const RandomProgram &program, const Sums &sums, const std::string &exchange) {
    std::vector<DeviceTransportMember> members;
    for (uint32_t d = 0; d < program.devices; ++d) {
      gpus.push_back(makeGpu(d, sums));
      members.push_back({d, gpus.back().get()});
    }
    auto group = makeSingleProcessGroup();
    auto direct = must(connectNccl(members, *group, optionsOf(program, sums, exchange)));
    for (uint32_t d = 0; d < program.devices; ++d) {
      auto blocking = std::make_unique<Blocking>(*gpus[d], std::move(direct[d]), program.seed);
      blocking->device = d;
      transports.push_back(std::move(blocking));
    }
  }
  std::vector<std::unique_ptr<QueuedDevice>> gpus;
  std::vector<std::unique_ptr<Transport>> transports;
};

size_t inThreads(const RandomProgram &program, const Sums &sums) {
  Gpus gpus(program, sums, "list " + std::to_string(program.seed));
  auto found = performAll(program, kSteps, std::move(gpus.transports));
  auto expected = expectedOf(program);
  size_t equal = 0;
  for (uint32_t d = 0; d < program.devices; ++d)
    equal += compare(must(std::move(found[d])), expected[d], program, d);
  return equal;
}

size_t inProcesses(const RandomProgram &program, const Sums &sums, const std::string &directory) {
  std::filesystem::create_directories(directory);
  std::vector<pid_t> children;
  for (uint32_t d = 0; d < program.devices; ++d) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto gpu = makeGpu(d, sums);
      zorse::test::FileGroup group(directory, d, program.devices);
      auto direct = must(connectNccl({{d, gpu.get()}}, group, optionsOf(program, sums, "list")));
      auto blocking = std::make_unique<Blocking>(*gpu, std::move(direct[0]), program.seed);
      blocking->device = d;
      auto found = must(perform(program, d, kSteps, *blocking));
      const LevelSum sum = randomLevelSum(program.seed, program.devices);
      if (must(perform(sum, d, kSteps, *blocking)) != treeSums(sum, kSteps)[d])
        fail("sum " + std::to_string(sum.seed) + " by levels differs");
      blocking.reset();
      auto expected = expectedOf(program);
      compare(found, expected[d], program, d);
      ::_exit(0);
    }
    children.push_back(child);
  }
  bool good = true;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (!good)
    fail("a process of list " + std::to_string(program.seed) + " failed");
  return size_t(program.devices) * kSteps * program.operations.size();
}

/// Expects that a sum by levels has the bits of its tree, on a thread per GPU.
void sumInThreads(const LevelSum &sum, const Sums &sums) {
  const RandomProgram none{uint32_t(sum.placement.nodeOf.size()), 1, sum.seed, {}};
  Gpus gpus(none, sums, "sum " + std::to_string(sum.seed));
  if (const std::string difference = differenceOf(sum, 0, std::move(gpus.transports));
      !difference.empty())
    fail(difference);
}

/// Checks that errors are reported and that operations then end in time.
int mistakes(const Sums &sums) {
  using Clock = std::chrono::steady_clock;
  RandomProgram two{2, 1, 1, {}};
  int found = 0;
  for (const char *mistake : {"sizes", "absent"}) {
    std::vector<std::unique_ptr<QueuedDevice>> gpus;
    std::vector<DeviceTransportMember> members;
    for (uint32_t d = 0; d < 2; ++d) {
      gpus.push_back(makeGpu(d, sums));
      members.push_back({d, gpus.back().get()});
    }
    auto group = makeSingleProcessGroup();
    auto direct = must(connectNccl(members, *group, optionsOf(two, sums, mistake)));
    std::vector<std::unique_ptr<Blocking>> ends;
    for (uint32_t d = 0; d < 2; ++d) {
      ends.push_back(std::make_unique<Blocking>(*gpus[d], std::move(direct[d]), 1));
      ends.back()->device = d;
    }
    const bool sizes = !std::strcmp(mistake, "sizes");
    std::vector<std::byte> data(1 << 20);
    Status sent, received;
    const auto begin = Clock::now();
    std::thread sender([&] {
      if (sizes)
        sent = ends[0]->send({0, 0}, 1, data.data(), data.size());
    });
    std::thread receiver(
        [&] { received = ends[1]->receive({0, 0}, 0, data.data(), data.size() / 2); });
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(sizes ? 2000 : 200));
      for (auto &end : ends)
        end->abort(userError("enough"));
    });
    for (std::thread *thread : {&sender, &receiver, &aborter})
      thread->join();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    // After an abort, the work on the stream has ended, and at the latest the next call fails.
    if (received.succeeded())
      received = ends[1]->receive({1, 0}, 0, data.data(), 8);
    if (received.succeeded() || seconds > 10)
      fail(std::string("no error: ") + mistake);
    ++found;
  }
  return found;
}

/// Aborts kernels of two communicators on one GPU with peers that never join. Both must end,
/// although the end of the first one waits for the other's kernel.
int abortsOfTwo(const Sums &sums) {
  using Clock = std::chrono::steady_clock;
  RandomProgram three{3, 1, 1, {}};
  std::vector<std::unique_ptr<QueuedDevice>> gpus;
  std::vector<DeviceTransportMember> members;
  for (uint32_t d = 0; d < 3; ++d) {
    gpus.push_back(makeGpu(d, sums));
    members.push_back({d, gpus.back().get()});
  }
  auto group = makeSingleProcessGroup();
  DeviceTransportOptions options = optionsOf(three, sums, "two");
  options.plan.groups.push_back({0, 1});
  auto direct = must(connectNccl(members, *group, options));
  std::vector<std::unique_ptr<Blocking>> ends;
  for (uint32_t d = 0; d < 3; ++d) {
    ends.push_back(std::make_unique<Blocking>(*gpus[d], std::move(direct[d]), 1));
    ends.back()->device = d;
  }
  // The time limit for connecting applies to each group separately.
  ::setenv("ZORSE_NCCL_JOIN_SECONDS", "0.7", 1);
  options.allGatherBytes = "slow";
  options.connectSeconds = 1;
  (void)must(connectNccl(members, *group, options));
  ::unsetenv("ZORSE_NCCL_JOIN_SECONDS");
  std::vector<std::byte> data(1 << 16);
  std::vector<double> sum(64);
  std::thread receiver([&] { (void)ends[0]->receive({0, 0}, 2, data.data(), data.size()); });
  std::thread adder([&] {
    (void)ends[0]->allReduce({1, 0}, {NumberType::F64, {0, 1}, sum.data(), int64_t(sum.size())});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto begin = Clock::now();
  ends[0]->abort(userError("enough"));
  receiver.join();
  adder.join();
  if (std::chrono::duration<double>(Clock::now() - begin).count() > 3)
    fail("two communicators do not end");
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  uint32_t devices = 0, lists = 12;
  uint64_t first = 1;
  bool processes = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--spawn")
      processes = true;
    else if (i + 1 < argc && word == "--devices")
      devices = uint32_t(std::atoi(argv[++i]));
    else if (i + 1 < argc && word == "--lists")
      lists = uint32_t(std::atoi(argv[++i]));
    else if (i + 1 < argc && word == "--first")
      first = uint64_t(std::atoll(argv[++i]));
    else
      return std::printf("direct-conformance [--devices N] [--lists N] [--first SEED] [--spawn]\n"),
             2;
  }
  ::setenv("ZORSE_EMULATOR_DEVICES", "8", 0);
  const std::string directory =
      (std::filesystem::temp_directory_path() / ("zorse-direct-" + std::to_string(::getpid())))
          .string();
  const Sums sums = compileSums(directory);
  size_t equal = 0, mistaken = 0;
  for (uint64_t seed = first; seed < first + lists; ++seed) {
    const uint32_t count = devices ? devices : 2 + uint32_t(seed % 5);
    const RandomProgram program = listOf(seed, count, 30, seed % 4 == 0 ? 300000 : 20000);
    equal += processes ? inProcesses(program, sums, directory + "/" + std::to_string(seed))
                       : inThreads(program, sums);
    if (!processes)
      sumInThreads(randomLevelSum(seed, count), sums);
  }
  if (!processes)
    mistaken = size_t(mistakes(sums)) + size_t(abortsOfTwo(sums));
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  std::printf(
      "%zu operations of %u random lists and %u sums by levels on 2 to 6 GPUs, %s: equal to "
      "the bit",
      equal, lists, lists, processes ? "each a process" : "all in one process");
  if (!processes)
    std::printf("; %zu sums of rounded terms differ if owners do not round", roundedSums);
  if (!processes && roundedSums == 0)
    fail("no sum of rounded terms");
  if (!processes)
    std::printf("; %zu of 3 mistakes end in time", mistaken);
  std::printf("\n");
  return 0;
}
