// A program survives the way to text and back, byte for byte, whatever its entries are.
#include "zorse/Conversion/ExecConversion.h"
#include "zorse/Dialect/Exec/Exec.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>
#include <random>

using namespace zorse;

namespace {

struct Maker {
  std::mt19937 random{7};
  int64_t upTo(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(random); }

  void fill(bundle::Region *region) {
    region->set_arena(upTo(1));
    region->set_offset(64 * upTo(100));
    region->set_bytes(64 * (1 + upTo(100)));
  }
  void fill(bundle::Value *value) {
    value->set_kind(static_cast<bundle::Value::Kind>(1 + upTo(12)));
    value->set_id(upTo(5));
    value->set_cut(upTo(3));
    value->set_begin(upTo(8));
    value->set_end(value->begin() + 1 + upTo(8));
    value->set_version(upTo(1));
  }
  void fill(bundle::Extents *extents) {
    for (uint32_t member : {0, 2}) {
      extents->add_members(member);
      extents->add_begin(512 * member);
      extents->add_end(512 * (member + 1));
    }
  }

  bundle::Program program(int entries) {
    bundle::Program program;
    program.set_device(1);
    program.set_device_name("t4:0");
    program.set_planned_bytes(20000);
    for (bundle::MemoryKind kind : {bundle::DEVICE, bundle::HOST}) {
      program.add_arenas()->set_kind(kind);
      program.mutable_arenas()->rbegin()->set_bytes(20000);
    }
    for (int kind = 1; kind <= 7; ++kind) {
      program.add_queues()->set_kind(static_cast<bundle::QueueKind>(kind));
      program.mutable_queues()->rbegin()->set_id(kind % 3);
    }
    bundle::PersistentState *state = program.add_state();
    fill(state->mutable_region());
    fill(state->mutable_value());
    state->set_type(bundle::BF16);

    std::vector<uint32_t> length(7, 0);
    for (int i = 0; i < entries; ++i) {
      bundle::Entry *e = program.add_entries();
      e->set_id(3 * i + upTo(2));
      e->set_phase(static_cast<bundle::Phase>(1 + upTo(7)));
      e->set_queue(upTo(6));
      if (upTo(1)) {
        e->set_planned_start(i * 1.1e-5);
        e->set_planned_end(i * 1.1e-5 + 1.0 / 3);
      }
      for (int w = upTo(2); w > 0; --w) {
        uint32_t queue = upTo(6);
        if (length[queue] == 0)
          continue;
        bundle::Wait *wait = e->add_waits();
        wait->set_queue(queue);
        wait->set_position(upTo(length[queue] - 1));
        wait->set_previous_step(upTo(1));
      }
      what(e, i % 10);
      ++length[e->queue()];
    }
    return program;
  }

