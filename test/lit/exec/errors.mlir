// RUN: zorse-opt %s -split-input-file -verify-diagnostics
// One program per numbered constraint, the smallest that violates only that one.

// expected-error @below {{(C1) expects device 0 of the list to be @b}}
exec.program @b device 0 of [@a, @b] planned 0 {
}

// -----

// expected-error @below {{(C1) expects a list of different device names, got @a}}
exec.program @a device 0 of [@a, @a] planned 0 {
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  exec.queue compute0
  // expected-error @below {{(C2) expects arenas, queues, state and entries in this order}}
  exec.arena device 64
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  exec.queue compute0
  // expected-error @below {{(C3) expects a kind and an id that no other queue has}}
  exec.queue compute0
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  // expected-error @below {{(C3) expects its queue to be declared}}
  exec.report 0 sums at 0:0+64 on compute1 in report
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  exec.report 3 sums at 0:0+64 on compute0 in report
  // expected-error @below {{(C4) expects entries to ascend by id, got 3 after 3}}
  exec.report 3 sums at 0:0+64 on compute0 in report
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  // expected-error @below {{(C5) expects regions inside arena 0 of 64 bytes, got 32+64}}
  exec.report 0 sums at 0:32+64 on compute0 in report
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  exec.compute 0 norm on compute0 in commit {
    // expected-error @below {{(C5) expects a declared arena, got number 2 of 1}}
    exec.call 0 rows [0:8] (write sums at 2:0+64)
  }
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  exec.queue send0
  exec.report 0 sums at 0:0+64 on compute0 in report
  // expected-error @below {{(C6) expects to wait for an earlier entry, got compute0:1 where there are 1}}
  exec.report 1 sums at 0:0+64 on compute0 in report after [compute0:1]
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  // expected-error @below {{(C6) expects to wait for an entry of the previous step, got compute0:2 where there are 2}}
  exec.report 0 sums at 0:0+64 on compute0 in report after [compute0:2 previous]
  exec.report 1 sums at 0:0+64 on compute0 in report
}

// -----

exec.program @a device 0 of [@a, @b] planned 64 {
  exec.arena device 64
  exec.queue send0
  // expected-error @below {{(C7) expects a device of the program, got @c}}
  exec.send 0 activation 0 [0:8] to @c from 0:0+64 on send0 in forward
}

// -----

exec.program @a device 0 of [@a, @b] planned 64 {
  exec.arena device 64
  exec.queue send0
  // expected-error @below {{(C7) expects another device as peer, got itself}}
  exec.send 0 activation 0 [0:8] to @a from 0:0+64 on send0 in forward
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  // expected-error @below {{(C1) expects a size of at least 0, got -64}}
  exec.arena device -64
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.queue compute0
  exec.compute 0 norm on compute0 in commit {
    // expected-error @below {{(C1) expects at least one row, from 0 or later, got 0 from 8}}
    exec.call 0 rows [8:8]
  }
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.queue compute0
  exec.compute 0 norm on compute0 in commit {
    // expected-error @below {{rows [-9223372036854775808:1] are more than a 64-bit number counts}}
    exec.call 0 rows [-9223372036854775808:1]
  }
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.arena device 64
  exec.queue compute0
  exec.compute 0 norm on compute0 in commit {
    // expected-error @below {{(C2) expects only accumulated slots to overwrite, got 'read overwriting'}}
    exec.call 0 rows [0:8] (read overwriting sums at 0:0+64)
  }
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  exec.queue compute0
  // expected-error @below {{(C1) expects task F to name its cell}}
  exec.compute 0 F on compute0 in forward {
    exec.call 0 rows [0:8]
  }
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  exec.queue send0
  // expected-error @below {{(C2) expects a compute queue, got send0}}
  exec.compute 0 F cell 0 on send0 in forward {
    exec.call 0 rows [0:8]
  }
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  exec.queue compute0
  // expected-error @below {{(C3) expects at least one call}}
  exec.compute 0 F cell 0 on compute0 in forward {
  }
}

// -----

exec.program @a device 0 of [@a] planned 128 {
  exec.arena device 256
  exec.queue compute0
  // expected-error @below {{(C1) expects two regions of one size, got 64 and 128 bytes}}
  exec.copy 0 activation 0 [0:8] from 0:0+64 into 0:128+128 on compute0 in forward
}

// -----

exec.program @a device 0 of [@a] planned 128 {
  exec.arena device 256
  exec.queue compute0
  // expected-error @below {{(C1) expects rows of an input, at least one}}
  exec.load_input 0 input 0 into 0:0+64 on compute0 in load
}

// -----

exec.program @a device 0 of [@a, @b] planned 128 {
  exec.arena device 256
  exec.queue collective0
  // expected-error @below {{(C1) expects shards to ascend without overlap, got 32:64 of @b after element 48}}
  exec.all_gather 0 parameters 0 [0:64] group 0 : f32 shards [@a 0:48, @b 32:64] readers [@a] full 0:0+256 shard 0:0+192 on collective0 in gather
}

// -----

exec.program @a device 0 of [@a, @b] planned 128 {
  exec.arena device 256
  exec.queue collective0
  // expected-error @below {{(C2) expects members not to repeat, got @a twice}}
  exec.reduce_scatter 0 gradients 0 [0:64] group 0 : f32 ranked of [@a, @a] shards [@a 0:64] full 0:0+256 shard 0:0+256 on collective0 in reduce
}

// -----

exec.program @a device 0 of [@a, @b] planned 128 {
  exec.arena device 256
  exec.queue collective0
  // expected-error @below {{(C1) expects members not to repeat, got @b twice}}
  exec.all_reduce 0 sums becomes global_sum : f64 ranked of [@a, @b, @b] at 0:0+128 on collective0 in commit
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  // expected-error @below {{expected a queue, kind and id, such as 'compute0' or 'send2', got 'computer'}}
  exec.queue computer
}

// -----

exec.program @a device 0 of [@a] planned 0 {
  exec.queue compute0
  // expected-error @below {{expected a kind of value (activation, parameters, ...), got 'thing'}}
  exec.report 0 thing at 0:0+0 on compute0 in report
}

// -----

exec.program @a device 0 of [@a] planned 64 {
  exec.queue compute0
  // expected-error @below {{expects times from 0 on}}
  exec.compute 0 norm on compute0 in commit time [-0.0, 1.0] {
    exec.call 0 rows [0:8]
  }
}
