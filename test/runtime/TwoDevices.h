// A whole training program built by hand, for two devices: loss = sum over rows of (2 x) . w,
// trained by SGD.
//
//   alpha   load x, F(unit 0): y = 2 x, send y; owns w[0, 2)
//   beta    receive y, F(unit 1): loss = y . w, B(unit 1): gradient of w; owns w[2, 4), gathers w,
//           reduces its gradient to both
//
// It has two micro-batches of 3 and 2 rows. Every instruction waits for all earlier instructions on
// its device, because the test covers the executor and not overlap.
#pragma once

#include "ArgumentBindings.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Bundle.h"

#include <cmath>
#include <cstring>
#include <map>
#include <string>

namespace zorse::runtime::test {

class TwoDevices {
public:
  static constexpr int64_t kBatch = 5, kWidth = 4;

  explicit TwoDevices(const std::string &directory) {
    bundle.directory = directory;
    bundle.kernels = directory + "/kernels";
    bundle.model = "two";
    bundle.precision = "f32";
    bundle.batch = kBatch;
    bundle.sequence = kWidth;
    bundle.devices = {{"alpha", "cpu", 1, 1 << 20}, {"beta", "cpu", 2, 0}};
    bundle.plan = "{}";
    bundle.programs.resize(2);
    summary();
    functions();
    programs();
    WeightSource w;
    w.name = "w";
    w.file = directory + "/weights.bin";
    w.offset = 8;
    w.bytes = 16;
    w.type = "f32";
    w.shape = {4};
    bundle.weights = {w};
  }

  Bundle bundle;

private:
  void summary() {
    bundle::ModelSummary &s = bundle.summary;
    s.set_name("two");
    s.set_compute_type(bundle::F32);
    for (const char *name : {"first", "second"})
      s.add_units()->set_name(name);
    bundle::GraphInput &x = *s.add_inputs();
    x.set_name("x");
    x.add_shape(kWidth);
    x.set_type(bundle::F32);
    x.set_bytes_per_row(16);
    bundle::ParameterInfo &w = *s.add_parameters();
    w.set_name("w");
    w.add_shape(kWidth);
    w.set_type(bundle::F32);
    w.set_trainable(true);
    bundle::FlatGroupInfo &group = *s.add_groups();
    group.set_name("g");
    group.add_parameters(0);
    group.set_elements(kWidth);
    group.set_trainable(true);
    group.set_type(bundle::F32);
    bundle::LossTerm &term = *s.add_loss();
    term.set_factor("1/B");
    s.set_count_function(-1);
    s.mutable_training()->set_learning_rate(0.5);
    s.mutable_training()->set_schedule(bundle::TrainingOptions::CONSTANT);
  }

  static void argument(bundle::CompiledFunction &function, bundle::ArgumentKind kind,
                       uint32_t index, bundle::AccessMode mode, int64_t fixed, int64_t perRow) {
    bundle::FunctionArgument &argument = *function.add_arguments();
    argument.set_kind(kind);
    argument.set_index(index);
    argument.set_mode(mode);
    argument.mutable_bytes()->set_fixed(fixed);
    argument.mutable_bytes()->set_per_row(perRow);
    argument.set_type(bundle::F32);
  }
  static void kernel(bundle::CompiledFunction &function, const char *symbol, int64_t fixed,
                     int64_t perRow) {
    bundle::KernelLaunch &launch = *function.add_launches()->mutable_kernel();
    launch.set_symbol(symbol);
    for (int i = 0; i < function.arguments_size(); ++i)
      launch.add_operands()->set_argument(i);
    launch.mutable_iterations()->set_fixed(fixed);
    launch.mutable_iterations()->set_per_row(perRow);
  }
  static void library(bundle::CompiledFunction &function, const char *name) {
    bundle::LibraryCall &call = *function.add_launches()->mutable_library();
    call.set_name(name);
    call.set_type(bundle::F32);
    for (int i = 0; i < function.arguments_size(); ++i)
      call.add_operands()->set_argument(i);
  }

  enum { Double, Dot, DotGradient, SumLoss, Norm, Decide, Update };