  void what(bundle::Entry *e, int kind) {
    switch (kind) {
    case 0: {
      e->set_queue(0);
      bundle::Compute *compute = e->mutable_compute();
      bool update = upTo(1);
      compute->set_task(update ? bundle::Compute::UPDATE_GROUP : bundle::Compute::B);
      compute->set_cell(update ? -1 : 4);
      compute->set_group(update ? 2 : -1);
      for (int c = 0; c < 2; ++c) {
        bundle::Call *call = compute->add_calls();
        call->set_body(upTo(3));
        call->set_unit(update ? -1 : 3);
        call->set_rows(8);
        call->set_sample_base(8 * c);
        call->set_instance_base(upTo(1) ? uint64_t(1) << 63 : 0);
        for (int s = 0; s < 4; ++s) {
          bundle::SlotBinding *slot = call->add_slots();
          fill(slot->mutable_region());
          if (s)
            fill(slot->mutable_value());
          slot->set_overwrite(s == 2);
        }
      }
      return;
    }
    case 1:
      fill(e->mutable_copy()->mutable_from());
      *e->mutable_copy()->mutable_to() = e->copy().from();
      fill(e->mutable_copy()->mutable_value());
      return;
    case 2:
      e->mutable_send()->set_peer(2);
      fill(e->mutable_send()->mutable_region());
      fill(e->mutable_send()->mutable_value());
      return;
    case 3:
      fill(e->mutable_receive()->mutable_region());
      fill(e->mutable_receive()->mutable_value());
      return;
    case 4: {
      bundle::LoadInput *load = e->mutable_load_input();
      load->set_sample_base(4);
      load->set_rows(3);
      fill(load->mutable_region());
      load->mutable_value()->set_kind(bundle::Value::INPUT_ROWS);
      load->mutable_value()->set_begin(4);
      load->mutable_value()->set_end(7);
      return;
    }
    case 5:
      fill(e->mutable_load_scalars()->mutable_region());
      e->mutable_load_scalars()->mutable_value()->set_kind(bundle::Value::STEP_SCALARS);
      return;
    case 6: {
      bundle::AllGather *gather = e->mutable_all_gather();
      gather->set_group(3);
      gather->set_type(bundle::F64);
      fill(gather->mutable_shards());
      gather->add_readers(1);
      gather->add_readers(0);
      fill(gather->mutable_full());
      fill(gather->mutable_value());
      return;
    }
    case 7: {
      bundle::ReduceScatter *reduce = e->mutable_reduce_scatter();
      reduce->set_group(3);
      reduce->set_type(bundle::F32);
      reduce->set_order(bundle::RANKED);
      reduce->add_contributors(1);
      fill(reduce->mutable_shards());
      fill(reduce->mutable_full());
      fill(reduce->mutable_shard());
      fill(reduce->mutable_value());
      return;
    }
    case 8: {
      bundle::AllReduce *reduce = e->mutable_all_reduce();
      reduce->set_type(bundle::F64);
      reduce->set_order(bundle::TRANSPORT);
      for (uint32_t member : {0, 1, 2})
        reduce->add_members(member);
      fill(reduce->mutable_region());
      fill(reduce->mutable_from());
      fill(reduce->mutable_to());
      return;
    }
    default:
      fill(e->mutable_report()->mutable_region());
      fill(e->mutable_report()->mutable_value());
      return;
    }
  }
};

TEST(ProgramText, RoundTripIsLossless) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  bundle::Program program = Maker().program(220);
  conversion::ExecNames names;
  names.devices = {"a100:0", "t4:0", "b"};
  auto module = conversion::programToExec(&context, program, names);
  ASSERT_TRUE(mlir::succeeded(module));

  std::string text;
  llvm::raw_string_ostream os(text);
  (*module)->print(os);

  mlir::OwningOpRef<mlir::ModuleOp> parsed = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  ASSERT_TRUE(parsed) << text;
  auto back = conversion::execToProgram(*parsed);
  ASSERT_TRUE(mlir::succeeded(back));
  EXPECT_EQ(back->SerializeAsString(), program.SerializeAsString());
}

TEST(ProgramText, NamesAreForPeopleOnly) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  bundle::Program program = Maker().program(44);
  bundle::ModelSummary summary;
  bundle::BodyLibrary bodies;
  for (int i = 0; i < 8; ++i) {
    summary.add_units()->set_name("block " + std::to_string(i) + " \"mlp\"");
    summary.add_values()->set_name("h." + std::to_string(i));
    summary.add_groups()->set_name("g\n" + std::to_string(i));
    summary.add_inputs()->set_name("ids");
    bundle::Body *body = bodies.add_bodies();
    body->set_name("mlp.forward");
    for (int s = 0; s < 4; ++s)
      body->add_slots()->set_mode(s == 2 ? bundle::ACCUMULATE : bundle::READ);
  }
  conversion::ExecNames names{{"a", "t4:0", "c"}, &summary, &bodies};
  auto module = conversion::programToExec(&context, program, names);
  ASSERT_TRUE(mlir::succeeded(module));
  std::string text;
  llvm::raw_string_ostream os(text);
  (*module)->print(os);
  auto parsed = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  ASSERT_TRUE(parsed) << text;
  auto back = conversion::execToProgram(*parsed);
  ASSERT_TRUE(mlir::succeeded(back));
  EXPECT_EQ(back->SerializeAsString(), program.SerializeAsString());
  EXPECT_NE(text.find("add overwriting"), std::string::npos);
}

} // namespace
