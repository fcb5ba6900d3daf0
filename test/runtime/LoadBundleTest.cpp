// Tests loading of bundles from disk. A good bundle loads; every kind of damage or contradiction is
// an error that names the place.
#include "EditedArgument.h"
#include "TemporaryDirectory.h"
#include "TwoDevices.h"

#include "zorse/Bundle/Manifest.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

class LoadBundle : public ::testing::Test {
protected:
  LoadBundle() : two(directory.path("two.zorse")) {}

  void file(const std::string &name, const std::string &bytes) {
    directory.write("two.zorse/" + name, bytes);
    manifest["files"][name] = bundle::sha256(bytes);
  }

  void writeFiles() {
    std::filesystem::remove_all(two.bundle.directory);
    manifest = {{"format_version", bundle::kFormatVersion},
                {"model", "two"},
                {"global_batch_size", two.bundle.batch},
                {"seq_length", 4},
                {"precision", "f32"}};
    for (const BundleDevice &device : two.bundle.devices)
      manifest["devices"].push_back({{"name", device.name},
                                     {"kind", device.kind},
                                     {"threads", device.threads},
                                     {"memory", device.memory},
                                     {"target", device.target}});
    manifest["training"] =
        nlohmann::json::parse(bundle::trainingText(two.bundle.summary.training()));
    file("plan.json",
         R"({"global_batch_size": 5, "devices": [{"name": "alpha", "memory": 1048576}, "beta"]})");
    file("cluster.yaml", "name: test\nnodes:\n  - name: here\n    devices:\n      - { name: alpha, "
                         "kind: cpu }\n      - { name: beta, kind: cpu }\n");
    file("summary.pb", two.bundle.summary.SerializeAsString());
    file("functions.pb", two.bundle.functions.SerializeAsString());
    for (size_t t = 0; t < two.bundle.otherTargets.size(); ++t)
      file(bundle::functionsFile(uint32_t(t + 1)), two.bundle.otherTargets[t].SerializeAsString());
    for (size_t d = 0; d < two.bundle.programs.size(); ++d)
      file("programs/" + std::to_string(d) + ".pb", two.bundle.programs[d].SerializeAsString());
    for (size_t d = 0; d < two.bundle.hostStaged.size(); ++d)
      file("host_staged/" + std::to_string(d) + ".pb",
           two.bundle.hostStaged[d].SerializeAsString());
    file("kernels/x86-64/kernels.so", "not really machine code");
    file(
        "weights.json",
        R"({"references": false, "parameters": [{"name": "w", "file": "weights.bin", "offset": 8, "bytes": 16, "type": "f32", "shape": [4]}]})");
    file("weights.bin", std::string(24, '\0'));
    writeManifest();
  }
  void writeManifest() {
    directory.write("two.zorse/manifest.json", manifest.dump());
    directory.write("two.zorse/manifest.sha256",
                    bundle::sha256(manifest.dump()) + "  manifest.json\n");
  }

  std::string problem() {
    Result<Bundle> bundle = loadBundle(two.bundle.directory);
    return bundle.failed() ? bundle.message() : "accepted";
  }

  /// The message of loading after `change` of the program of a device.
  std::string problemAfter(uint32_t device, const std::function<void(bundle::Program &)> &change) {
    bundle::Program saved = two.bundle.programs[device];
    change(two.bundle.programs[device]);
    writeFiles();
    two.bundle.programs[device] = saved;
    return problem();
  }

  /// The first instruction of a kind.
  static bundle::Instruction &instruction(bundle::Program &program,
                                          bundle::Instruction::WhatCase kind) {
    for (bundle::Instruction &e : *program.mutable_instructions())
      if (e.what_case() == kind)
        return e;
    ADD_FAILURE() << "no such instruction";
    return *program.add_instructions();
  }

  TemporaryDirectory directory;
  TwoDevices two;
  nlohmann::json manifest;
};

void expectSays(const std::string &error, std::initializer_list<const char *> words) {
  for (const char *word : words)
    EXPECT_NE(error.find(word), std::string::npos) << "'" << word << "' in: " << error;
}