  void functions() {
    bundle.functions.set_arch("x86-64");
    bundle.functions.add_objects("kernels.so");
    auto add = [&](const char *name) -> bundle::CompiledFunction & {
      bundle::CompiledFunction &function = *bundle.functions.add_functions();
      function.set_name(name);
      return function;
    };
    using namespace bundle;
    bundle::CompiledFunction &twice = add("double");
    argument(twice, INPUT, 0, READ, 0, 16);
    argument(twice, BOUNDARY_OUT, 0, WRITE, 0, 16);
    kernel(twice, "zorse_test_double", 0, 4);
    bundle::CompiledFunction &dot = add("dot");
    argument(dot, BOUNDARY_IN, 0, READ, 0, 16);
    argument(dot, PARAMETER, 0, READ, 16, 0);
    argument(dot, LOSS, 0, WRITE, 0, 4);
    kernel(dot, "zorse_test_dot", 0, 1);
    bundle::CompiledFunction &gradient = add("dot gradient");
    argument(gradient, BOUNDARY_IN, 0, READ, 0, 16);
    argument(gradient, SCALARS, 0, READ, kScalarsBytes, 0);
    argument(gradient, PARAMETER_GRADIENT, 0, ACCUMULATE, 16, 0);
    kernel(gradient, "zorse_test_dot_gradient", 4, 0);
    gradient.mutable_launches(0)->mutable_kernel()->add_accumulates(2);
    bundle::CompiledFunction &sum = add("sum loss");
    argument(sum, LOSS, 0, READ, 0, 4);
    argument(sum, LOCAL_METRICS, 0, ACCUMULATE, kSumsBytes, 0);
    library(sum, "sum_loss");
    bundle::CompiledFunction &norm = add("norm");
    argument(norm, STATE, 1, READ, 0, 4);
    argument(norm, LOCAL_METRICS, 0, ACCUMULATE, kSumsBytes, 0);
    library(norm, "squared_norm");
    bundle::CompiledFunction &decide = add("decide");
    argument(decide, LOCAL_METRICS, 0, READ, kSumsBytes, 0);
    argument(decide, SCALARS, 0, UPDATE, kScalarsBytes, 0);
    argument(decide, OPTIMIZER_STEP, 0, UPDATE, 8, 0);
    library(decide, "decide");
    bundle::CompiledFunction &update = add("update");
    argument(update, STATE, 0, UPDATE, 0, 4);
    argument(update, STATE, 1, READ, 0, 4);
    argument(update, SCALARS, 0, READ, kScalarsBytes, 0);
    kernel(update, "zorse_test_sgd", 0, 1);
  }

  // Offsets in each device's arena of 4096 bytes.
  static constexpr uint64_t kScalars = 0, kSums = kScalarsBytes, kStep = kScalarsBlock, kW = 1088,
                            kX = 1152, kY = 1280, kLoss = 1408, kGradient = 1472, kShard = 1536;

  static bundle::Region region(uint64_t offset, uint64_t bytes) {
    bundle::Region r;
    r.set_offset(offset);
    r.set_bytes(bytes);
    return r;
  }

  /// Appends an instruction. It waits for all earlier instructions on its device, in this step or
  /// the last.
  bundle::Instruction &instruction(uint32_t device, uint32_t id, uint32_t queue,
                                   bundle::Phase phase) {
    bundle::Instruction &e = *bundle.programs[device].add_instructions();
    e.set_id(id);
    e.set_queue(queue);
    e.set_phase(phase);
    return e;
  }

  /// A region and its value's range.
  struct Bound {
    Bound(const bundle::Region &region, int64_t begin = 0, int64_t end = 0, bool overwrite = false)
        : region(region), overwrite(overwrite) {
      value.set_begin(begin);
      value.set_end(end);
    }
    bundle::Region region;
    bundle::Value value;
    bool overwrite;
  };

