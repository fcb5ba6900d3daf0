// RUN: zorse-opt %s --zorse-compile-functions=arch=sm_80 -o /dev/null | FileCheck %s
// RUN: zorse-opt %s --zorse-compile-functions -o /dev/null | FileCheck %s --check-prefix=CPU --implicit-check-not=" + parameter"
// GPUs: a matmul, a vector added to its rows and the rounding are one library call if the intermediate values have no other reader.

!x = tensor<?x8x64xbf16>
!w = tensor<32x64xbf16>
!b = tensor<32xbf16>
!y = tensor<?x8x32xbf16>
!wide = tensor<?x8x32xf32>

// CHECK-LABEL: function @linear
// CHECK-NOT:   kernel
// CHECK:       matmul boundary_out0 = boundary_in0 * parameter0^T m 8 per row n 32 k 64 batch 1 ld 64 64 32 + parameter1
// CHECK-NOT:   kernel
// CPU-LABEL:   function @linear
// CPU:         matmul workspace = boundary_in0 * parameter0^T
// CPU-NEXT:    kernel {{[0-9]+}} {{.*}}(workspace, parameter1, boundary_out0)
func.func @linear(%x: !x {zorse.argument = #zorse.argument<boundary_in, 0>}, %w: !w {zorse.argument = #zorse.argument<parameter, 0>},
                  %b: !b {zorse.argument = #zorse.argument<parameter, 1>}) -> (!y {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %p = zorse.matmul %x, %w {transpose_b} : !x, !w -> !wide
  %bb = zorse.broadcast %b dims [2] : !b -> !y
  %wb = arith.extf %bb : !y to !wide
  %s = arith.addf %p, %wb : !wide
  %y = arith.truncf %s : !wide to !y
  return %y : !y
}

// f32 has no rounding: the library writes the sum directly.
// CHECK-LABEL: function @wide
// CHECK-NOT:   kernel
// CHECK:       matmul boundary_out0 = boundary_in0 * parameter0 m 8 per row n 32 k 64 batch 1 ld 64 32 32 + parameter1
func.func @wide(%x: tensor<?x8x64xf32> {zorse.argument = #zorse.argument<boundary_in, 0>},
                %w: tensor<64x32xf32> {zorse.argument = #zorse.argument<parameter, 0>},
                %b: tensor<32xf32> {zorse.argument = #zorse.argument<parameter, 1>})
    -> (!wide {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %p = zorse.matmul %x, %w : tensor<?x8x64xf32>, tensor<64x32xf32> -> !wide
  %bb = zorse.broadcast %b dims [2] : tensor<32xf32> -> !wide
  %s = arith.addf %bb, %p : !wide
  return %s : !wide
}

// Not fused: an intermediate value has another reader, the operand is not a vector along the rows, or its type is not that of the result.
// CHECK-LABEL: function @read
// CHECK:       matmul {{.*}} ld 64 64 32{{$}}
// CHECK:       kernel
func.func @read(%x: !x {zorse.argument = #zorse.argument<boundary_in, 0>}, %w: !w {zorse.argument = #zorse.argument<parameter, 0>},
                %b: !b {zorse.argument = #zorse.argument<parameter, 1>})
    -> (!y {zorse.argument = #zorse.argument<boundary_out, 0>}, !wide {zorse.argument = #zorse.argument<boundary_out, 1>}) {
  %p = zorse.matmul %x, %w {transpose_b} : !x, !w -> !wide
  %bb = zorse.broadcast %b dims [2] : !b -> !y
  %wb = arith.extf %bb : !y to !wide
  %s = arith.addf %p, %wb : !wide
  %y = arith.truncf %s : !wide to !y
  return %y, %s : !y, !wide
}
// CHECK-LABEL: function @positions
// CHECK:       matmul {{.*}} ld 64 64 32{{$}}
// CHECK:       kernel
func.func @positions(%x: !x {zorse.argument = #zorse.argument<boundary_in, 0>}, %w: !w {zorse.argument = #zorse.argument<parameter, 0>},
                     %b: tensor<8xbf16> {zorse.argument = #zorse.argument<parameter, 1>})
    -> (!y {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %p = zorse.matmul %x, %w {transpose_b} : !x, !w -> !wide
  %bb = zorse.broadcast %b dims [1] : tensor<8xbf16> -> !y
  %wb = arith.extf %bb : !y to !wide
  %s = arith.addf %p, %wb : !wide
  %y = arith.truncf %s : !wide to !y
  return %y : !y
}
// CHECK-LABEL: function @master
// CHECK:       matmul {{.*}} ld 64 64 32{{$}}
// CHECK:       kernel
func.func @master(%x: !x {zorse.argument = #zorse.argument<boundary_in, 0>}, %w: !w {zorse.argument = #zorse.argument<parameter, 0>},
                  %b: tensor<32xf32> {zorse.argument = #zorse.argument<parameter, 1>})
    -> (!y {zorse.argument = #zorse.argument<boundary_out, 0>}) {
  %p = zorse.matmul %x, %w {transpose_b} : !x, !w -> !wide
  %bb = zorse.broadcast %b dims [2] : tensor<32xf32> -> !wide
  %s = arith.addf %p, %bb : !wide
  %y = arith.truncf %s : !wide to !y
  return %y : !y
}
