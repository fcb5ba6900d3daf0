// The model for fuzzing data readers: ids [4], labels of the next tokens, a table of floats and a
// mask.
#pragma once

#include "zorse/runtime/Data.h"

namespace zorse::fuzz {

inline runtime::Bundle dataBundle(bool tokensOnly) {
  runtime::Bundle bundle;
  bundle.batch = 3;
  bundle.sequence = 4;
  auto add = [&](const char *name, bundle::ElementType type, std::initializer_list<int64_t> shape,
                 const char *role, int64_t upper) {
    bundle::GraphInput *input = bundle.summary.add_inputs();
    input->set_name(name);
    input->set_type(type);
    int64_t bytes = int64_t(zorse::elementBytes(type));
    for (int64_t dimension : shape) {
      input->add_shape(dimension);
      bytes *= dimension;
    }
    input->set_bytes_per_row(bytes);
    input->set_role(role);
    input->set_upper_bound(upper);
  };
  add("ids", bundle::I64, {4}, "ids", 1000);
  add("labels", bundle::I32, {4}, "labels", 1000);
  bundle.summary.mutable_inputs(1)->set_ignore_allowed(true);
  bundle.summary.mutable_inputs(1)->set_ignore_index(-100);
  if (!tokensOnly) {
    add("pixels", bundle::F32, {2, 3}, "", 0);
    add("mask", bundle::I1, {4}, "", 0);
    add("half", bundle::BF16, {}, "", 0);
  }
  return bundle;
}

/// Reads a few batches in file order and shuffled, including one of a late epoch.
inline bool readBatches(const runtime::Bundle &bundle, const std::string &specification) {
  bool good = true;
  for (std::optional<uint64_t> seed : {std::optional<uint64_t>(), std::optional<uint64_t>(7)}) {
    runtime::Result<std::unique_ptr<runtime::DataSource>> source =
        runtime::DataSource::open(bundle, specification, seed);
    if (source.failed())
      return false;
    for (uint64_t first : {uint64_t(0), uint64_t(3), uint64_t(3000009)})
      good &= !(*source)->batchFrom(first).failed();
  }
  good &= !runtime::dataFingerprint(specification).failed();
  return good;
}

} // namespace zorse::fuzz
