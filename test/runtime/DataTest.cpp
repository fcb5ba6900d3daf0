// Tests data sources: formats, order, ranges, and refusals.
#include "zorse/runtime/Data.h"
#include "TemporaryDirectory.h"
#include "zorse/runtime/Training.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

class Data : public ::testing::Test {
protected:
  Data() {
    bundle.batch = 3;
    bundle.sequence = 4;
    for (const char *name : {"input_ids", "labels"}) {
      bundle::GraphInput &input = *bundle.summary.add_inputs();
      input.set_name(name);
      input.add_shape(4);
      input.set_type(bundle::I64);
      input.set_bytes_per_row(32);
      input.set_upper_bound(256);
      input.set_role(std::string(name) == "labels" ? "labels" : "ids");
    }
    bundle.summary.mutable_inputs(1)->set_ignore_allowed(true);
    bundle.summary.mutable_inputs(1)->set_ignore_index(-100);
  }

  static std::string tokens(int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      bytes += char(i % 256);
      bytes += '\0';
    }
    return bytes;
  }

  static std::string npy(const std::string &descr, const std::string &shape,
                         const std::string &data, const std::string &order = "False") {
    std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order +
                         ", 'shape': " + shape + ", }";
    header.resize((header.size() + 10 + 63) / 64 * 64 - 11, ' ');
    header += '\n';
    return std::string("\x93NUMPY\x01\x00", 8) + char(header.size() & 255) +
           char(header.size() >> 8) + header + data;
  }

  template <typename T> static std::string bytesOfNumbers(const std::vector<T> &numbers) {
    return {reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(T)};
  }

  std::unique_ptr<DataSource> open(const std::string &specification,
                                   std::optional<uint64_t> seed = std::nullopt) {
    Result<std::unique_ptr<DataSource>> source = DataSource::open(bundle, specification, seed);
    EXPECT_FALSE(source.failed()) << source.message();
    return source.failed() ? nullptr : std::move(*source);
  }
  std::string openError(const std::string &specification) {
    Result<std::unique_ptr<DataSource>> source =
        DataSource::open(bundle, specification, std::nullopt);
    return source.failed() ? source.message() : "accepted";
  }
  static std::vector<int64_t> values(const Batch &batch, int input) {
    std::vector<int64_t> out(batch.inputs[input].size() / 8);
    std::memcpy(out.data(), batch.inputs[input].data(), out.size() * 8);
    return out;
  }

  Bundle bundle;
  TemporaryDirectory directory;
};

void expectSays(const std::string &error, std::initializer_list<const char *> words) {
  for (const char *word : words)
    EXPECT_NE(error.find(word), std::string::npos) << "'" << word << "' in: " << error;
}

