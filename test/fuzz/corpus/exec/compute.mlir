exec.program @a device 0 of [@a, @b] planned 1984 {
  exec.arena device 1984
  exec.queue compute0
  exec.queue to_device0
  exec.queue to_host0
  exec.state parameters 0 "embedding" [0:128] at 0:512+512 : f32
  exec.state optimizer_step at 0:1024+8 : f64
  exec.load_scalars 0 scalars into 0:0+512 on to_device0 in load after [compute0:2 previous, to_host0:0 previous]
  exec.load_input 2 input 0 "input_ids" [0:1] into 0:1088+32 on to_device0 in load
  exec.compute 5 F cell 0 on compute0 in forward after [to_device0:1] time [0.0, 5.001e-06] {
    exec.call 0 "embedding.forward" unit 0 "embedding" rows [0:1] (
      read parameters 0 "embedding" [0:128] at 0:512+512,
      read input 0 "input_ids" [0:1] at 0:1088+32,
      write activation 0 "node_embedding" [0:1] at 0:1216+128)
  }
  exec.compute 15 B cell 0 on compute0 in backward {
    exec.call 1 "embedding.backward" unit 0 "embedding" rows [0:1] (
      add overwriting gradients 0 "embedding" [0:128] at 0:1344+512)
  }
  exec.compute 20 decide on compute0 in commit time [6.85444e-05, 6.85444e-05] {
    exec.call 11 "decide" rows [0:1] (
      update scalars at 0:0+256,
      update optimizer_step at 0:1024+8)
  }
  exec.report 23 scalars 1 at 0:0+512 on to_host0 in report after [compute0:2]
}
