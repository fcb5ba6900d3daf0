exec.program @a device 0 of [@a, @b] planned 1984 {
  exec.arena device 1984
  exec.queue compute0
  exec.queue send0
  exec.queue receive0
  exec.queue collective0
  exec.queue to_device0
  exec.queue to_host0
  exec.state parameters 0 "embedding" [0:128] at 0:512+512 : f32
  exec.state optimizer_step at 0:1024+8 : f64
  exec.load_scalars 0 scalars into 0:0+512 on to_device0 in load after [compute0:6 previous, to_host0:0 previous]
  exec.load_input 2 input 0 "input_ids" [0:1] into 0:1088+32 on to_device0 in load
  exec.load_input 4 input 0 "input_ids" [1:2] into 0:1152+32 on to_device0 in load
  exec.compute 5 F cell 0 on compute0 in forward after [to_device0:1] time [0.0, 5.001e-06] {
    exec.call 0 "embedding.forward" unit 0 "embedding" rows [0:1] (
      read parameters 0 "embedding" [0:128] at 0:512+512,
      read input 0 "input_ids" [0:1] at 0:1088+32,
      write activation 0 "node_embedding" [0:1] at 0:1216+128)
  }
  exec.send 6 activation 0 "node_embedding" [0:1] to @b from 0:1216+128 on send0 in forward after [compute0:0] time [5.001e-06, 7.0138000000000005e-06]
  exec.compute 7 F cell 1 on compute0 in forward after [to_device0:2] time [5.001e-06, 1.0002e-05] {
    exec.call 0 "embedding.forward" unit 0 "embedding" rows [1:2] (
      read parameters 0 "embedding" [0:128] at 0:512+512,
      read input 0 "input_ids" [1:2] at 0:1152+32,
      write activation 0 "node_embedding" [1:2] at 0:1344+128)
  }
  exec.send 8 activation 0 "node_embedding" [1:2] to @b from 0:1344+128 on send0 in forward after [compute0:1] time [1.0002e-05, 1.20148e-05]
  exec.receive 13 activation_gradient 0 "node_embedding" cut 1 [0:1] from @b into 0:1216+128 on receive0 in backward after [send0:0] time [5.41988e-05, 5.62116e-05]
  exec.compute 15 B cell 0 on compute0 in backward after [send0:1, receive0:0] time [5.62116e-05, 6.12436e-05] {
    exec.call 1 "embedding.backward" unit 0 "embedding" rows [0:1] (
      read input 0 "input_ids" [0:1] at 0:1088+32,
      read activation_gradient 0 "node_embedding" cut 1 [0:1] at 0:1216+128,
      add overwriting gradients 0 "embedding" [0:128] at 0:1344+512)
  }
  exec.receive 16 activation_gradient 0 "node_embedding" cut 1 [1:2] from @b into 0:1856+128 on receive0 in backward time [5.62116e-05, 5.8224400000000004e-05]
  exec.compute 17 B cell 1 on compute0 in backward after [receive0:1] time [6.12436e-05, 6.62756e-05] {
    exec.call 1 "embedding.backward" unit 0 "embedding" rows [1:2] (
      read input 0 "input_ids" [1:2] at 0:1152+32,
      read activation_gradient 0 "node_embedding" cut 1 [1:2] at 0:1856+128,
      add gradients 0 "embedding" [0:128] at 0:1344+512)
  }
  exec.compute 18 norm group 0 on compute0 in commit time [6.62756e-05, 6.65316e-05] {
    exec.call 9 "norm" rows [0:128] (
      read reduced_gradients 0 "embedding" [0:128] at 0:1344+512,
      add sums at 0:256+128)
  }
  exec.all_reduce 19 sums becomes global_sum : f64 ranked of [@a, @b] at 0:256+128 on collective0 in report after [compute0:4] time [6.65316e-05, 6.85444e-05]
  exec.compute 20 decide on compute0 in commit after [collective0:0] time [6.85444e-05, 6.85444e-05] {
    exec.call 11 "decide" rows [0:1] (
      read global_sum at 0:256+128,
      update scalars at 0:0+256,
      update optimizer_step at 0:1024+8)
  }
  exec.compute 22 update group 0 on compute0 in update time [6.85444e-05, 6.98244e-05] {
    exec.call 7 "update.decay" rows [0:128] (
      update parameters 0 "embedding" [0:128] at 0:512+512,
      read reduced_gradients 0 "embedding" [0:128] at 0:1344+512,
      read scalars 1 at 0:0+256,
      read optimizer_step version 1 at 0:1024+8)
  }
  exec.report 23 scalars 1 at 0:0+512 on to_host0 in report after [compute0:5] time [6.85444e-05, 6.85444e-05]
}