TEST_F(LoadBundle, AGoodOneIsReadWhole) {
  writeFiles();
  Result<Bundle> bundle = loadBundle(two.bundle.directory + "/");
  ASSERT_FALSE(bundle.failed()) << bundle.message();
  EXPECT_EQ(bundle->batch, 5);
  EXPECT_EQ(bundle->devices[1].threads, 2);
  EXPECT_EQ(bundle->programs[1].instructions_size(), two.bundle.programs[1].instructions_size());
  EXPECT_EQ(bundle->weights[0].offset, 8u);
  EXPECT_EQ(bundle->weights[0].file, two.bundle.directory + "/weights.bin");
}

TEST_F(LoadBundle, DevicesHaveTheBodiesOfTheirTargets) {
  two.bundle.devices[1].target = 1;
  two.bundle.otherTargets = {two.bundle.functions};
  two.bundle.otherTargets[0].clear_objects();
  two.bundle.otherTargets[0].set_arch("x86-64-v3");
  writeFiles();
  Result<Bundle> bundle = loadBundle(two.bundle.directory);
  ASSERT_FALSE(bundle.failed()) << bundle.message();
  EXPECT_EQ(bundle->functionsOf(0).arch(), two.bundle.functions.arch());
  EXPECT_EQ(bundle->functionsOf(1).arch(), "x86-64-v3");

  // Programs refer to functions and arguments in the same way for all targets.
  two.bundle.otherTargets[0].mutable_functions(1)->mutable_arguments(0)->mutable_bytes()->set_fixed(
      12345);
  writeFiles();
  expectSays(problem(), {"functions.1.pb: function 1 (", "differs in name or arguments",
                         "compile the model again"});
  two.bundle.otherTargets[0].mutable_functions()->RemoveLast();
  writeFiles();
  expectSays(problem(), {"functions.1.pb: ", "functions, expected"});
  two.bundle.otherTargets = {two.bundle.functions};
  two.bundle.otherTargets[0].add_objects("more.so");
  writeFiles();
  expectSays(problem(), {"does not list kernels/", "more.so"});
  two.bundle.otherTargets.clear();
  writeFiles();
  expectSays(problem(), {"does not list functions.1.pb"});
  two.bundle.devices[1].target = 2;
  writeFiles();
  expectSays(problem(), {"device 'beta': expects one of at most 2 targets, got 2"});
}

TEST_F(LoadBundle, EveryDamagedOrMissingFileIsNamed) {
  writeFiles();
  std::vector<std::string> names;
  for (const auto &item : manifest["files"].items())
    names.push_back(item.key());
  for (const std::string &name : names) {
    writeFiles();
    std::string bytes = directory.read("two.zorse/" + name);
    bytes[bytes.size() / 2] ^= 1;
    directory.write("two.zorse/" + name, bytes);
    expectSays(problem(), {name.c_str(), "SHA-256"});
    std::filesystem::remove(two.bundle.directory + "/" + name);
    expectSays(problem(), {name.c_str(), "cannot be read"});
  }
}

// The files that were hashed are the ones that run, even if the files at their paths change
// afterwards.
TEST_F(LoadBundle, FilesThatAreExchangedAfterwardsChangeNothing) {
  writeFiles();
  Result<Bundle> bundle = loadBundle(two.bundle.directory);
  ASSERT_FALSE(bundle.failed()) << bundle.message();
  const std::string code = two.bundle.directory + "/kernels/x86-64/kernels.so";
  std::ofstream(code, std::ios::in | std::ios::binary) << "other"; // modified in place
  directory.write("two.zorse/weights.new", std::string(24, 'x'));
  std::filesystem::rename(two.bundle.directory + "/weights.new",
                          two.bundle.directory + "/weights.bin");

  Result<std::shared_ptr<const MemoryFile>> kernels = bundle->kernels.find("x86-64", "kernels.so");
  ASSERT_FALSE(kernels.failed()) << kernels.message();
  EXPECT_EQ(std::string(reinterpret_cast<const char *>((*kernels)->data()), (*kernels)->size()),
            "not really machine code");
  std::ifstream loaded((*kernels)->path(), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(loaded), {}), "not really machine code");
  std::ofstream((*kernels)->path(), std::ios::in | std::ios::binary) << "other";
  EXPECT_EQ(std::string(reinterpret_cast<const char *>((*kernels)->data()), 3),
            "not"); // this process cannot change it either
  ASSERT_EQ(bundle->weights.size(), 1u);
  ASSERT_TRUE(bundle->weights[0].contents);
  EXPECT_EQ(bundle->weights[0].contents->data()[8], std::byte(0));
  EXPECT_TRUE(bundle->kernels.find("x86-64", "another.so").failed());
}

