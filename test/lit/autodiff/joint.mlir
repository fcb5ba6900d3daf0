// RUN: zorse-opt %s --zorse-join-backward | FileCheck %s --check-prefix=JOINT
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved | FileCheck %s --check-prefix=SAVED
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved --zorse-slice-joint | FileCheck %s --check-prefix=SLICED
// RUN: zorse-opt %s --zorse-differentiate > %t.whole
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved --zorse-slice-joint | diff - %t.whole
// RUN: zorse-opt %s --zorse-differentiate=split > %t.whole
// RUN: zorse-opt %s --zorse-join-backward | zorse-opt --zorse-choose-saved | zorse-opt --zorse-slice-joint=split | diff - %t.whole
// RUN: zorse-opt %s --zorse-differentiate=save=keep > %t.whole
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved=save=keep --zorse-slice-joint | diff - %t.whole
// Forward and backward in one block: every value that has a gradient is named beside it, and the arguments' gradients are results of their index.

// JOINT-LABEL: func.func @mlp.joint(
// JOINT-SAME:    %[[W:[^:]+]]: tensor<8x4xf32> {zorse.gradient, zorse.index = 0 : i64, zorse.slot = "parameter"}
// JOINT-SAME:    %[[X:[^:]+]]: tensor<?x4xf32> {zorse.gradient, zorse.index = 0 : i64, zorse.slot = "boundary_in"}
// JOINT-SAME:    %[[DY:[^:]+]]: tensor<?x8xf32> {zorse.index = 0 : i64, zorse.slot = "boundary_out_gradient"})
// JOINT-SAME:    -> (tensor<?x8xf32> {zorse.gradient, zorse.index = 0 : i64, zorse.slot = "boundary_out"}, tensor<?x4xf32> {zorse.index = 0 : i64, zorse.slot = "boundary_in_gradient"}, tensor<8x4xf32> {zorse.index = 0 : i64, zorse.slot = "parameter_gradient"})
// JOINT:         %[[H:.+]] = zorse.matmul %[[X]], %[[W]]
// JOINT:         %[[Y:.+]] = zorse.gelu %[[H]]
// JOINT:         %[[GY:.+]] = zorse.gradient_of %[[Y]], %[[DY]]
// JOINT:         %[[DH:.+]] = zorse.gelu_grad {{.*}}%[[GY]]
// JOINT:         %[[GH:.+]] = zorse.gradient_of %[[H]], %[[DH]]
// JOINT:         %[[DX:.+]] = zorse.matmul %[[GH]], %[[W]]
// JOINT:         %[[GX:.+]] = zorse.gradient_of %[[X]], %[[DX]]
// JOINT:         return %[[Y]], %[[GX]], %{{.+}} :

// SAVED-LABEL: func.func @mlp.joint(
// SAVED-SAME:    tensor<?x8xf32> {zorse.index = 0 : i64, zorse.slot = "saved"})
// SAVED:         %[[H:.+]] = zorse.matmul
// SAVED:         zorse.gradient_of
// SAVED:         return {{.*}}, %[[H]] :

// SLICED-LABEL: func.func @mlp.forward(
// SLICED-NOT:     gradient_of
// SLICED-LABEL: func.func @mlp.backward(
// SLICED-NOT:     gradient_of
func.func @mlp.forward(%w: tensor<8x4xf32> {zorse.slot = "parameter", zorse.index = 0 : i64, zorse.gradient},
                       %x: tensor<?x4xf32> {zorse.slot = "boundary_in", zorse.index = 0 : i64, zorse.gradient})
    -> (tensor<?x8xf32> {zorse.slot = "boundary_out", zorse.index = 0 : i64, zorse.gradient}) {
  %h = zorse.matmul %x, %w {transpose_b} : tensor<?x4xf32>, tensor<8x4xf32> -> tensor<?x8xf32>
  %y = zorse.gelu %h : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
