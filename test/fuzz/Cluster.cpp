// cluster.yaml: the compiler's reader and the plans made from what it accepts, and the runtime's comparison with a bundle.
#include "Fuzz.h"
#include "SyntheticModel.h"

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/DefaultPlan.h"
#include "zorse/runtime/Bundle.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const bundle::ModelSummary summary = test::makeModel({}).summary;
  static const runtime::Bundle compiled = [] {
    runtime::Bundle bundle;
    bundle.devices = {{"a", "cpu", 1, 0}, {"b:0", "cpu", 2, 0}, {"b:1", "cpu", 2, 0}};
    return bundle;
  }();
  (void)runtime::checkCluster(compiled, runtime::MappedFile::view("cluster.yaml", bytes.data(), bytes.size())).failed();

  std::string error;
  std::optional<planning::Cluster> cluster = planning::readCluster(std::string(bytes), error);
  ZORSE_FUZZ_EXPECT(cluster || !error.empty());
  if (!cluster || cluster->devices.size() > 12) // planning more takes too long for every input
    return cluster.has_value();
  if (std::optional<step::Plan> plan = planning::makeDefaultPlan(summary, *cluster, 4, error)) {
    ZORSE_FUZZ_EXPECT(step::validatePlan(*plan, summary, error));
    ZORSE_FUZZ_EXPECT(planning::applyCluster(*plan, *cluster, error));
  } else {
    ZORSE_FUZZ_EXPECT(!error.empty());
  }
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  static const std::vector<const char *> words = {
      "name",  "nodes", "links",  "devices", "kind",   "type",   "speed",   "memory",     "threads",    "count", "bandwidth", "latency", "intra_node", "inter_node", "cpu",
      "cuda",  "sim",   "H200",   "T4",      "A10G",   "1e12",   "2GiB",    "16 GB",      "MB/s",       "us",    ": ",        "- ",      "\n",         "\n  ",       "\n    - ",
      "{",     "}",     "[",      "]",       ", ",     "&a ",    "*a",      "<<: *a",     "#",          "---\n", "...\n",     "|\n",     ">\n",        "? ",         "!!str ",
      "!tag ", "'",     "\"",     "~",       "null",   "nan",    "inf",     "1e308",      "-1",         "65536", "\t",        "%YAML 1.2\n", "\\x41",   "\xc3\xa9",   "\xef\xbb\xbf",
  };
  fuzz::Random random(seed);
  return fuzz::put(fuzz::mutateText({reinterpret_cast<char *>(data), size}, words, random), data, maxSize);
}