TEST_F(LoadBundle, ManifestsThatDoNotFitAreRefused) {
  expectSays(problem(), {"two.zorse", "expects a bundle"});
  writeFiles();
  nlohmann::json good = manifest;
  auto with = [&](const std::function<void()> &change) {
    manifest = good;
    change();
    writeManifest();
    return problem();
  };
  const std::string version = std::to_string(bundle::kFormatVersion),
                    expected = "expects format version " + version + ", got 999";
  expectSays(with([&] { manifest["format_version"] = 999; }),
             {"manifest.json", expected.c_str(), "compile it again: zorse-compile MODEL.onnx",
              "--global-batch-size 5"});
  expectSays(with([&] { manifest.erase("global_batch_size"); }),
             {"manifest.json", "global_batch_size"});
  expectSays(with([&] { manifest["global_batch_size"] = 0; }), {"batch of at least 1"});
  // Real numbers and numbers out of range are not converted.
  expectSays(with([&] { manifest["global_batch_size"] = 1e300; }),
             {"global_batch_size: expects a whole number, got 1e+300"});
  expectSays(with([&] { manifest["global_batch_size"] = UINT64_MAX; }),
             {"global_batch_size: expects a whole number, got 18446744073709551615"});
  expectSays(with([&] { manifest["devices"][0]["threads"] = (int64_t(1) << 32) + 1; }),
             {"threads: expects a whole number, got 4294967297"});
  expectSays(with([&] { manifest["devices"][0]["memory"] = -1; }),
             {"memory: expects a whole number of at least 0, got -1"});
  expectSays(with([&] { manifest["devices"] = nlohmann::json::array(); }), {"no device"});
  expectSays(with([&] { manifest["devices"].erase(1); }),
             {"number of devices: manifest.json says 1, plan.json says 2"});
  expectSays(with([&] { manifest["devices"].push_back(manifest["devices"][0]); }),
             {"number of devices: manifest.json says 3"});
  expectSays(with([&] { manifest["devices"][1]["name"] = "gamma"; }),
             {"device 1: manifest.json says \"gamma\", plan.json says \"beta\""});
  expectSays(with([&] { manifest["devices"][0]["memory"] = 100; }),
             {"memory of device 'alpha': manifest.json says 100, plan.json says 1048576"});
  expectSays(with([&] { manifest["devices"][1]["memory"] = 100; }),
             {"needs 4096 bytes of memory, the device has 100"});
  // Values stored in two files must agree: a batch of 17 instead of 16 would divide the loss by 17.
  expectSays(
      with([&] { manifest["global_batch_size"] = 6; }),
      {"global_batch_size: manifest.json says 6, plan.json says 5", "compile the model again"});
  expectSays(with([&] { manifest["precision"] = "f64"; }),
             {"precision: manifest.json says f64, summary.pb says f32"});
  expectSays(with([&] { manifest["model"] = "three"; }),
             {"model: manifest.json says 'three', summary.pb says 'two'"});
  expectSays(with([&] { manifest["training"]["learning_rate"] = 0.25; }),
             {"training options: manifest.json says", "summary.pb says"});
  expectSays(with([&] { manifest["training"] = 3; }), {"training"});
  expectSays(with([&] { manifest["files"].erase("functions.pb"); }),
             {"does not list functions.pb"});
  expectSays(with([&] { manifest["files"].erase("kernels/x86-64/kernels.so"); }),
             {"does not list kernels/x86-64/kernels.so"});
  expectSays(with([&] { manifest["files"]["../../etc/passwd"] = "0"; }), {"outside the bundle"});
  expectSays(with([&] { manifest["files"] = 3; }), {"manifest.json"});
  for (const std::string &text : {std::string(), std::string(100000, '['),
                                  "{\"format_version\": " + version + ", \"training\": {\"a\": " +
                                      std::string(100000, '[') + std::string(100000, ']') + "}}"}) {
    directory.write("two.zorse/manifest.json", text);
    expectSays(problem(), {"manifest.json", "its SHA-256 is"});
    directory.write("two.zorse/manifest.sha256", bundle::sha256(text) + "  manifest.json\n");
    expectSays(problem(), {"manifest.json", "not the manifest"});
  }
  writeFiles();
  std::filesystem::remove(two.bundle.directory + "/manifest.sha256");
  expectSays(problem(), {"manifest.sha256", "incomplete"});
  directory.write("two.zorse/manifest.sha256", "");
  expectSays(problem(), {"manifest.json"});
}

