exec.program @a device 0 of [@a, @b] planned 8064 {
  exec.arena device 8064
  exec.queue compute0
  exec.queue collective0
  exec.queue to_device0
  exec.queue to_host0
  exec.state parameters 0 "mlp" [0:256] at 0:512+1024 : f32
  exec.state parameters 1 "head" [0:128] at 0:2624+512 : f32
  exec.state parameters 2 "head (frozen)" [0:128] at 0:3648+512 : f32
  exec.state optimizer_step at 0:2560+8 : f64
  exec.load_scalars 0 scalars into 0:0+512 on to_device0 in load after [compute0:7 previous, to_host0:0 previous]
  exec.all_gather 2 parameters 0 "mlp" [0:512] group 0 : f32 shards [@a 0:256, @b 256:512] readers [@a, @b] full 0:512+2048 shard 0:512+1024 on collective0 in gather after [compute0:6 previous] time [0.0, 2.2048e-06]
  exec.load_input 3 input 0 "x" [0:1] into 0:4352+48 on to_device0 in load
  exec.load_input 5 input 1 "label" [0:1] into 0:4416+8 on to_device0 in load
  exec.all_gather 7 parameters 1 "head" [0:256] group 1 : f32 shards [@a 0:128, @b 128:256] readers [@a, @b] full 0:2624+1024 shard 0:2624+512 on collective0 in gather after [compute0:7 previous] time [2.2048e-06, 4.3072e-06]
  exec.compute 8 F cell 0 on compute0 in forward after [collective0:1, to_device0:2] time [4.3072e-06, 1.55912e-05] {
    exec.call 0 "mlp.forward" unit 0 "mlp" rows [0:1] (
      read parameters 0 "mlp" [0:288] at 0:512+1152,
      read parameters 0 "mlp" [384:408] at 0:2048+96,
      read input 0 "x" [0:1] at 0:4352+48,
      write activation 0 "node_gelu" [0:1] at 0:4736+96,
      write saved 0 "mlp" [0:1] at 0:4480+128,
      write none at 0:4160+128)
    exec.call 2 "head.forward" unit 1 "head" rows [0:1] (
      read parameters 1 "head" [0:96] at 0:2624+384,
      read parameters 1 "head" [128:132] at 0:3136+16,
      read parameters 2 "head (frozen)" [0:4] at 0:3648+16,
      read input 1 "label" [0:1] at 0:4416+8,
      read activation 0 "node_gelu" [0:1] at 0:4736+96,
      write loss 1 "head" [0:1] at 0:4864+4,
      write loss 1 "head" cut 1 [0:1] at 0:4928+4,
      write saved 1 "head" [0:1] at 0:4608+128,
      write none at 0:4160+192)
  }
  exec.compute 10 sum_loss cell 0 on compute0 in forward time [1.55912e-05, 1.55912e-05] {
    exec.call 8 "sum_loss" rows [0:1] (
      read loss 1 "head" [0:1] at 0:4864+4,
      read loss 1 "head" cut 1 [0:1] at 0:4928+4,
      add sums at 0:256+128)
  }
  exec.compute 12 B cell 0 on compute0 in backward time [1.55912e-05, 2.72592e-05] {
    exec.call 3 "head.backward" unit 1 "head" rows [0:1] (
      read parameters 1 "head" [0:96] at 0:2624+384,
      read parameters 2 "head (frozen)" [0:4] at 0:3648+16,
      read input 1 "label" [0:1] at 0:4416+8,
      read activation 0 "node_gelu" [0:1] at 0:4736+96,
      read scalars at 0:0+256,
      read saved 1 "head" [0:1] at 0:4608+128,
      add overwriting activation_gradient 0 "node_gelu" cut 1 [0:1] at 0:7936+96,
      add overwriting gradients 1 "head" [0:96] at 0:6912+384,
      add overwriting gradients 1 "head" [128:132] at 0:7424+16,
      write none at 0:4160+192)
    exec.call 1 "mlp.backward" unit 0 "mlp" rows [0:1] (
      read input 0 "x" [0:1] at 0:4352+48,
      read activation_gradient 0 "node_gelu" cut 1 [0:1] at 0:7936+96,
      read saved 0 "mlp" [0:1] at 0:4480+128,
      add overwriting gradients 0 "mlp" [0:288] at 0:4864+1152,
      add overwriting gradients 0 "mlp" [384:408] at 0:6400+96,
      write none at 0:4160+128)
  }
  exec.reduce_scatter 14 gradients 1 "head" [0:256] group 1 : f32 ranked of [@a, @b] shards [@a 0:128, @b 128:256] full 0:6912+1024 shard 0:6912+512 on collective0 in reduce after [compute0:2] time [2.72592e-05, 2.93616e-05]
  exec.compute 15 norm group 1 on compute0 in commit after [collective0:2] time [2.93616e-05, 2.96176e-05] {
    exec.call 7 "norm" rows [0:96] (
      read reduced_gradients 1 "head" [0:96] at 0:6912+384,
      add sums at 0:256+128)
  }
  exec.reduce_scatter 17 gradients 0 "mlp" [0:512] group 0 : f32 ranked of [@a, @b] shards [@a 0:256, @b 256:512] full 0:4864+2048 shard 0:4864+1024 on collective0 in reduce time [2.93616e-05, 3.15664e-05]
  exec.compute 18 norm group 0 on compute0 in commit after [collective0:3] time [3.15664e-05, 3.20784e-05] {
    exec.call 7 "norm" rows [0:256] (
      read reduced_gradients 0 "mlp" [0:256] at 0:4864+1024,
      add sums at 0:256+128)
  }
  exec.all_reduce 20 sums becomes global_sum : f64 ranked of [@a, @b] at 0:256+128 on collective0 in report after [compute0:4] time [3.20784e-05, 3.40912e-05]
  exec.compute 21 decide on compute0 in commit after [collective0:4] time [3.40912e-05, 3.40912e-05] {
    exec.call 9 "decide" rows [0:1] (
      read global_sum at 0:256+128,
      update scalars at 0:0+256,
      update optimizer_step at 0:2560+8)
  }
  exec.compute 23 update group 0 on compute0 in update time [3.40912e-05, 3.6651200000000006e-05] {
    exec.call 5 "update.decay" rows [0:256] (
      update parameters 0 "mlp" [0:256] at 0:512+1024,
      read reduced_gradients 0 "mlp" [0:256] at 0:4864+1024,
      read scalars 1 at 0:0+256,
      read optimizer_step version 1 at 0:2560+8)
  }
  exec.report 25 scalars 1 at 0:0+512 on to_host0 in report after [compute0:5] time [3.40912e-05, 3.40912e-05]
  exec.compute 26 update group 1 on compute0 in update time [3.6651200000000006e-05, 3.793120000000001e-05] {
    exec.call 5 "update.decay" rows [0:96] (
      update parameters 1 "head" [0:96] at 0:2624+384,
      read reduced_gradients 1 "head" [0:96] at 0:6912+384,
      read scalars 1 at 0:0+256,
      read optimizer_step version 1 at 0:2560+8)
  }
}
