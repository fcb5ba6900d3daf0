// A bundle with devices that only hold state. It has parameters "p0", "p1", ... in groups; some
// devices own their elements.
#pragma once

#include "TemporaryDirectory.h"

#include "zorse/runtime/Elements.h"
#include "zorse/runtime/Executor.h"

#include <cstring>
#include <random>

namespace zorse::runtime::test {

struct StateOnlyOptions {
  uint32_t devices = 2, moments = 2;
  int64_t scale = 10; ///< elements of parameter i: (i + 1) * scale
  std::vector<std::vector<uint32_t>> groups = {{0, 1}, {2}}; ///< parameters of each group
  std::vector<uint32_t> frozen = {3};
  unsigned seed = 1;             ///< for the owners' extents
  bool firstOwnsNothing = false; ///< device 0 has no trained state; needs another device
  bundle::ElementType type = bundle::F32;
};

inline Bundle stateOnly(const TemporaryDirectory &directory, const StateOnlyOptions &o) {
  Bundle bundle;
  bundle.directory = directory.path("state.zorse");
  std::filesystem::create_directories(bundle.directory + "/kernels");
  bundle.model = "state";
  bundle.precision = o.type == bundle::F64 ? "f64" : "f32";
  bundle.batch = 8;
  bundle.plan = "{}";
  bundle::ModelSummary &s = bundle.summary;
  s.set_name("state");
  s.set_content_hash("feed");
  {
    auto *rule = s.add_update_rules();
    for (int m = 0; m < int(o.moments); ++m)
      rule->add_states()->set_entries(1);
  }
  s.set_count_function(-1);
  s.mutable_training()->set_optimizer(bundle::TrainingOptions::ADAMW);
  uint32_t parameters = 0;
  for (const auto &group : o.groups)
    parameters += uint32_t(group.size());
  parameters += uint32_t(o.frozen.size());
  for (uint32_t p = 0; p < parameters; ++p) {
    bundle::ParameterInfo &info = *s.add_parameters();
    info.set_name("p" + std::to_string(p));
    info.add_shape(p + 1);
    info.add_shape(o.scale);
    info.set_type(o.type);
    WeightSource weight;
    weight.name = info.name();
    weight.file = bundle.directory + "/weights.bin";
    weight.type = o.type == bundle::F64 ? "f64" : "f32";
    weight.shape = {o.scale, int64_t(p) + 1};
    weight.permutation = {1, 0};
    bundle.weights.push_back(weight);
  }
  auto addGroup = [&](const std::vector<uint32_t> &members, bool trainable) {
    uint32_t index = uint32_t(s.groups_size());
    bundle::FlatGroupInfo &group = *s.add_groups();
    group.set_name("g" + std::to_string(index));
    group.set_trainable(trainable);
    group.set_type(o.type);
    int64_t offset = 0;
    for (uint32_t p : members) {
      group.add_parameters(p);
      s.mutable_parameters(int(p))->set_group(index);
      s.mutable_parameters(int(p))->set_offset(offset);
      s.mutable_parameters(int(p))->set_trainable(trainable);
      offset = (offset + (p + 1) * o.scale + 127) / 128 * 128; // padding between parameters
    }
    group.set_elements(offset);
  };
  for (const auto &group : o.groups)
    addGroup(group, true);
  if (!o.frozen.empty())
    addGroup(o.frozen, false);

  std::mt19937 random(o.seed);
  for (uint32_t d = 0; d < o.devices; ++d) {
    bundle.devices.push_back({"dev:" + std::to_string(d), "cpu", 1, 0});
    bundle::Program &program = bundle.programs.emplace_back();
    program.set_device(d);
    program.set_device_name(bundle.devices[d].name);
    program.add_arenas()->set_kind(bundle::DEVICE);
  }
  std::vector<uint64_t> top(o.devices, 0);
  auto place = [&](uint32_t d, bundle::Value::Kind kind, uint32_t id, uint32_t cut, int64_t begin,
                   int64_t end, bundle::ElementType type) {
    bundle::PersistentState &state = *bundle.programs[d].add_state();
    state.set_type(type);
    state.mutable_value()->set_kind(kind);
    state.mutable_value()->set_id(id);
    state.mutable_value()->set_cut(cut);
    state.mutable_value()->set_begin(begin);
    state.mutable_value()->set_end(end);
    state.mutable_region()->set_offset(top[d]);
    state.mutable_region()->set_bytes(uint64_t(end - begin) * elementBytes(type));
    top[d] += (state.region().bytes() + 63) / 64 * 64;
  };
  for (uint32_t g = 0; g < uint32_t(s.groups_size()); ++g) {
    int64_t elements = s.groups(int(g)).elements();
    if (!s.groups(int(g)).trainable()) {
      for (uint32_t d = 0; d < o.devices; ++d)
        place(d, bundle::Value::PARAMETERS, g, 0, 0, elements, o.type);
      continue;
    }
    std::vector<int64_t> cuts = {0, elements};
    for (uint32_t d = 1; d < o.devices; ++d)
      cuts.push_back(o.firstOwnsNothing && d == 1
                         ? 0
                         : std::uniform_int_distribution<int64_t>(0, elements)(random));
    std::sort(cuts.begin(), cuts.end());
    for (uint32_t d = 0; d < o.devices; ++d) {
      if (cuts[d] == cuts[d + 1])
        continue;
      place(d, bundle::Value::PARAMETERS, g, 0, cuts[d], cuts[d + 1], o.type);
      for (uint32_t m = 0; m < o.moments; ++m)
        place(d, bundle::Value::MOMENTS, g, m, cuts[d], cuts[d + 1], o.type);
    }
  }
  for (uint32_t d = 0; d < o.devices; ++d) {
    place(d, bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 1, bundle::F64);
    bundle.programs[d].mutable_arenas(0)->set_bytes(top[d] + 64);
  }
  return bundle;
}

/// The value of element `e` of a parameter (moment -1) or moment after `step`; exact in f32.
inline double stateNumber(uint32_t parameter, int moment, int64_t e, uint64_t step) {
  return double((uint64_t(e) * 31 + parameter * 1009 + uint64_t(moment + 1) * 77 + step * 131071) %
                1000003) /
         4;
}

/// Visits every element of a parameter that a device of the executor holds.
/// \param written  executor that receives the visited data; null: none
template <typename Visit>
void eachElement(const Bundle &bundle, const Executor &executor, const Visit &visit,
                 Executor *written = nullptr) {
  for (uint32_t device : executor.devices())
    for (const bundle::PersistentState &state : bundle.programs[device].state()) {
      const bundle::Value &value = state.value();
      if (value.kind() == bundle::Value::OPTIMIZER_STEP)
        continue;
      std::vector<std::byte> bytes(state.region().bytes());
      std::byte *data = bytes.data();
      (void)executor.read(device, state.region(), 0, data, bytes.size());
      for (uint32_t p : bundle.summary.groups(int(value.id())).parameters()) {
        const bundle::ParameterInfo &info = bundle.summary.parameters(int(p));
        int64_t count = info.shape(0) * info.shape(1);
        for (int64_t e = std::max<int64_t>(0, value.begin() - info.offset());
             e < count && info.offset() + e < value.end(); ++e)
          visit(p, value.kind() == bundle::Value::MOMENTS ? int(value.cut()) : -1, e, state.type(),
                data + uint64_t(info.offset() + e - value.begin()) * elementBytes(state.type()));
      }
      if (written)
        (void)written->write(device, state.region(), 0, data, bytes.size());
    }
}

inline void fillState(const Bundle &bundle, Executor &executor, uint64_t step) {
  for (uint32_t device : executor.devices())
    for (const bundle::PersistentState &state : bundle.programs[device].state()) {
      (void)executor.clear(device, state.region());
      double number = double(step);
      if (state.value().kind() == bundle::Value::OPTIMIZER_STEP)
        (void)executor.write(device, state.region(), 0, &number, 8);
    }
  eachElement(
      bundle, executor,
      [&](uint32_t p, int moment, int64_t e, bundle::ElementType type, std::byte *data) {
        double number =
            stateNumber(p, moment, e, bundle.summary.parameters(int(p)).trainable() ? step : 0);
        convertElements(&number, StoredType::F64, data, storedType(type), 1);
      },
      &executor);
}

/// Number of elements that differ from the state after `step`. The optimizer step counts as one
/// element per device.
inline int64_t wrongElements(const Bundle &bundle, const Executor &executor, uint64_t step,
                             bool withMoments = true) {
  int64_t wrong = 0;
  eachElement(bundle, executor,
              [&](uint32_t p, int moment, int64_t e, bundle::ElementType type, std::byte *data) {
                double number,
                    expected = stateNumber(
                        p, moment, e, bundle.summary.parameters(int(p)).trainable() ? step : 0);
                convertElements(data, storedType(type), &number, StoredType::F64, 1);
                wrong += number != (moment >= 0 && !withMoments ? 0.0 : expected);
              });
  for (uint32_t device : executor.devices())
    for (const bundle::PersistentState &state : bundle.programs[device].state())
      if (state.value().kind() == bundle::Value::OPTIMIZER_STEP) {
        double number;
        (void)executor.read(device, state.region(), 0, &number, 8);
        wrong += number != (withMoments ? double(step) : 0.0);
      }
  return wrong;
}

/// `devices`: empty means all.
inline std::unique_ptr<Executor> stateExecutor(const Bundle &bundle,
                                               std::vector<uint32_t> devices = {}) {
  if (devices.empty())
    for (uint32_t d = 0; d < bundle.devices.size(); ++d)
      devices.push_back(d);
  std::vector<std::unique_ptr<Transport>> transports =
      makeLocalTransports(uint32_t(bundle.devices.size()));
  std::vector<LocalDevice> locals;
  for (uint32_t d : devices) {
    auto device = makeDevice(bundle, d, 0, int(bundle.devices.size()));
    if (device.failed())
      return nullptr;
    locals.push_back({d, std::move(*device), std::move(transports[d])});
  }
  auto executor = Executor::create(bundle, std::move(locals), {});
  if (executor.failed())
    std::fprintf(stderr, "%s\n", executor.message().c_str());
  return executor.failed() ? nullptr : std::move(*executor);
}

} // namespace zorse::runtime::test
