// Tests the human-readable text of programs: every kind of instruction, and invalid programs.
#include "zorse/Bundle/ProgramText.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

using namespace zorse;

namespace {

template <typename Message> Message parse(const std::string &text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

/// The program as text; empty on an error.
std::string textOf(const std::string &program, const bundle::ProgramNames &names) {
  zorse::Result<std::string> text = bundle::programText(parse<bundle::Program>(program), names);
  return text.failed() ? "" : *text;
}

const char *const kProgram = R"(
device: 1 device_name: "t4:0" planned_bytes: 36864
regions { offset: 4096 bytes: 4096 } regions { offset: 2304 bytes: 128 } regions { offset: 16384 bytes: 1024 }
values { kind: PARAMETERS id: 2 end: 1024 version: 1 } values { kind: LOCAL_METRICS } values {}
arenas { kind: DEVICE bytes: 36864 } arenas { kind: PINNED_HOST bytes: 4096 }
queues { kind: COMPUTE } queues { kind: SEND_QUEUE } queues { kind: RECEIVE_QUEUE id: 1 } queues { kind: COLLECTIVE_QUEUE }
state { value { kind: PARAMETERS id: 2 end: 512 } region { bytes: 2048 } type: F32 }
instructions { phase: LOAD load_scalars { value { kind: STEP_SCALARS } region { offset: 2048 bytes: 512 } } }
instructions { id: 1 queue: 2 phase: LOAD
  load_input { input: 1 sample_base: 8 rows: 8 value { kind: INPUT_ROWS id: 1 begin: 8 end: 16 } region { offset: 2560 bytes: 512 } } }
instructions { id: 3 queue: 3 phase: GATHER
  all_gather { group: 2 type: F32 value { kind: PARAMETERS id: 2 end: 1024 } shards { members: [1, 0] begin: [0, 512] end: [512, 1024] } readers: 1
               full { offset: 4096 bytes: 4096 } shard { bytes: 2048 } } }
instructions { id: 7 queue: 2 phase: FORWARD receive { value { kind: ACTIVATION id: 3 begin: 8 end: 16 } region { offset: 8192 bytes: 8192 } } }
instructions { id: 9 phase: FORWARD waits { queue: 2 position: 1 } waits { queue: 3 } planned_start: 0.001 planned_end: 2e-3
  compute { task: F cell: 2 group: -1
    calls { unit: 4 rows: 8 sample_base: 8 rng_id_base: 3 regions: [0, 1, 2] values: [0, 1, 2] overwrites: [false, true] } } }
instructions { id: 12 queue: 1 phase: BACKWARD waits { position: 1 }
  send { value { kind: ACTIVATION_GRADIENT id: 3 cut: 4 begin: 8 end: 16 } region { offset: 8192 bytes: 8192 } } }
instructions { id: 13 phase: BACKWARD waits { queue: 1 previous_step: true }
  copy { value { kind: SAVED_BLOCK id: 4 begin: 8 end: 16 } from { bytes: 64 } to { arena: 1 bytes: 64 } } }
instructions { id: 20 queue: 3 phase: REDUCE
  reduce_scatter { group: 2 type: F32 order: FIXED_ORDER value { kind: GRADIENTS id: 2 end: 1024 } contributors: 1
                   shards { members: [1, 0] begin: [0, 512] end: [512, 1024] } full { offset: 20480 bytes: 4096 } shard { offset: 20480 bytes: 2048 } } }
instructions { id: 21 queue: 3 phase: GRAD_NORM
  all_reduce { members: [0, 1] type: F64 order: FIXED_ORDER from { kind: LOCAL_METRICS } to { kind: GLOBAL_METRICS } region { offset: 2304 bytes: 128 } } }
instructions { id: 23 phase: UPDATE_STATE waits { queue: 3 position: 2 }
  compute { task: UPDATE_GROUP cell: -1 group: 2 calls { function: 7 unit: -1 rows: 512 } } }
instructions { id: 24 phase: READ_METRICS read_metrics { value { kind: GLOBAL_METRICS } region { offset: 2304 bytes: 128 } } }
)";

const char *const kText = R"(exec.program @"t4:0" device 1 of [@"a100:0", @"t4:0"] planned 36864 {
  exec.arena device 36864
  exec.arena pinned_host 4096
  exec.queue compute0
  exec.queue send0
  exec.queue receive1
  exec.queue collective0
  exec.state parameters 2 "head" [0:512] at 0:0+2048 : f32
  exec.load_scalars 0 scalars into 0:2048+512 on compute0 in load
  exec.load_input 1 input 1 "labels" [8:16] into 0:2560+512 on receive1 in load
  exec.all_gather 3 parameters 2 "head" [0:1024] group 2 : f32 shards [@"t4:0" 0:512, @"a100:0" 512:1024] readers [@"t4:0"] full 0:4096+4096 shard 0:0+2048 on collective0 in gather
  exec.receive 7 activation 3 "h\22\0A" [8:16] from @"a100:0" into 0:8192+8192 on receive1 in forward
  exec.compute 9 F cell 2 on compute0 in forward after [receive1:1, collective0:0] time [0.001, 0.002] {
    exec.call 0 "head.forward" unit 4 "block" rows [8:16] rng_id 3 (
      read parameters 2 "head" [0:1024] version 1 at 0:4096+4096,
      add overwriting local_metrics at 0:2304+128,
      write none at 0:16384+1024)
  }
  exec.send 12 activation_gradient 3 "h\22\0A" cut 4 [8:16] to @"a100:0" from 0:8192+8192 on send0 in backward after [compute0:1]
  exec.copy 13 saved 4 "block" [8:16] from 0:0+64 into 1:0+64 on compute0 in backward after [send0:0 previous]
  exec.reduce_scatter 20 gradients 2 "head" [0:1024] group 2 : f32 fixed_order of [@"t4:0"] shards [@"t4:0" 0:512, @"a100:0" 512:1024] full 0:20480+4096 shard 0:20480+2048 on collective0 in reduce
  exec.all_reduce 21 local_metrics becomes global_metrics : f64 fixed_order of [@"a100:0", @"t4:0"] at 0:2304+128 on collective0 in grad_norm
  exec.compute 23 update group 2 on compute0 in update after [collective0:2] {
    exec.call 7 rows [0:512]
  }
  exec.read_metrics 24 global_metrics at 0:2304+128 on compute0 in read_metrics
}
)";

