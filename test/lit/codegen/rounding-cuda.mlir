// RUN: rm -rf %t && zorse-opt %s --zorse-compile-functions="arch=sm_80 dump-dir=%t/sm_80" -o /dev/null > %t.sm_80
// RUN: cat %t/sm_80/addf_*.ptx | FileCheck %s --check-prefix=SUM --implicit-check-not="shl.b32{{.*}}, 16;"
// RUN: cat %t/sm_80/mulf_*.ptx | FileCheck %s --check-prefix=PRODUCT --implicit-check-not=32767 --implicit-check-not=mul.rn.bf16
// RUN: cat %t/sm_80/negf_*.ptx | FileCheck %s --check-prefix=HALF
// RUN: zorse-opt %s --zorse-compile-functions="arch=sm_90 dump-dir=%t/sm_90" -o /dev/null > %t.sm_90
// RUN: cat %t/sm_90/addf_*.ptx | FileCheck %s --check-prefix=SUM90
// Kernels round to 16 bits with GPU instructions, two numbers at a time.

// The sum of two bf16 is rounded once: pairs in 32-bit words are added directly. A full thread block handles several groups, others one by one.
// SUM: ld.global.nc.v4.b32
// SUM: ld.global.nc.v4.b32
// SUM: fma.rn.bf16x2
// SUM: st.global.v4.b32
// SUM90: add.rn.bf16x2
// A product is computed in f32, because subnormal products would have different bits in bf16. Intermediate values are rounded once, then used and stored.
// PRODUCT: mul.rn.f32
// PRODUCT: cvt.rn.bf16x2.f32
// PRODUCT: st.global.v4.b32
// HALF: cvt.rn.f16x2.f32

!x = tensor<?x16x64xbf16>
!w = tensor<?x16x64xf32>
!h = tensor<?x16x64xf16>
zorse.class @sum {
  func.func @forward(%x: !x {zorse.argument = #zorse.argument<boundary_in, 0>}, %y: !x {zorse.argument = #zorse.argument<boundary_in, 1>})
      -> (!x {zorse.argument = #zorse.argument<boundary_out, 0>}) {
    %a = arith.extf %x : !x to !w
    %b = arith.extf %y : !x to !w
    %s = arith.addf %a, %b : !w
    %r = arith.truncf %s : !w to !x
    return %r : !x
  }
}
zorse.class @product {
  func.func @forward(%x: !x {zorse.argument = #zorse.argument<boundary_in, 0>}, %y: !x {zorse.argument = #zorse.argument<boundary_in, 1>})
      -> (!x {zorse.argument = #zorse.argument<boundary_out, 0>}, !w {zorse.argument = #zorse.argument<boundary_out, 1>}) {
    %a = arith.extf %x : !x to !w
    %b = arith.extf %y : !x to !w
    %p = arith.mulf %a, %b : !w
    %r = arith.truncf %p : !w to !x
    %e = arith.extf %r : !x to !w
    %d = arith.subf %p, %e : !w
    return %r, %d : !x, !w
  }
}
zorse.class @half {
  func.func @forward(%x: !w {zorse.argument = #zorse.argument<boundary_in, 0>}) -> (!h {zorse.argument = #zorse.argument<boundary_out, 0>}) {
    %n = arith.negf %x : !w
    %r = arith.truncf %n : !w to !h
    return %r : !h
  }
}