TEST_F(LoadBundle, FilesWithTheRightChecksumAndWrongContentsAreRefused) {
  writeFiles();
  file("summary.pb", "\xff\xff\xff");
  writeManifest();
  expectSays(problem(), {"summary.pb", "cannot be decoded"});
  writeFiles();
  std::string summary = two.bundle.summary.SerializeAsString();
  const size_t factor = summary.find("\x32\3" // field 6
                                     "1/B");
  ASSERT_NE(factor, summary.npos);
  summary[factor] = 0x3a; // as field 7
  file("summary.pb", summary);
  writeManifest();
  expectSays(problem(), {"summary.pb", "fields that this version does not know"});
  writeFiles();
  file("weights.json", R"({"references": false, "parameters": []})");
  writeManifest();
  expectSays(problem(), {"weights.json", "no bytes for parameter 'w'"});
  writeFiles();
  file("weights.json", R"({"references": false, "parameters": 3})");
  writeManifest();
  expectSays(problem(), {"weights.json"});
  // Weights are in files of the bundle or, in bundles made with references, of the model.
  for (const auto &[references, place, words] :
       std::initializer_list<std::tuple<bool, const char *, const char *>>{
           {false, "/etc/passwd", "outside the bundle, which was not made with references"},
           {false, "../other", "no file of the bundle"},
           {true, "../other", "no file of the bundle"},
           {false, "stray.bin", "no file of the bundle"},
           {true, "/data/model.onnx.data", "accepted"}}) {
    writeFiles();
    nlohmann::json table = {{"references", references},
                            {"parameters",
                             {{{"name", "w"},
                               {"file", place},
                               {"offset", 0},
                               {"bytes", 16},
                               {"type", "f32"},
                               {"shape", {4}}}}}};
    file("weights.json", table.dump());
    writeManifest();
    expectSays(problem(), {words});
  }
}

TEST_F(LoadBundle, KnownNumbersAreExpressions) {
  for (const auto &[known, words] :
       std::initializer_list<std::pair<std::vector<std::string>, const char *>>{
           {{"1/B"}, "accepted"},
           {{"1/B", "samples"}, "a known number is 'samples', which is no expression"}}) {
    two.bundle.summary.mutable_known()->Assign(known.begin(), known.end());
    writeFiles();
    expectSays(problem(), {words});
  }
}