  /// Appends an instruction with one call.
  void call(uint32_t device, uint32_t id, bundle::Phase phase, bundle::Compute::Task task, int cell,
            uint32_t function, int32_t unit, int64_t rows, int64_t base,
            const std::vector<Bound> &arguments) {
    bundle::Compute &compute = *instruction(device, id, 0, phase).mutable_compute();
    compute.set_task(task);
    compute.set_cell(cell);
    bundle::Call &c = *compute.add_calls();
    c.set_function(function);
    c.set_unit(unit);
    c.set_rows(rows);
    c.set_sample_base(base);
    bundle::ArgumentBinder binder(bundle.programs[device]);
    for (const Bound &argument : arguments)
      binder.bind(c, argument.region, argument.value, argument.overwrite);
  }

  void programs() {
    using namespace bundle;
    enum { SendQueue = 1, ReceiveQueue, Collectives, ToDevice, ToHost };
    const QueueKind kinds[] = {COMPUTE,          SEND_QUEUE,     RECEIVE_QUEUE,
                               COLLECTIVE_QUEUE, HOST_TO_DEVICE, DEVICE_TO_HOST};
    for (uint32_t d = 0; d < 2; ++d) {
      bundle::Program &p = bundle.programs[d];
      p.set_device(d);
      p.set_device_name(bundle.devices[d].name);
      p.add_arenas()->set_kind(DEVICE);
      p.mutable_arenas(0)->set_bytes(4096);
      for (QueueKind kind : kinds)
        p.add_queues()->set_kind(kind);
      PersistentState &w = *p.add_state();
      *w.mutable_region() = region(kW + 8 * d, 8); // beta's shard lies inside its whole copy
      w.set_type(F32);
      w.mutable_value()->set_kind(Value::PARAMETERS);
      w.mutable_value()->set_begin(2 * d);
      w.mutable_value()->set_end(2 * d + 2);
      PersistentState &step = *p.add_state();
      *step.mutable_region() = region(kStep, 8);
      step.set_type(F64);
      step.mutable_value()->set_kind(Value::OPTIMIZER_STEP);
    }

    uint32_t id = 0;
    for (uint32_t d = 0; d < 2; ++d)
      *instruction(d, id++, ToDevice, LOAD).mutable_load_scalars()->mutable_region() =
          region(kScalars, kScalarsBlock);
    const int64_t rows[] = {3, 2}, base[] = {0, 3};
    for (int mb = 0; mb < 2; ++mb) {
      LoadInput &load = *instruction(0, id++, ToDevice, LOAD).mutable_load_input();
      load.set_sample_base(base[mb]);
      load.set_rows(rows[mb]);
      *load.mutable_region() = region(kX + 16 * base[mb], 16 * rows[mb]);
    }
    auto extents = [](ShardRanges &shards) {
      for (uint32_t d = 0; d < 2; ++d) {
        shards.add_members(d);
        shards.add_begin(2 * d);
        shards.add_end(2 * d + 2);
      }
    };
    for (uint32_t d = 0; d < 2; ++d) {
      AllGather &gather = *instruction(d, id, Collectives, GATHER).mutable_all_gather();
      gather.set_type(F32);
      gather.mutable_value()->set_kind(Value::PARAMETERS);
      extents(*gather.mutable_shards());
      gather.add_readers(1);
      if (d == 1)
        *gather.mutable_full() = region(kW, 16);
      *gather.mutable_shard() = region(kW + 8 * d, 8);
    }
    ++id;
    for (int mb = 0; mb < 2; ++mb) {
      Region y = region(kY + 16 * base[mb], 16 * rows[mb]),
             loss = region(kLoss + 4 * base[mb], 4 * rows[mb]);
      call(0, id++, FORWARD, Compute::F, 2 * mb, Double, 0, rows[mb], base[mb],
           {region(kX + 16 * base[mb], 16 * rows[mb]), y});
      Send &send = *instruction(0, id, SendQueue, FORWARD).mutable_send();
      send.set_peer(1);
      *send.mutable_region() = y;
      Receive &receive = *instruction(1, id++, ReceiveQueue, FORWARD).mutable_receive();
      receive.set_peer(0);
      *receive.mutable_region() = y;
      call(1, id++, FORWARD, Compute::F, 2 * mb + 1, Dot, 1, rows[mb], base[mb],
           {y, region(kW, 16), loss});
      call(1, id++, FORWARD, Compute::SUM_LOSS, 2 * mb + 1, SumLoss, -1, rows[mb], base[mb],
           {Bound(loss, base[mb]), region(kSums, kSumsBytes)});
      call(1, id++, BACKWARD, Compute::B, 2 * mb + 1, DotGradient, 1, rows[mb], base[mb],
           {y, region(kScalars, kScalarsBytes), Bound(region(kGradient, 16), 0, 0, mb == 0)});
    }
    for (uint32_t d = 0; d < 2; ++d) {
      ReduceScatter &reduce = *instruction(d, id, Collectives, REDUCE).mutable_reduce_scatter();
      reduce.set_type(F32);
      reduce.mutable_value()->set_kind(Value::GRADIENTS);
      reduce.set_order(FIXED_ORDER);
      reduce.add_contributors(1);
      extents(*reduce.mutable_shards());
      if (d == 1)
        *reduce.mutable_full() = region(kGradient, 16);
      *reduce.mutable_shard() = shard(d);
    }
    ++id;
    for (uint32_t d = 0; d < 2; ++d)
      call(d, id++, GRAD_NORM, Compute::NORM, -1, Norm, -1, 2, 0,
           {shard(d), region(kSums, kSumsBytes)});
    for (uint32_t d = 0; d < 2; ++d) {
      AllReduce &sum = *instruction(d, id, Collectives, READ_METRICS).mutable_all_reduce();
      sum.add_members(0);
      sum.add_members(1);
      sum.set_type(F64);
      *sum.mutable_region() = region(kSums, kSumsBytes);
    }
    ++id;
    for (uint32_t d = 0; d < 2; ++d)
      call(d, id++, GRAD_NORM, Compute::CLIP_AND_CHECK, -1, Decide, -1, 1, 0,
           {region(kSums, kSumsBytes), region(kScalars, kScalarsBytes), region(kStep, 8)});
    for (uint32_t d = 0; d < 2; ++d)
      call(d, id++, UPDATE_STATE, Compute::UPDATE_GROUP, -1, Update, -1, 2, 0,
           {region(kW + 8 * d, 8), Bound(shard(d), 2 * d, 2 * d + 2),
            region(kScalars, kScalarsBytes)});
    *instruction(0, id++, ToHost, READ_METRICS).mutable_read_metrics()->mutable_region() =
        region(kScalars, kScalarsBlock);
    for (bundle::Program &p : bundle.programs)
      addWaits(p);
  }

