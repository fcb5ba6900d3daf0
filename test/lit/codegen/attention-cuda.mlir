// RUN: zorse-opt %s --zorse-compile-functions=arch=sm_80 -o /dev/null | FileCheck %s
// RUN: zorse-opt %s --zorse-compile-functions=arch=sm_75 -o /dev/null | FileCheck %s --check-prefix=OLD --implicit-check-not=attention_
// RUN: rm -rf %t && zorse-opt %s --zorse-compile-functions="arch=sm_90 dump-dir=%t" -o /dev/null > %t.functions
// RUN: cat %t/attention_forward_*.ptx | FileCheck %s --check-prefix=PTX
// Attention that tensor cores support stays one op and becomes kernels; other GPUs, types and sizes use matmuls and a softmax.

// CHECK: function @half.forward
// CHECK-NEXT: argument
// CHECK: kernel {{[0-9]+}} attention_forward({{.*}}) iterations 512 per row
// CHECK-NOT: matmul
// CHECK: function @half.backward: saved {{.*}}, workspace 4096 per row bytes
// CHECK: kernel {{[0-9]+}} attention_statistics(
// CHECK-NEXT: kernel {{[0-9]+}} attention_key_gradients({{.*}}) iterations 256 per row
// CHECK-NEXT: kernel {{[0-9]+}} attention_query_gradients({{.*}}) iterations 512 per row
// CHECK-NOT: matmul
// CHECK: function @wide.forward
// CHECK: matmul
// CHECK: function @odd.forward
// CHECK: matmul
// CHECK: function @values.forward
// CHECK: matmul
// The keys begin 8 bytes after a multiple of 16: they are copied first.
// CHECK: function @unaligned.forward
// CHECK: kernel {{[0-9]+}} copy(boundary_in0[8], workspace)
// CHECK-NEXT: kernel {{[0-9]+}} attention_forward(workspace,

// OLD: function @half.forward
// OLD: matmul
// OLD: function @half.backward
// OLD: matmul

// PTX: .minnctapersm 1
// PTX: cp.async.cg.shared.global
// PTX: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32

!q = tensor<?x128x4x64xbf16>
!k = tensor<?x128x2x64xbf16>
!l = tensor<?x4x128xf32>
func.func @half.forward(%q: !q {zorse.argument = #zorse.argument<boundary_in, 0>}, %k: !k {zorse.argument = #zorse.argument<boundary_in, 1>},
                        %v: !k {zorse.argument = #zorse.argument<boundary_in, 2>})
    -> (!q {zorse.argument = #zorse.argument<boundary_out, 0>}, !l {zorse.argument = #zorse.argument<saved, 0>}) {
  %o, %l = zorse.attention %q, %k, %v {causal, scale = 0.125 : f64} : (!q, !k, !k) -> (!q, !l)
  return %o, %l : !q, !l
}
func.func @half.backward(%q: !q {zorse.argument = #zorse.argument<boundary_in, 0>}, %k: !k {zorse.argument = #zorse.argument<boundary_in, 1>},
                         %v: !k {zorse.argument = #zorse.argument<boundary_in, 2>}, %o: !q {zorse.argument = #zorse.argument<boundary_in, 3>},
                         %l: !l {zorse.argument = #zorse.argument<saved, 0>}, %do: !q {zorse.argument = #zorse.argument<boundary_out_gradient, 0>})
    -> (!q {zorse.argument = #zorse.argument<boundary_in_gradient, 0>}, !k {zorse.argument = #zorse.argument<boundary_in_gradient, 1>},
        !k {zorse.argument = #zorse.argument<boundary_in_gradient, 2>}) {
  %dq, %dk, %dv = zorse.attention_grad %do, %q, %k, %v, %o, %l {causal, scale = 0.125 : f64} : (!q, !q, !k, !k, !q, !l) -> (!q, !k, !k)
  return %dq, %dk, %dv : !q, !k, !k
}

!wide = tensor<?x128x4x64xf32>
func.func @wide.forward(%q: !wide {zorse.argument = #zorse.argument<boundary_in, 0>}) -> (!wide {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %o = zorse.attention %q, %q, %q {causal, scale = 0.125 : f64} : (!wide, !wide, !wide) -> !wide
  return %o : !wide
}

!odd = tensor<?x128x4x60xbf16>
func.func @odd.forward(%q: !odd {zorse.argument = #zorse.argument<boundary_in, 0>}) -> (!odd {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %o = zorse.attention %q, %q, %q {causal, scale = 0.125 : f64} : (!odd, !odd, !odd) -> !odd
  return %o : !odd
}

!short = tensor<?x128x4x32xbf16>
func.func @values.forward(%q: !q {zorse.argument = #zorse.argument<boundary_in, 0>}, %v: !short {zorse.argument = #zorse.argument<boundary_in, 1>})
    -> (!short {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %o = zorse.attention %q, %q, %v {causal, scale = 0.125 : f64} : (!q, !q, !short) -> !short
  return %o : !short
}

!packed = tensor<?x128x4x72xbf16>
func.func @unaligned.forward(%x: !packed {zorse.argument = #zorse.argument<boundary_in, 0>}, %q: !q {zorse.argument = #zorse.argument<boundary_in, 1>})
    -> (!q {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %k = zorse.slice %x [0, 0, 0, 4] [?, 128, 4, 64] [1, 1, 1, 1] : !packed -> !q
  %o = zorse.attention %q, %k, %q {causal, scale = 0.125 : f64} : (!q, !q, !q) -> !q
  return %o : !q
}