TEST_F(Data, TokenFilesOfThreeFormatsAreWindowsInFileOrder) {
  std::string header(1024, '\0');
  int32_t words[] = {20240520, 1, 30};
  std::memcpy(header.data(), words, sizeof words);
  std::string text;
  for (int i = 0; i < 30; ++i)
    text += char(i);
  for (const std::string &path :
       {directory.write("llmc.bin", header + tokens(30)), directory.write("nano.bin", tokens(30)),
        directory.write("some.txt", text)}) {
    auto source = open(path);
    ASSERT_TRUE(source);
    EXPECT_EQ(source->samplesPerEpoch(), 7u); // 29 tokens have a successor
    auto first = source->batchFrom(0), third = source->batchFrom(6);
    ASSERT_FALSE(first.failed());
    EXPECT_EQ(values(**first, 0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(values(**first, 1), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    EXPECT_EQ(values(**third, 0),
              (std::vector<int64_t>{24, 25, 26, 27, 0, 1, 2, 3, 4, 5, 6, 7})); // then the next
                                                                               // epoch
  }
}

TEST_F(Data, AFileThatShrinksOrIsReplacedIsAnErrorOfTheRead) {
  std::string path = directory.write("nano.bin", tokens(4 * 3000 + 1)),
              array =
                  directory.write("b.npy", npy("<i8", "(30, 4)", std::string(30 * 4 * 8, '\0')));
  auto source = open(path), arrays = open("input_ids=" + array + ",labels=" + array);
  ASSERT_TRUE(source && arrays);
  ASSERT_FALSE(source->batchFrom(0).failed());
  std::filesystem::resize_file(path, 100);
  std::filesystem::resize_file(array, 100);
  EXPECT_FALSE(source->batchFrom(0).failed());
  expectSays(source->batchFrom(1000).message(),
             {"nano.bin", "ends after ", "had 24002 when it was opened", "truncated"});
  expectSays(arrays->batchFrom(27).message(), {"b.npy", "ends after ", "truncated"});
}

TEST_F(Data, LabelsAreTheIdsWhereTheGraphShifts) {
  bundle.summary.mutable_inputs(1)->set_shifted_in_graph(true);
  auto source = open(directory.write("nano.bin", tokens(12)));
  ASSERT_TRUE(source);
  auto batch = source->batchFrom(0);
  ASSERT_FALSE(batch.failed());
  EXPECT_EQ(values(**batch, 0), values(**batch, 1));
}

TEST_F(Data, ShufflingIsAPermutationPerEpochAndFixedBySeed) {
  std::string path = directory.write("nano.bin", tokens(4 * 30 + 1));
  auto first = open(path, 7), again = open(path, 7), other = open(path, 8);
  std::vector<int64_t> orders[2];
  for (int epoch = 0; epoch < 2; ++epoch)
    for (int b = 0; b < 10; ++b) {
      auto x = first->batchFrom(epoch * 30 + b * 3), y = again->batchFrom(epoch * 30 + b * 3);
      ASSERT_EQ(values(**x, 0), values(**y, 0));
      for (int n = 0; n < 3; ++n)
        orders[epoch].push_back(values(**x, 0)[n * 4]);
    }
  for (const auto &order : orders)
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 30u);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(values(**first->batchFrom(0), 0), values(**other->batchFrom(0), 0));
  EXPECT_EQ(values(**again->batchFrom(0), 0)[0], orders[0][0]); // seeking back works
}

TEST_F(Data, ArraysFeedInputsByName) {
  std::vector<int32_t> ids(16);
  std::vector<int64_t> labels(16, -100);
  for (int i = 0; i < 16; ++i)
    ids[i] = i;
  std::string specification =
      "input_ids=" + directory.write("a.npy", npy("<i4", "(4, 4)", bytesOfNumbers(ids))) +
      ",labels=" + directory.write("b.npy", npy("<i8", "(4, 4)", bytesOfNumbers(labels)));
  auto source = open(specification);
  ASSERT_TRUE(source);
  auto batch = source->batchFrom(3);
  ASSERT_FALSE(batch.failed()) << batch.message();
  EXPECT_EQ(values(**batch, 0), (std::vector<int64_t>{12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values(**batch, 1), std::vector<int64_t>(12, -100));
}

TEST_F(Data, IdsOutOfRangeNameFilePositionAndValue) {
  std::string bytes = tokens(100);
  bytes[2 * 9 + 1] = 1; // token 9 is 265
  std::string path = directory.write("range.bin", bytes);
  auto batch = open(path)->batchFrom(0);
  ASSERT_TRUE(batch.failed());
  expectSays(batch.message(), {"range.bin", "token 9 is 265", "[0, 256)", "input_ids"});

  std::vector<int64_t> ids(12, 5), labels(12, -100);
  ids[6] = -1;
  batch = open("input_ids=" + directory.write("a.npy", npy("<i8", "(3, 4)", bytesOfNumbers(ids))) +
               ",labels=" + directory.write("b.npy", npy("<i8", "(3, 4)", bytesOfNumbers(labels))))
              ->batchFrom(0);
  ASSERT_TRUE(batch.failed());
  expectSays(batch.message(), {"a.npy", "sample 1, position 2 is -1", "[0, 256)"});
}

TEST_F(Data, ABatchMayStartAtAnySample) {
  auto source = open(directory.write("nano.bin", tokens(30)));
  ASSERT_TRUE(source);
  auto batch = source->batchFrom(5); // as after a run with another batch size
  ASSERT_FALSE(batch.failed());
  EXPECT_EQ(values(**batch, 0), (std::vector<int64_t>{20, 21, 22, 23, 24, 25, 26, 27, 0, 1, 2, 3}));
}

TEST_F(Data, TheFingerprintIsOfTheContents) {
  auto fingerprint = [&](const std::string &specification) {
    Result<std::string> result = dataFingerprint(specification);
    EXPECT_FALSE(result.failed()) << result.message();
    return result.failed() ? "" : *result;
  };
  std::string bytes = tokens(300000), changed = bytes, end = bytes;
  changed[1 << 12] ^= 1;
  end.back() ^= 1;
  std::string first = fingerprint(directory.write("a.bin", bytes));
  EXPECT_EQ(first, fingerprint(directory.write("other/b.bin", bytes))); // independent of the path
  EXPECT_NE(first, fingerprint(directory.write("c.bin", changed)));
  EXPECT_NE(first, fingerprint(directory.write("d.bin", end)));
  EXPECT_NE(first, fingerprint(directory.write("e.bin", bytes + bytes.substr(0, 2))));
  EXPECT_NE(first, fingerprint(directory.write("f.txt", bytes))); // read as other tokens

  std::vector<int64_t> ids(16, 5), labels(16, 6);
  std::string a = directory.write("a.npy", npy("<i8", "(4, 4)", bytesOfNumbers(ids))),
              b = directory.write("b.npy", npy("<i8", "(4, 4)", bytesOfNumbers(labels)));
  std::string wide = directory.write("wide.npy", npy("<i8", "(2, 8)", bytesOfNumbers(ids)));
  std::string arrays = fingerprint("input_ids=" + a + ",labels=" + b);
  EXPECT_EQ(arrays, fingerprint("labels=" + b + ",input_ids=" + a));
  EXPECT_NE(arrays, fingerprint("input_ids=" + b + ",labels=" + a));
  EXPECT_NE(arrays, fingerprint("input_ids=" + wide + ",labels=" + b));
  EXPECT_TRUE(dataFingerprint(directory.path("none.bin")).failed());
}

TEST_F(Data, WhatIsNeitherTextNorTokensIsRefused) {
  using namespace std::string_literals;
  std::string much(200, 'x'), length("\x40\0\0\0\0\0\0\0"s);
  const std::vector<std::pair<std::string, std::string>> files = {
      {"by-name.safetensors", much},
      {"renamed.txt", length + "{\"a\":{\"dtype\":\"F32\"}}" + much},
      {"model.txt", "PK\x03\x04" + much},
      {"a.PT", much},
      {"a.txt.gz", much},
      {"b.txt", "\x1f\x8b" + much},
      {"c.txt", "\x28\xb5\x2f\xfd" + much},
      {"d.parquet", much},
      {"e.txt", "PAR1" + much},
      {"f.arrow", much},
      {"g.txt", "ARROW1" + much},
      {"h.pkl", much},
      {"j.txt", "\x89PNG\r\n\x1a\n" + much},
      {"k.txt", "%PDF-1.7" + much},
      {"l.txt", "\x7f"
                "ELF" +
                    much},
      {"m.txt", "SQLite format 3\0"s + much},
      {"n.txt", "\x89HDF\r\n\x1a\n" + much},
      {"o.jsonl", much},
      {"p.json", much},
      {"q.txt", "{\"text\": \"Once\"}\n" + much},
      {"r.npy", much},
      {"s.bin", "PK\x03\x04" + much}};
  for (const auto &[name, bytes] : files) {
    std::string path = directory.write(name, bytes);
    expectSays(openError(path),
               {name.c_str(), "expected text or tokens, found ", ("bytes:" + path).c_str()});
    EXPECT_EQ(openError("bytes:" + path), "accepted") << name;
    EXPECT_FALSE(dataFingerprint("bytes:" + path).failed());
  }
  EXPECT_EQ(openError(directory.write("prose.txt", "{ is a brace, \"this\" a word: " + much)),
            "accepted");
  EXPECT_EQ(openError(directory.write("gz.bin", tokens(30))), "accepted");
  EXPECT_EQ(openError("bytes:" + directory.write("odd.bin", much + "x")), "accepted");
}

TEST_F(Data, FilesWithoutAHeaderAreReadByTheirContents) {
  const std::vector<int64_t> expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  auto numbers = [](auto zero) {
    std::vector<decltype(zero)> out(40);
    std::iota(out.begin(), out.end(), zero);
    return bytesOfNumbers(out);
  };
  for (int64_t vocabulary : {256, 50257, 70000}) {
    bundle.summary.mutable_inputs(0)->set_upper_bound(vocabulary);
    bundle.summary.mutable_inputs(1)->set_upper_bound(vocabulary);
    for (const auto &[name, bytes] :
         {std::pair("u16.bin", numbers(uint16_t())), std::pair("u32.bin", numbers(uint32_t())),
          std::pair("i32.bin", numbers(int32_t())), std::pair("i64.bin", numbers(int64_t()))}) {
      auto source = open(directory.write(name, bytes));
      ASSERT_TRUE(source) << name;
      EXPECT_EQ(source->samplesPerEpoch(), 9u) << name;
      EXPECT_EQ(values(**source->batchFrom(0), 0), expected) << name << " of " << vocabulary;
    }
  }
  // Ids beyond 16 bits, in a large file of which only parts are inspected.
  std::vector<uint32_t> large(1 << 20);
  for (size_t i = 0; i < large.size(); ++i)
    large[i] = uint32_t(i * 2654435761u % 70000);
  auto source = open(directory.write("large.bin", bytesOfNumbers(large)));
  ASSERT_TRUE(source);
  expectSays(source->description()[0], {"uint32 tokens, 1048576 tokens"});
  // If both types are possible, the user must choose.
  bundle.summary.mutable_inputs(0)->set_upper_bound(256);
  bundle.summary.mutable_inputs(1)->set_upper_bound(256);
  std::string zeros = directory.write("zeros.bin", std::string(160, '\0'));
  expectSays(openError(zeros), {"zeros.bin", "--data-type"});
  for (const auto &[type, samples] :
       {std::pair(StoredType::U16, 19u), std::pair(StoredType::U32, 9u),
        std::pair(StoredType::U8, 39u)}) {
    auto said = DataSource::open(bundle, zeros, std::nullopt, type);
    ASSERT_FALSE(said.failed()) << said.message();
    EXPECT_EQ((*said)->samplesPerEpoch(), samples);
  }
  auto odd =
      DataSource::open(bundle, directory.write("six.bin", "123456"), std::nullopt, StoredType::I64);
  expectSays(odd.failed() ? odd.message() : "accepted",
             {"six.bin", "--data-type says int64", "6 bytes"});
}

TEST_F(Data, TextIsForModelsWhoseTokensAreBytes) {
  bundle.summary.mutable_inputs(0)->set_upper_bound(50257);
  bundle.summary.mutable_inputs(1)->set_upper_bound(50257);
  std::string path = directory.write("prose.txt", std::string(200, 'x'));
  expectSays(openError(path), {"prose.txt", "below 50257", "python3 -m zorse.data", "bytes:"});
  EXPECT_EQ(openError("bytes:" + path), "accepted");
}

TEST_F(Data, LabelsAreShiftedOnce) {
  std::vector<int64_t> ids(16, 5);
  std::string files =
      "input_ids=" + directory.write("d/ids-0.npy", npy("<i8", "(4, 4)", bytesOfNumbers(ids))) +
      ",labels=" + directory.write("d/labels-0.npy", npy("<i8", "(4, 4)", bytesOfNumbers(ids)));
  EXPECT_EQ(openError(files), "accepted") << "no data.json";
  for (bool shifts : {false, true})
    for (const char *labels : {"next", "same"}) {
      bundle.summary.mutable_inputs(1)->set_shifted_in_graph(shifts);
      directory.write("d/data.json",
                      std::string(R"({"fingerprint": "f", "settings": {"labels": ")") + labels +
                          "\"}}");
      if (shifts == (std::string(labels) == "same"))
        EXPECT_EQ(openError(files), "accepted");
      else
        expectSays(openError(files),
                   {"labels-0.npy", "data.json", shifts ? "--labels same" : "--labels next"});
    }
  directory.write("d/data.json", "[[[{");
  EXPECT_EQ(openError(files), "accepted") << "of something else";
}

/// Pickles of [i, i + 1, ...] by protocol, written by CPython: `pickle.dumps(list(range(100, 130)),
/// protocol)` and others.
TEST_F(Data, PicklesOfEveryProtocolAreRefused) {
  using namespace std::string_literals;
  const std::vector<std::string> pickles = {
      "(lp0\nI100\naI101\naI102\na."s,
      "(dp0\nVids\np1\n(lp2\nI1\naI2\nas."s,
      "cnumpy.core.multiarray\n_reconstruct\np0\n(cnumpy\nndarray\np1\n(I0\ntp2\nVb\np3\ntp4\nRp5\n."s,
      "]q\x00(KdKeKfe."s,
      "}q\x00X\x03\0\0\0idsq\x01]q\x02(K\x01K\x02"
      "es."s,
      "\x80\x02]q\x00(KdKeKfe."s,
      "\x80\x03]q\x00(KdKeKfe."s,
      "\x80\x04\x95\x0b\0\0\0\0\0\0\0]\x94(KdKeKfe."s,
      "\x80\x04K\x01."s,
      "\x80\x05\x95\x0b\0\0\0\0\0\0\0]\x94(KdKeKfe."s,
      "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."s +
          std::string(100, '\1'), // old torch.save
  };
  for (size_t i = 0; i < pickles.size(); ++i)
    for (const char *suffix : {".txt", ".bin"})
      expectSays(openError(directory.write(std::to_string(i) + suffix, pickles[i])),
                 {"found a pickle"});
  for (const char *text : {"I came. I saw. I conquered.", "Very good\n.\n", "(a) one (b) two.",
                           "Nothing to see here.", "cat\ndog\n.", "\n.", "K."}) {
    std::string error = openError(directory.write("prose.txt", text + std::string(60, ' ') + "."));
    EXPECT_EQ(error.find("pickle"), std::string::npos) << text << ": " << error;
  }
}

TEST_F(Data, SaysHowItWasRead) {
  auto source = open(directory.write("nano.bin", tokens(30)));
  ASSERT_TRUE(source);
  ASSERT_EQ(source->description().size(), 1u) << "one file, though it feeds two inputs";
  expectSays(source->description()[0],
             {"nano.bin: uint16 tokens, 30 tokens, the first are 0, 1, 2, 3, 4, 5, 6, 7"});
  std::vector<int64_t> ids(12, 5), labels(12, -100);
  source =
      open("input_ids=" + directory.write("a.npy", npy("<i8", "(3, 4)", bytesOfNumbers(ids))) +
           ",labels=" + directory.write("b.npy", npy("<i8", "(3, 4)", bytesOfNumbers(labels))));
  ASSERT_TRUE(source);
  ASSERT_EQ(source->description().size(), 2u);
  expectSays(source->description()[1],
             {"b.npy: input 'labels', I64 [3x4], the first values are -100, -100"});
}

TEST_F(Data, WrongDataIsRefused) {
  expectSays(openError(directory.path("none.bin")), {"none.bin", "cannot be read"});
  expectSays(openError(directory.write("short.bin", tokens(12))),
             {"short.bin", "holds 2 samples, one batch needs 3"});
  expectSays(openError(directory.write("empty.txt", "")), {"empty.txt", "holds 0 samples"});
  expectSays(openError(directory.write("odd.bin", "123")), {"odd.bin", "odd number of bytes"});
  std::string header(1024, '\0');
  int32_t words[] = {20240520, 1, 31};
  std::memcpy(header.data(), words, sizeof words);
  expectSays(openError(directory.write("cut.bin", header + tokens(30))),
             {"cut.bin", "says 31 tokens", "holds 30"});

  std::string good = npy("<i8", "(3, 4)", std::string(96, '\0'));
  std::string a = directory.write("a.npy", good);
  expectSays(openError("nothing=" + a), {"no input 'nothing'", "'input_ids', 'labels'"});
  expectSays(openError("input_ids=" + a), {"nothing feeds input 'labels'"});
  expectSays(openError(""), {"expects files of tokens"});
  expectSays(openError("x.bin,y.bin"), {"x.bin", "cannot be read"});
  auto array = [&](const std::string &bytes) {
    return openError("input_ids=" + directory.write("x.npy", bytes) + ",labels=" + a);
  };
  EXPECT_EQ(array(good), "accepted");
  expectSays(array("\x93NUMPY"), {"x.npy", "does not start"});
  expectSays(array("PK\3\4 a zip file, not an array"), {"x.npy", "does not start"});
  expectSays(array(good.substr(0, 40)), {"ends in its header"});
  expectSays(array(good.substr(0, good.size() - 1)), {"needs more bytes"});
  expectSays(array(npy("<c16", "(3, 4)", "")), {"'<c16' are not supported"});
  expectSays(array(npy("<i8", "(3, 4)", std::string(96, '\0'), "True")), {"C order"});
  expectSays(array(npy("<i8", "(4, 3)", std::string(96, '\0'))),
             {"expects an array of shape samplesx4, got 4x3"});
  expectSays(array(npy("<i8", "(x, 4)", std::string(96, '\0'))), {"'shape' cannot be read"});
  expectSays(array(npy("<f4", "(3, 4)", std::string(48, '\0'))), {"expects integers"});
  expectSays(array(npy("<i8", "(4, 4)", std::string(128, '\0'))), {"has 3 samples", "has 4"});
  expectSays(array(npy("<i8", "(999999999999, 4)", "")), {"needs more bytes"});
  for (size_t at = 0; at < good.size(); ++at) { // no crash, whichever byte changes
    std::string bad = good;
    bad[at] = '\'';
    (void)array(bad);
  }
}

TEST(Schedule, WarmUpThenConstantLinearOrCosine) {
  bundle::TrainingOptions o;
  o.set_learning_rate(2.0);
  o.set_warmup_steps(10);
  o.set_schedule(bundle::TrainingOptions::CONSTANT);
  EXPECT_DOUBLE_EQ(learningRate(o, 1, 100), 0.2);
  EXPECT_DOUBLE_EQ(learningRate(o, 10, 100), 2.0);
  EXPECT_DOUBLE_EQ(learningRate(o, 99, 100), 2.0);
  o.set_schedule(bundle::TrainingOptions::LINEAR);
  o.set_final_ratio(0.1);
  EXPECT_DOUBLE_EQ(learningRate(o, 55, 100), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learningRate(o, 100, 100), 0.2);
  EXPECT_DOUBLE_EQ(learningRate(o, 500, 100), 0.2);
  o.set_total_steps(20);
  EXPECT_DOUBLE_EQ(learningRate(o, 15, 100), 2.0 * 0.55);
  o.set_schedule(bundle::TrainingOptions::COSINE);
  EXPECT_DOUBLE_EQ(learningRate(o, 15, 100), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learningRate(o, 20, 100), 0.2);
  o.set_warmup_steps(0);
  EXPECT_LT(learningRate(o, 1, 100), 2.0);
}

TEST(Schedule, WarmupStableDecayEndsWithTheRun) {
  bundle::TrainingOptions o;
  o.set_learning_rate(2.0);
  o.set_schedule(bundle::TrainingOptions::WARMUP_STABLE_DECAY);
  EXPECT_DOUBLE_EQ(learningRate(o, 90, 100), 2.0);
  EXPECT_DOUBLE_EQ(learningRate(o, 95, 100), 1.0); // a tenth of the steps by default
  EXPECT_DOUBLE_EQ(learningRate(o, 100, 100), 0.0);
  o.set_wsd_decay_steps(40);
  EXPECT_DOUBLE_EQ(learningRate(o, 80, 100), 1.0);
  o.set_wsd_decay_style(bundle::TrainingOptions::MINUS_SQRT_STYLE);
  EXPECT_DOUBLE_EQ(learningRate(o, 70, 100), 1.0);
}

TEST(Schedule, TableIsLinearBetweenItsPoints) {
  bundle::TrainingOptions o;
  o.set_learning_rate(2.0);
  o.set_schedule(bundle::TrainingOptions::TABLE);
  for (auto [step, factor] : {std::pair(5, 0.5), std::pair(10, 1.0), std::pair(20, 0.0)}) {
    auto *point = o.add_points();
    point->set_step(step);
    point->set_factor(factor);
  }
  EXPECT_DOUBLE_EQ(learningRate(o, 1, 100), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(o, 8, 100), 1.6);
  EXPECT_DOUBLE_EQ(learningRate(o, 10, 100), 2.0);
  EXPECT_DOUBLE_EQ(learningRate(o, 15, 100), 1.0);
  EXPECT_DOUBLE_EQ(learningRate(o, 50, 100), 0.0);
  o.set_warmup_steps(4);
  EXPECT_DOUBLE_EQ(learningRate(o, 2, 100), 1.0);
}

} // namespace
