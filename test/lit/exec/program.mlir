// RUN: zorse-opt %s | zorse-opt | FileCheck %s
// A small program says who sends what to whom, on which queue and after what.

// CHECK-LABEL: exec.program @"t4:0" device 1 of [@"a100:0", @"t4:0"] planned 36864 {
// CHECK-NEXT:    exec.arena device 36864
// CHECK-NEXT:    exec.arena pinned_host 4096
// CHECK-NEXT:    exec.queue compute0
// CHECK-NEXT:    exec.queue send0
// CHECK-NEXT:    exec.queue receive0
// CHECK-NEXT:    exec.queue collective0
// CHECK-NEXT:    exec.state parameters 2 "head" [0:512] at 0:0+2048 : f32
// CHECK-NEXT:    exec.load_scalars 0 scalars into 0:2048+512 on compute0 in load
// CHECK-NEXT:    exec.load_input 1 input 1 "labels" [8:16] into 0:2560+512 on receive0 in load
// CHECK-NEXT:    exec.all_gather 3 parameters 2 "head" [0:1024] group 2 : f32 shards [@"t4:0" 0:512, @"a100:0" 512:1024] readers [@"t4:0"] full 0:4096+4096 shard 0:0+2048 on collective0 in gather
// CHECK-NEXT:    exec.receive 7 activation 3 "h.3" [8:16] from @"a100:0" into 0:8192+8192 on receive0 in forward
// CHECK-NEXT:    exec.compute 9 F cell 2 on compute0 in forward after [receive0:1, collective0:0] time [0.001, 0.0025] {
// CHECK-NEXT:      exec.call 4 "head.forward" unit 4 "head" rows [8:16] instance 3 (
// CHECK-NEXT:        read parameters 2 "head" [0:1024] at 0:4096+4096,
// CHECK-NEXT:        read activation 3 "h.3" [8:16] at 0:8192+8192,
// CHECK-NEXT:        add overwriting sums at 0:2304+128,
// CHECK-NEXT:        write none at 0:16384+1024)
// CHECK-NEXT:    }
// CHECK-NEXT:    exec.send 12 activation_gradient 3 "h.3" cut 4 [8:16] to @"a100:0" from 0:8192+8192 on send0 in backward after [compute0:1]
// CHECK-NEXT:    exec.copy 13 saved 4 [8:16] from 0:0+64 into 1:0+64 on compute0 in backward after [send0:0 previous]
// CHECK-NEXT:    exec.reduce_scatter 20 gradients 2 "head" [0:1024] group 2 : f32 ranked of [@"t4:0"] shards [@"t4:0" 0:512, @"a100:0" 512:1024] full 0:20480+4096 shard 0:20480+2048 on collective0 in reduce
// CHECK-NEXT:    exec.all_reduce 21 sums becomes global_sum : f64 ranked of [@"a100:0", @"t4:0"] at 0:2304+128 on collective0 in commit
// CHECK-NEXT:    exec.compute 23 update group 2 on compute0 in update after [collective0:2] {
// CHECK:         exec.report 24 global_sum at 0:2304+128 on compute0 in report
exec.program @"t4:0" device 1 of [@"a100:0", @"t4:0"] planned 36864 {
  exec.arena device 36864
  exec.arena pinned_host 4096
  exec.queue compute0
  exec.queue send0
  exec.queue receive0
  exec.queue collective0
  exec.state parameters 2 "head" [0:512] at 0:0+2048 : f32
  exec.load_scalars 0 scalars into 0:2048+512 on compute0 in load
  exec.load_input 1 input 1 "labels" [8:16] into 0:2560+512 on receive0 in load
  exec.all_gather 3 parameters 2 "head" [0:1024] group 2 : f32 shards [@"t4:0" 0:512, @"a100:0" 512:1024] readers [@"t4:0"] full 0:4096+4096 shard 0:0+2048 on collective0 in gather
  exec.receive 7 activation 3 "h.3" [8:16] from @"a100:0" into 0:8192+8192 on receive0 in forward
  exec.compute 9 F cell 2 on compute0 in forward after [receive0:1, collective0:0] time [0.001, 0.0025] {
    exec.call 4 "head.forward" unit 4 "head" rows [8:16] instance 3 (
      read parameters 2 "head" [0:1024] at 0:4096+4096,
      read activation 3 "h.3" [8:16] at 0:8192+8192,
      add overwriting sums at 0:2304+128,
      write none at 0:16384+1024)
  }
  exec.send 12 activation_gradient 3 "h.3" cut 4 [8:16] to @"a100:0" from 0:8192+8192 on send0 in backward after [compute0:1]
  exec.copy 13 saved 4 [8:16] from 0:0+64 into 1:0+64 on compute0 in backward after [send0:0 previous]
  exec.reduce_scatter 20 gradients 2 "head" [0:1024] group 2 : f32 ranked of [@"t4:0"] shards [@"t4:0" 0:512, @"a100:0" 512:1024] full 0:20480+4096 shard 0:20480+2048 on collective0 in reduce
  exec.all_reduce 21 sums becomes global_sum : f64 ranked of [@"a100:0", @"t4:0"] at 0:2304+128 on collective0 in commit
  exec.compute 23 update group 2 on compute0 in update after [collective0:2] {
    exec.call 7 rows [0:512] (update parameters 2 [0:512] at 0:0+2048, read reduced_gradients 2 [0:512] at 0:20480+2048)
  }
  exec.report 24 global_sum at 0:2304+128 on compute0 in report
}
