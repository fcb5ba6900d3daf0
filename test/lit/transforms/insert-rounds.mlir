// RUN: zorse-opt %s --zorse-insert-rounds | FileCheck %s --check-prefixes=CHECK,COMPUTE
// RUN: zorse-opt %s --zorse-insert-rounds="to=f16 fp32-residual" | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: not zorse-opt %s --zorse-insert-rounds --zorse-insert-rounds 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not zorse-opt %s --zorse-insert-rounds=to=f32 2>&1 | FileCheck %s --check-prefix=TYPE
// Matmuls have rounded operands and results; a bias is rounded, and added before the result is rounded. Norms have rounded results; softmaxes and losses stay f32.

// TWICE: error: zorse-insert-rounds: expected a model without roundings, found one: this pass has run already, or the file contains casts to 16 bits; such a file is compiled with --precision=f32
// TYPE: error: zorse-insert-rounds: to: expected bf16 or f16, got 'f32'

// CHECK-LABEL: func.func @model(
// CHECK-SAME:    %[[IDS:[^:]+]]: tensor<?x4xi64>
// CHECK-SAME:    %[[TABLE:[^:]+]]: tensor<16x8xf32>
// CHECK-SAME:    %[[GAIN:[^:]+]]: tensor<8xf32>
// CHECK-SAME:    %[[W:[^:]+]]: tensor<8x8xf32>
// CHECK-SAME:    %[[BIAS:[^:]+]]: tensor<8xf32>
func.func @model(%ids: tensor<?x4xi64> {zorse.input = "ids"}, %table: tensor<16x8xf32> {zorse.parameter = "table", zorse.trainable = true},
                 %norm_weight: tensor<8xf32> {zorse.parameter = "norm_weight", zorse.trainable = true}, %w: tensor<8x8xf32> {zorse.parameter = "w", zorse.trainable = true},
                 %b: tensor<8xf32> {zorse.parameter = "b", zorse.trainable = true},
                 %p: tensor<4x8xf32> {zorse.parameter = "p", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/(4*B)"}) {
  // A row read from an embedding table is rounded; under autocast it is unchanged.
  // CHECK:         %[[ROWS:.+]] = zorse.gather %[[TABLE]]
  // COMPUTE-NEXT:  %[[X:.+]] = zorse.round %[[ROWS]] to bf16
  // WIDE-NOT:      zorse.round %[[ROWS]]
  %x = zorse.gather %table, %ids : tensor<16x8xf32>, tensor<?x4xi64> -> tensor<?x4x8xf32>
  // CHECK:         %[[NORM:.+]] = zorse.rms_norm
  // CHECK-NEXT:    %[[N:.+]] = zorse.round %[[NORM]] to
  %n = zorse.rms_norm %x weight %norm_weight {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf32>, tensor<8xf32>) -> tensor<?x4x8xf32>
  // One rounded copy of the matrix for all readers; a linear layer has its bias in the type of its weight.
  // CHECK:         zorse.matmul %[[N]], %[[COPY:[^ ]+]]
  %h = zorse.matmul %n, %w : tensor<?x4x8xf32>, tensor<8x8xf32> -> tensor<?x4x8xf32>
  %bb = zorse.broadcast %b dims [2] : tensor<8xf32> -> tensor<?x4x8xf32>
  // CHECK:         %[[ADDED:.+]] = zorse.broadcast %[[VECTOR:[^ ]+]] dims [2]
  // CHECK:         %[[SUM:.+]] = arith.addf %{{.+}}, %[[ADDED]]
  // CHECK-NEXT:    %[[H:.+]] = zorse.round %[[SUM]] to
  %s = arith.addf %h, %bb : tensor<?x4x8xf32>
  // CHECK:         %[[ACTIVATION:.+]] = zorse.silu %[[H]]
  // CHECK-NEXT:    %[[A:.+]] = zorse.round %[[ACTIVATION]] to
  %a = zorse.silu %s : tensor<?x4x8xf32>
  // A mask that is drawn for every sample does not widen the type.
  // CHECK:         %[[MASKED:.+]] = arith.mulf %[[A]], %{{.+}}
  // CHECK-NEXT:    %[[M:.+]] = zorse.round %[[MASKED]] to
  %one = arith.constant dense<1.0> : tensor<f32>
  %ones = zorse.broadcast %one dims [] : tensor<f32> -> tensor<?xf32>
  %drawn = zorse.dropout %ones {probability = 0.25 : f64, rng_id = 0 : i64} : tensor<?xf32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %halves = zorse.broadcast %half dims [] : tensor<f32> -> tensor<?xf32>
  %scaled = arith.mulf %halves, %drawn : tensor<?xf32>
  %mask = zorse.broadcast %scaled dims [0] : tensor<?xf32> -> tensor<?x4x8xf32>
  %m = arith.mulf %a, %mask : tensor<?x4x8xf32>
  // The residual: 16 bits in a bf16 module, f32 under autocast.
  // COMPUTE:       %[[R:.+]] = arith.addf %[[X]], %[[M]]
  // COMPUTE-NEXT:  zorse.round %[[R]] to bf16
  // WIDE:          %[[R:.+]] = arith.addf %[[ROWS]], %[[M]]
  %r = arith.addf %x, %m : tensor<?x4x8xf32>
  // WIDE:          zorse.round %[[R]] to f16
  // CHECK:         %[[Y:.+]] = zorse.matmul %{{.+}}, %[[COPY]] {transpose_b}
  // CHECK-NEXT:    %[[YR:.+]] = zorse.round %[[Y]]
  %y = zorse.matmul %r, %w {transpose_b} : tensor<?x4x8xf32>, tensor<8x8xf32> -> tensor<?x4x8xf32>
  // An added table is not a bias: the matmul is rounded separately, and the sum only if parameters do not widen the type.
  // COMPUTE:       %[[Z0:.+]] = arith.addf %[[YR]], %{{.+}}
  // COMPUTE-NEXT:  %[[Z:.+]] = zorse.round %[[Z0]] to bf16
  // WIDE:          %[[Z:.+]] = arith.addf %[[YR]], %{{.+}}
  // WIDE-NOT:      zorse.round
  %positions = zorse.broadcast %p dims [1, 2] : tensor<4x8xf32> -> tensor<?x4x8xf32>
  %z = arith.addf %y, %positions : tensor<?x4x8xf32>
  // CHECK:         zorse.softmax %[[Z]]
  // CHECK-NOT:     zorse.round
  %q = zorse.softmax %z : tensor<?x4x8xf32>
  %l = zorse.reduce sum %q dims [1, 2] : tensor<?x4x8xf32> -> tensor<?xf32>
  return %l : tensor<?xf32>
}