  static bundle::Region shard(uint32_t device) {
    return device == 0 ? region(kShard, 8) : region(kGradient + 8, 8);
  }

  static void addWaits(bundle::Program &p) {
    std::map<uint32_t, uint32_t> lengths;
    for (const bundle::Instruction &e : p.instructions())
      ++lengths[e.queue()];
    std::map<uint32_t, uint32_t> seen;
    for (bundle::Instruction &e : *p.mutable_instructions()) {
      for (const auto &[queue, length] : lengths) {
        if (queue == e.queue() && seen[queue] > 0)
          continue;
        bundle::Wait &wait = *e.add_waits();
        wait.set_queue(queue);
        wait.set_previous_step(seen[queue] == 0);
        wait.set_position(seen[queue] == 0 ? length - 1 : seen[queue] - 1);
      }
      ++seen[e.queue()];
    }
  }
};

/// The same training in one loop.
struct TwoDevicesReference {
  float w[4] = {1, 2, 3, 4};

  /// One step on x [5, 4]. Returns the loss before the update and stores the gradient's norm in
  /// `norm`.
  double step(const float *x, double learningRate, double clip, double &norm,
              bool evaluate = false) {
    double loss = 0, squares = 0;
    float gradient[4] = {};
    for (int row = 0; row < 5; ++row)
      for (int j = 0; j < 4; ++j) {
        loss += double(2 * x[row * 4 + j]) * w[j] / 5;
        gradient[j] += 2 * x[row * 4 + j] / 5;
      }
    for (float g : gradient)
      squares += double(g) * g;
    norm = std::sqrt(squares);
    double factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
    for (int j = 0; j < 4 && !evaluate; ++j)
      w[j] -= float(learningRate * factor) * gradient[j];
    return loss;
  }
};

} // namespace zorse::runtime::test
