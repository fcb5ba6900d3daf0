// The contribution of a step to a running statistic is not a gradient of the loss: it does not depend on the gradient of the result.
// RUN: zorse-opt %s --zorse-differentiate | FileCheck %s

// CHECK-LABEL: zorse.class @c {
// CHECK-LABEL: func.func @backward
// CHECK-SAME:  -> (tensor<?x4xf32> {{.*}}<boundary_in_gradient{{.*}}, tensor<4xf32> {{.*}}<parameter_gradient
// CHECK:         %[[RUNNING:.*]] = zorse.broadcast %{{.*}} : tensor<4xf32> -> tensor<?x4xf32>
// CHECK:         arith.mulf {{.*}} : tensor<?x4xf32>
// CHECK:         arith.subf %[[RUNNING]], {{.*}} : tensor<?x4xf32>
// CHECK:         zorse.reduce sum %{{.*}} dims [0]
zorse.class @c {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient},
                     %r: tensor<4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.running_stat %x, %r {momentum = 0.1 : f64, correction = 1.25 : f64} : tensor<?x4xf32>, tensor<4xf32>
    return %y : tensor<?x4xf32>
  }
}
