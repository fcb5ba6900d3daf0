exec.program @a device 0 of [@a, @b] planned 1984 {
  exec.arena device 1984
exec.queue send0
 exec.queue receive0
  exec.queue collective0
  exec.send 6 activation 0 "h" [0:1] to @b from 0:1216+128 on send0 in forward time [5.001e-06, 7.0138000000000005e-06]
  exec.receive 13 activation_gradient 0  cut 1 [0:1] from @b into 0:1216+3 on receive0 in backward after [send0:0]
exec.all_reduce 19 sums becomes global_sum : f64 ranked of [@a, @b] at 0:256+128 on collective0 in report time [-6.65316e-9223372036854775807, 6.85444e-222222222222222222205]
}