TEST_F(LoadBundle, ProgramsThatLeadOutsideAreRefused) {
  using bundle::Instruction;
  using bundle::Program;
  auto says = [&](const char *words, uint32_t device,
                  const std::function<void(Program &)> &change) {
    expectSays(problemAfter(device, change), {words});
  };
  says("queue 6 of 6", 0, [](Program &p) { p.mutable_instructions(0)->set_queue(6); });
  says("ascending order", 0, [](Program &p) { p.mutable_instructions(1)->set_id(0); });
  says("unknown phase", 0,
       [](Program &p) { p.mutable_instructions(0)->set_phase(bundle::PHASE_UNSPECIFIED); });
  says("contains nothing", 0, [](Program &p) { p.mutable_instructions(0)->clear_what(); });
  says("position 77 of", 1,
       [](Program &p) { p.mutable_instructions(2)->mutable_waits(0)->set_position(77); });
  says("waits for a later instruction", 1, [](Program &p) {
    bundle::Wait &wait = *p.mutable_instructions(0)->add_waits();
    wait.set_queue(0);
    wait.set_position(1);
  });
  says("lie outside an arena of 4096", 0, [](Program &p) {
    instruction(p, Instruction::kLoadInput)
        .mutable_load_input()
        ->mutable_region()
        ->set_offset(4090);
  });
  says("lie outside an arena of 4096", 0, [](Program &p) {
    instruction(p, Instruction::kLoadInput)
        .mutable_load_input()
        ->mutable_region()
        ->set_offset(UINT64_MAX - 8);
  });
  says("starts at byte 2 of its arena, expected a multiple of 4", 0, [](Program &p) {
    zorse::test::EditedArgument(
        p, *instruction(p, Instruction::kCompute).mutable_compute()->mutable_calls(0), 0)
        .mutable_region()
        ->set_offset(2);
  });
  says("arena 1 of 1", 0, [](Program &p) {
    instruction(p, Instruction::kLoadInput).mutable_load_input()->mutable_region()->set_arena(1);
  });
  says("at least 48 are needed", 0, [](Program &p) {
    instruction(p, Instruction::kLoadInput).mutable_load_input()->mutable_region()->set_bytes(47);
  });
  says("samples [4, +3) of a batch of 5", 0, [](Program &p) {
    instruction(p, Instruction::kLoadInput).mutable_load_input()->set_sample_base(4);
  });
  says("input 1 of 1", 0, [](Program &p) {
    instruction(p, Instruction::kLoadInput).mutable_load_input()->set_input(1);
  });
  says("at least 1024 are needed", 0, [](Program &p) {
    instruction(p, Instruction::kLoadScalars)
        .mutable_load_scalars()
        ->mutable_region()
        ->set_bytes(512);
  });
  says("function 7 of 7", 0, [](Program &p) {
    instruction(p, Instruction::kCompute).mutable_compute()->mutable_calls(0)->set_function(7);
  });
  says("binds 1 arguments of function 'double', which has 2", 0, [](Program &p) {
    instruction(p, Instruction::kCompute)
        .mutable_compute()
        ->mutable_calls(0)
        ->mutable_regions()
        ->RemoveLast();
  });
  says("a region or a value that the program does not have", 0, [](Program &p) {
    instruction(p, Instruction::kCompute)
        .mutable_compute()
        ->mutable_calls(0)
        ->set_regions(1, uint32_t(p.regions_size()));
  });
  says("a region or a value that the program does not have", 0, [](Program &p) {
    instruction(p, Instruction::kCompute)
        .mutable_compute()
        ->mutable_calls(0)
        ->mutable_values()
        ->RemoveLast();
  });
  says("with 0 rows", 0, [](Program &p) {
    instruction(p, Instruction::kCompute).mutable_compute()->mutable_calls(0)->set_rows(0);
  });
  says("at least 64 are needed", 0, [](Program &p) {
    instruction(p, Instruction::kCompute).mutable_compute()->mutable_calls(0)->set_rows(4);
  });
  says("device 5 of 2", 0,
       [](Program &p) { instruction(p, Instruction::kSend).mutable_send()->set_peer(5); });
  says("does not match its counterpart", 0, [](Program &p) {
    instruction(p, Instruction::kSend).mutable_send()->mutable_region()->set_bytes(32);
  });
  says("does not match its counterpart", 1,
       [](Program &p) { instruction(p, Instruction::kReceive).set_phase(bundle::BACKWARD); });
  says("2 devices take part in it, but 1 have it", 0, [](Program &p) {
    Instruction &e = instruction(p, Instruction::kSend);
    e.mutable_copy()->mutable_from()->set_bytes(16);
    e.mutable_copy()->mutable_to()->set_bytes(16);
  });
  says("at least 36 are needed", 1, [](Program &p) {
    instruction(p, Instruction::kAllGather).mutable_all_gather()->mutable_shards()->set_end(1, 9);
  });
  says("arrays of the shards differ", 1, [](Program &p) {
    instruction(p, Instruction::kAllGather).mutable_all_gather()->mutable_shards()->add_end(2);
  });
  says("does not match its counterpart", 1, [](Program &p) {
    instruction(p, Instruction::kReduceScatter)
        .mutable_reduce_scatter()
        ->mutable_shards()
        ->set_begin(1, 3);
  });
  auto add = [](bundle::ShardRanges *runs, uint32_t device, int64_t begin, int64_t end) {
    runs->add_members(device);
    runs->add_begin(begin);
    runs->add_end(end);
  };
  says("elements [0, 1) of this device come after element 4", 1, [&](Program &p) {
    add(instruction(p, Instruction::kAllGather).mutable_all_gather()->mutable_shards(), 1, 0, 1);
  });
  says("a region of 16 bytes, at least 28 are needed", 1, [&](Program &p) {
    add(instruction(p, Instruction::kAllGather).mutable_all_gather()->mutable_reads(), 1, 2, 9);
  });
  says("names runs of other devices", 1, [&](Program &p) {
    add(instruction(p, Instruction::kReduceScatter).mutable_reduce_scatter()->mutable_terms(), 0, 0,
        4);
  });
  auto ofTerms = [&](const char *words,
                     int64_t end) { // device 1 is the only contributor and owns [2, 4)
    says(words, 1, [&](Program &p) {
      add(instruction(p, Instruction::kReduceScatter).mutable_reduce_scatter()->mutable_terms(), 1,
          0, end);
    });
  };
  ofTerms("has a part of the shard [2, 4)", 3);
  ofTerms("no device contributes to elements [2, 4)", 2);
  ofTerms("does not match its counterpart", 4);
  says("not a participant", 1, [](Program &p) {
    instruction(p, bundle::Instruction::kAllReduce).mutable_all_reduce()->set_members(1, 0);
  });
  says("does not fit its region", 1,
       [](Program &p) { p.mutable_state(0)->mutable_value()->set_begin(0); });
  says("expects parameters, moments", 1, [](Program &p) {
    p.mutable_state(0)->mutable_value()->set_kind(bundle::Value::LOCAL_METRICS);
  });
  says("state group 3 of 1", 1, [](Program &p) { p.mutable_state(0)->mutable_value()->set_id(3); });
}

