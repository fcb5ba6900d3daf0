// RUN: zorse-opt %s --zorse-differentiate | FileCheck %s
// The gradient of a loss starts with lossSeed[k], read at run time. Logits and two numbers per label are saved; labels are read again.

// CHECK-LABEL: zorse.class @head {
// CHECK-LABEL: func.func @forward
// CHECK-SAME:    tensor<?xf32> {zorse.argument = #zorse.argument<loss, 0>}, tensor<?x3x11xf32> {zorse.argument = #zorse.argument<saved, 0>}, tensor<?x3x2xf32> {zorse.argument = #zorse.argument<saved, 1>})
// CHECK-LABEL: func.func @backward
// CHECK-SAME:    %[[SEED:[a-z0-9]+]]: tensor<f64> {zorse.argument = #zorse.argument<scalars, 0>}
// CHECK-NOT:     <boundary_out_gradient
// CHECK:         %[[S:.+]] = arith.truncf %[[SEED]] : tensor<f64> to tensor<f32>
// CHECK:         zorse.broadcast %[[S]] dims [] : tensor<f32> -> tensor<?xf32>
// CHECK:         zorse.cross_entropy_grad {{.*}} {ignore_index = -100 : i64}
zorse.class @head {
  func.func @forward(%w: tensor<11x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %labels: tensor<?x3xi64> {zorse.argument = #zorse.argument<input, 0>},
                     %x: tensor<?x3x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?xf32> {zorse.argument = #zorse.argument<loss, 0>}) {
    %logits = zorse.matmul %x, %w {transpose_b} : tensor<?x3x4xf32>, tensor<11x4xf32> -> tensor<?x3x11xf32>
    %l = zorse.cross_entropy %logits, %labels {ignore_index = -100 : i64} : (tensor<?x3x11xf32>, tensor<?x3xi64>) -> tensor<?x3xf32>
    %n = zorse.reduce sum %l dims [1] : tensor<?x3xf32> -> tensor<?xf32>
    return %n : tensor<?xf32>
  }
}
