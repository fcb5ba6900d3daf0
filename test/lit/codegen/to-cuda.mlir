// RUN: zorse-opt %s --zorse-train-pipeline --zorse-compile-functions="arch=sm_75 ptx" --zorse-compile-functions="arch=sm_80 ptx" -o /dev/null | FileCheck %s
// RUN: rm -rf %t && zorse-opt %s --zorse-train-pipeline --zorse-compile-functions="arch=sm_80 dump-dir=%t/sm_80" --zorse-compile-functions="arch=sm_90 dump-dir=%t/sm_90" -o /dev/null | FileCheck %s --check-prefix=DUMP --implicit-check-not=.target
// RUN: cat %t/sm_80/mulf_reduce_*.ptx | FileCheck %s --check-prefix=FILE
// RUN: ls %t/sm_90 | FileCheck %s --check-prefix=FILES
// From a model to code for several GPUs.

// CHECK: // functions for sm_75
// CHECK: function @head.forward
// CHECK: kernel {{[0-9]+}} mulf_reduce({{.*}}loss0)
// CHECK: function @update.decay
// CHECK: .target sm_75
// CHECK: .visible .entry mulf_reduce_
// CHECK: // functions for sm_80
// CHECK: function @head.forward
// CHECK: .target sm_80
// CHECK: .visible .entry mulf_reduce_

// DUMP: // functions for sm_80
// DUMP: // functions for sm_90
// FILE: .target sm_80
// FILE: .visible .entry mulf_reduce_
// FILES: mulf_reduce_{{.*}}.ll
// FILES: mulf_reduce_{{.*}}.mlir
// FILES: mulf_reduce_{{.*}}.ptx

// RUN: not zorse-opt %s --zorse-train-pipeline --zorse-compile-functions=arch=sm_99 2>&1 | FileCheck %s --check-prefix=CHIP
// CHIP: error: zorse-compile-functions: expected arch= to be one of sm_60, {{.*}}sm_120, {{.*}}found 'sm_99'
// RUN: not zorse-opt %s --zorse-compile-functions=arch=sm_80 2>&1 | FileCheck %s --check-prefix=MODEL
// MODEL: error: zorse-compile-functions: expected functions of units, found '@model': run --zorse-train-pipeline=from=recognized first
// RUN: not zorse-opt %s --zorse-train-pipeline --zorse-compile-functions=ptx 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: error: zorse-compile-functions: ptx: expected a CUDA architecture such as arch=sm_80, found 'native', which does not produce PTX

// One target per architecture: functions and kernels in the module.
// RUN: zorse-opt %s --zorse-train-pipeline="to=lowered arch=x86-64-v3,sm_80" --mlir-elide-resource-strings-if-larger=16 | FileCheck %s --check-prefix=TARGETS
// TARGETS: zorse.target @"x86-64-v3" attributes {functions = dense_resource<{{.*}}> : tensor<{{[0-9]+}}xi8>} {
// TARGETS:   module @mulf_reduce_
// TARGETS: zorse.target @sm_80
// TARGETS:   module @mulf_reduce_

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