// Bundles with direct transfers also contain programs without them, which are checked in the same
// way. All memory of a direct sum is inside its arena.
TEST_F(LoadBundle, DirectTransfersAreChecked) {
  const std::vector<bundle::Program> plain = two.bundle.programs;
  for (bundle::Program &program : two.bundle.programs)
    program.mutable_queues(int(instruction(program, bundle::Instruction::kAllReduce).queue()))
        ->set_kind(bundle::DEVICE_TO_DEVICE);
  writeFiles();
  expectSays(problem(), {"a direct reduction in rounds of 0 elements"});
  for (bundle::Program &program : two.bundle.programs)
    instruction(program, bundle::Instruction::kReduceScatter)
        .mutable_reduce_scatter()
        ->set_chunk(4);
  writeFiles();
  expectSays(problem(), {"no function adds the terms of direct transfers"});
  bundle::CompiledFunction &function = *two.bundle.functions.add_functions();
  function.set_name("sum");
  for (int s = 0; s < 3; ++s)
    function.add_arguments()->set_kind(s < 2 ? bundle::CONTRIBUTION : bundle::SUM);
  for (bundle::ElementType type : {bundle::F32, bundle::F64}) {
    bundle::SumFunction &sum = *two.bundle.summary.add_sums();
    sum.set_type(type);
    sum.set_num_contributions(2);
    sum.set_function(uint32_t(two.bundle.functions.functions_size() - 1));
  }
  writeFiles();
  expectSays(problem(), {"are needed"}); // memory for the contributions
  for (bundle::Program &program : two.bundle.programs) {
    bundle::ReduceScatter &reduction =
        *instruction(program, bundle::Instruction::kReduceScatter).mutable_reduce_scatter();
    reduction.mutable_receive_buffer()->set_offset(2048);
    reduction.mutable_receive_buffer()->set_bytes(2 * 512);
    bundle::AllReduce &sum =
        *instruction(program, bundle::Instruction::kAllReduce).mutable_all_reduce();
    sum.mutable_receive_buffer()->set_offset(3072);
    sum.mutable_receive_buffer()->set_bytes(2 * sum.region().bytes());
  }
  writeFiles();
  expectSays(problem(), {"host_staged", "alpha", "incomplete"});
  two.bundle.hostStaged = plain;
  writeFiles();
  EXPECT_EQ(problem(), "accepted");
  auto round = [&](bundle::ElementType type) {
    for (bundle::Program &program : two.bundle.programs)
      instruction(program, bundle::Instruction::kReduceScatter)
          .mutable_reduce_scatter()
          ->set_term_type(type);
    writeFiles();
  };
  round(bundle::F16);
  expectSays(problem(), {"rounds terms to another type than bf16"});
  round(bundle::BF16);
  expectSays(problem(), {"no function adds the rounded terms"});
  round(bundle::ELEMENT_TYPE_UNSPECIFIED);
  EXPECT_EQ(problem(), "accepted");
  two.bundle.hostStaged[1].mutable_instructions(0)->set_queue(77);
  writeFiles();
  expectSays(problem(), {"queue 77", "in host_staged/"});
  two.bundle.hostStaged = plain;
  two.bundle.summary.mutable_sums(1)->set_num_contributions(3);
  writeFiles();
  expectSays(problem(), {"a function adds 3 terms"});
}

