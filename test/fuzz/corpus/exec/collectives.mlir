exec.program @b device 1 of [@a, @b, @"c:0"] planned 8192 {
  exec.arena device 8192
  exec.arena host 64
  exec.queue compute0
  exec.queue collective0
  exec.all_gather 3 parameters 0 "mlp" [0:512] group 0 : f32 shards [@a 0:256, @b 256:512] readers [@b] full 0:512+2048 shard 0:512+1024 on collective0 in gather
  exec.copy 13 saved 4 [8:16] from 0:0+64 into 1:0+64 on compute0 in backward after [collective0:0 previous]
  exec.reduce_scatter 14 gradients 0 "mlp" [0:512] group 0 : f32 ranked of [@a, @b] shards [@a 0:256, @b 256:512] full 0:4864+2048 shard 0:4864+1024 on collective0 in reduce after [compute0:0] time [2.93616e-05, 3.15664e-05]
  exec.broadcast 22 scalars 1 from @a of [@a, @b, @"c:0"] at 0:2048+512 on collective0 in commit
}
