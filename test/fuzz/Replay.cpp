// Runs a fuzz target without libFuzzer, in every build: replays a corpus and a fixed number of
// mutated inputs, the same in every run.
//
//   fuzz-READER [--mutations N] [--seed S] FILE|DIRECTORY...
#include "Fuzz.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace zorse::fuzz;
namespace fs = std::filesystem;

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                                     unsigned seed);
}

static Random bytesRandom(1);

/// Flips bits, changes numbers, and removes, repeats and moves pieces. This suffices to test the
/// harness; libFuzzer finds faults.
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize) {
  std::string bytes(reinterpret_cast<char *>(data), size);
  Random &random = bytesRandom;
  size_t at = size ? random() % size : 0, length = 1 + random() % 16;
  switch (random() % 6) {
  case 0:
    if (size)
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    break;
  case 1:
    bytes.insert(at, 1, static_cast<char>(random()));
    break;
  case 2:
    bytes.erase(at, length);
    break;
  case 3:
    bytes.insert(size ? random() % size : 0, bytes.substr(at, length));
    break;
  case 4: {
    int64_t number = oddNumber(random);
    size_t width = size_t(1) << random() % 4;
    if (at + width <= size)
      memcpy(&bytes[at], &number, width);
    break;
  }
  default:
    bytes.resize(at);
  }
  return put(bytes, data, maxSize);
}

int main(int argc, char **argv) {
  std::vector<fs::path> files;
  unsigned long mutations = 0, seed = 1;
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--mutations") && i + 1 < argc)
      mutations = strtoul(argv[++i], nullptr, 10);
    else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
      seed = strtoul(argv[++i], nullptr, 10);
    else if (fs::is_directory(argv[i]))
      for (const auto &entry : fs::directory_iterator(argv[i]))
        files.push_back(entry.path());
    else
      files.push_back(argv[i]);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const fs::path &path : files) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file) {
      fprintf(stderr, "error: %s: cannot be read\n", path.c_str());
      return 1;
    }
  }
  if (corpus.empty()) {
    fprintf(stderr, "error: expects a corpus: files or directories of them\n");
    return 1;
  }

  double longest = 0;
  auto run = [&](const std::string &bytes) {
    auto begin = std::chrono::steady_clock::now();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
    longest = std::max(
        longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };
  for (size_t i = 0; i < corpus.size(); ++i) {
    fprintf(stderr, "%s\n", files[i].c_str()); // the last printed name is the input that crashed
    run(corpus[i]);
  }
  constexpr size_t kMaxSize = 1 << 16;
  std::vector<uint8_t> buffer(kMaxSize);
  bytesRandom.seed(static_cast<unsigned>(seed));
  for (unsigned long i = 0; i < mutations; ++i) {
    size_t size = put(corpus[i % corpus.size()], buffer.data(), kMaxSize);
    for (unsigned times = 1 + i % 3; times > 0; --times)
      size = LLVMFuzzerCustomMutator
                 ? LLVMFuzzerCustomMutator(buffer.data(), size, kMaxSize,
                                           static_cast<unsigned>(seed + 7919 * i + times))
                 : LLVMFuzzerMutate(buffer.data(), size, kMaxSize);
    run({reinterpret_cast<char *>(buffer.data()), size});
  }
  printf("%zu corpus files and %lu changed inputs; the longest took %.3f s\n", corpus.size(),
         mutations, longest);
  return longest < 60 ? 0 : 1;
}