TEST_F(LoadBundle, RandomlyChangedProgramsNeverCrash) {
  writeFiles();
  std::string good = two.bundle.programs[1].SerializeAsString();
  uint64_t state = 1;
  auto random = [&](size_t n) {
    return size_t((state = state * 6364136223846793005ull + 1442695040888963407ull) >> 33) % n;
  };
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    for (int change = 0; change < 3; ++change)
      bad[random(bad.size())] = char(random(256));
    file("programs/1.pb", bad);
    writeManifest();
    (void)problem();
  }
}

TEST_F(LoadBundle, TheClusterMustHaveTheSameDevices) {
  writeFiles();
  Result<Bundle> bundle = loadBundle(two.bundle.directory);
  ASSERT_FALSE(bundle.failed());
  auto check = [&](const std::string &text) {
    Status status = checkCluster(*bundle, directory.write("cluster.yaml", text));
    return status.failed() ? status.message() : std::string("accepted");
  };
  EXPECT_EQ(check(bundle->cluster), "accepted");
  EXPECT_EQ(
      check("nodes: [ { devices: [ { name: alpha, kind: cpu, speed: 3e9 }, { name: beta } ] } ]"),
      "accepted");
  expectSays(
      check("nodes: [ { devices: [ { name: alpha } ] } ]"),
      {"cluster.yaml", "compiled for devices alpha (cpu), beta (cpu)", "has devices alpha."});
  expectSays(check("nodes: [ { devices: [ { name: alpha, kind: cuda }, { name: beta } ] } ]"),
             {"alpha (cuda), beta"});
  expectSays(check("nodes: [ { devices: [ { name: alpha, count: 2 } ] } ]"), {"alpha:0, alpha:1"});
  expectSays(check("nodes: ["), {"cluster.yaml", "is not a cluster description"});
  expectSays(check("nodes: [ { devices: [ { kind: cpu } ] } ]"), {"cluster.yaml"});
  EXPECT_TRUE(checkCluster(*bundle, directory.path("none.yaml")).failed());
}

} // namespace
