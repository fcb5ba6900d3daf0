// RUN: zorse-opt %s --zorse-recognize --zorse-to-cuda="chip=sm_75,sm_80" -o /dev/null | FileCheck %s
// RUN: zorse-opt %s --zorse-train-pipeline --zorse-to-cuda="chip=sm_80 from=units" -o /dev/null | FileCheck %s --check-prefix=UNITS --implicit-check-not=sm_75
// RUN: rm -rf %t && zorse-opt %s --zorse-recognize --zorse-to-cuda="chip=sm_80,sm_90 dump-dir=%t" -o /dev/null | FileCheck %s --check-prefix=DUMP --implicit-check-not=.target
// RUN: cat %t/sm_80/mulf_reduce_*.ptx | FileCheck %s --check-prefix=FILE
// RUN: ls %t/sm_90 | FileCheck %s --check-prefix=FILES
// The passes one by one end in the same PTX.
// RUN: zorse-opt %s --zorse-recognize --zorse-to-cuda="chip=sm_80" -o /dev/null > %t.pipeline
// RUN: zorse-opt %s --zorse-train-pipeline --zorse-compile-bodies="arch=sm_80 ptx" -o /dev/null > %t.passes
// RUN: diff %t.pipeline %t.passes
// One pipeline from a recognised model to code for several GPUs.

// CHECK: // bodies for sm_75
// CHECK: body @head.forward
// CHECK: kernel {{[0-9]+}} mulf_reduce({{.*}}loss0)
// CHECK: body @update.plain
// CHECK: .target sm_75
// CHECK: .visible .entry mulf_reduce_
// CHECK: // bodies for sm_80
// CHECK: body @head.forward
// CHECK: .target sm_80
// CHECK: .visible .entry mulf_reduce_

// UNITS: // bodies for sm_80
// UNITS: .target sm_80

// DUMP: // bodies for sm_80
// DUMP: // bodies for sm_90
// FILE: .target sm_80
// FILE: .visible .entry mulf_reduce_
// FILES: mulf_reduce_{{.*}}.ll
// FILES: mulf_reduce_{{.*}}.mlir
// FILES: mulf_reduce_{{.*}}.ptx

// RUN: not zorse-opt %s --zorse-to-cuda 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: zorse-to-cuda: expected chip= with one or more of sm_60, {{.*}}, sm_120, found none: for example --zorse-to-cuda="chip=sm_75,sm_80"
// RUN: not zorse-opt %s --zorse-to-cuda=chip=sm_80,sm_99 2>&1 | FileCheck %s --check-prefix=CHIP
// CHIP: error: zorse-to-cuda: expected chip= with one or more of sm_60, {{.*}}, sm_120, found 'sm_99'
// RUN: not zorse-opt %s --zorse-to-cuda="chip=sm_80 from=units" 2>&1 | FileCheck %s --check-prefix=MODEL
// MODEL: error: zorse-to-cuda: expected functions of units, found none: leave out from=units, or run --zorse-train-pipeline=from=recognized first
// RUN: not zorse-opt %s --zorse-train-pipeline --zorse-to-cuda=chip=sm_80 2>&1 | FileCheck %s --check-prefix=FUNCTIONS
// FUNCTIONS: error: zorse-to-cuda: expected '@model' alone, found class '@{{[a-z]+}}': say from=units if units have been found
// RUN: echo "module {}" | not zorse-opt --zorse-to-cuda=chip=sm_80 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: zorse-to-cuda: expected '@model', found no function: begin with what zorse-import writes
// RUN: not zorse-opt %s --zorse-train-pipeline --zorse-compile-bodies=ptx 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: error: zorse-compile-bodies: ptx: expected a CUDA architecture such as arch=sm_80, found 'native', whose machine code is no text

func.func @model(%x: tensor<?x8xf32> {zorse.input = "x"},
                 %w1: tensor<8x8xf32> {zorse.parameter = "w1", zorse.trainable = true},
                 %w2: tensor<8x8xf32> {zorse.parameter = "w2", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/(8*B)"}) {
  %h = zorse.matmul %x, %w1 {transpose_b} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %o = zorse.matmul %h, %w2 {transpose_b} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %s = arith.mulf %o, %o : tensor<?x8xf32>
  %l = zorse.reduce sum %s dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  return %l : tensor<?xf32>
}