TEST(ProgramText, ShowsEveryEntryWithNames) {
  const auto summary =
      parse<bundle::ModelSummary>("groups {} groups {} groups { name: 'head' } values {} values {} "
                                  "values {} values { name: 'h\"\\n' } "
                                  "units {} units {} units {} units {} units { name: 'block' } "
                                  "inputs {} inputs { name: 'labels' }");
  const auto functions =
      parse<bundle::FunctionLibrary>("functions { name: 'head.forward' arguments { mode: READ } "
                                     "arguments { mode: ACCUMULATE } arguments { mode: WRITE } }");
  EXPECT_EQ(textOf(kProgram, {{"a100:0", "t4:0"}, &summary, &functions}), kText);
}

TEST(ProgramText, ShowsWhatIsDirect) {
  const std::string text = textOf(R"(queues { kind: DEVICE_TO_DEVICE id: 2 }
    instructions { phase: REDUCE reduce_scatter { order: FIXED_ORDER receive_buffer { arena: 1 bytes: 1024 } chunk: 64 } }
    instructions { id: 1 phase: GRAD_NORM all_reduce { order: FIXED_ORDER receive_buffer { offset: 64 bytes: 16 } } })",
                                  {});
  EXPECT_NE(
      text.find("shard 0:0+0 receive_buffer 1:0+1024 chunk 64 on device_to_device2 in reduce"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("at 0:0+0 receive_buffer 0:64+16 on device_to_device2 in grad_norm"),
            std::string::npos)
      << text;
}

TEST(ProgramText, ShowsWhatIsBroken) {
  // A missing arena, an unknown device, function and kind, rows beyond 64 bits, a binding without a
  // value.
  const std::string text = textOf(R"(queues { kind: COMPUTE } regions { arena: 5 bytes: 8 }
    instructions { compute { task: B calls { function: 9 rows: 9223372036854775807 sample_base: 1 regions: 0 values: 9 } } }
    instructions { send { peer: 7 value { kind: ACTIVATION id: 99 } } })",
                                  {});
  EXPECT_NE(
      text.find("exec.call 9 unit 0 rows [1:-9223372036854775808] (\n      use none at 5:0+8)"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("exec.send 0 activation 99 to @device7 from 0:0+0"), std::string::npos)
      << text;
  // Programs that the text cannot represent.
  EXPECT_EQ(textOf("instructions { queue: 1 read_metrics {} }", {}), "");
  EXPECT_EQ(
      textOf("queues { kind: COMPUTE } instructions { waits { queue: 3 } read_metrics {} }", {}),
      "");
  EXPECT_EQ(textOf("queues { kind: COMPUTE } instructions {}", {}), "");
  EXPECT_EQ(textOf("queues { kind: COMPUTE } instructions { load_input { rows: 8 } }", {}), "");
}

} // namespace
