// What a step adds up for a running statistic is no gradient of the loss: it is there whatever the gradient of the result is.
// RUN: zorse-opt %s --zorse-differentiate | FileCheck %s

// CHECK-LABEL: func.func @c.backward
// CHECK-SAME:  -> (tensor<?x4xf32> {{.*}}"boundary_in_gradient"{{.*}}, tensor<4xf32> {{.*}}"parameter_gradient"
// CHECK:         %[[RUNNING:.*]] = zorse.broadcast %{{.*}} : tensor<4xf32> -> tensor<?x4xf32>
// CHECK:         arith.mulf {{.*}} : tensor<?x4xf32>
// CHECK:         arith.subf %[[RUNNING]], {{.*}} : tensor<?x4xf32>
// CHECK:         zorse.reduce sum %{{.*}} dims [0]
func.func @c.forward(%x: tensor<?x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient},
                     %r: tensor<4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x4xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %y = zorse.track %x, %r {weight = 0.1 : f64, correction = 1.25 : f64} : tensor<?x4xf32>, tensor<4xf32>
  return %y : tensor<?x4xf32>
}
