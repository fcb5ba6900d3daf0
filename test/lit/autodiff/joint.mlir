// RUN: zorse-opt %s --zorse-join-backward | FileCheck %s --check-prefix=JOINT
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved | FileCheck %s --check-prefix=SAVED
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved --zorse-slice-joint | FileCheck %s --check-prefix=SLICED
// RUN: zorse-opt %s --zorse-differentiate > %t.whole
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved --zorse-slice-joint | diff - %t.whole
// RUN: zorse-opt %s --zorse-differentiate=split > %t.whole
// RUN: zorse-opt %s --zorse-join-backward | zorse-opt --zorse-choose-saved | zorse-opt --zorse-slice-joint=split | diff - %t.whole
// RUN: zorse-opt %s --zorse-differentiate=save=keep > %t.whole
// RUN: zorse-opt %s --zorse-join-backward --zorse-choose-saved=save=keep --zorse-slice-joint | diff - %t.whole
// Forward and backward in one block: every value with a gradient is named next to it, and the gradients of arguments are results with the arguments' index.

// JOINT-LABEL: zorse.class @mlp {
// JOINT-LABEL: func.func @joint(
// JOINT-SAME:    %[[W:[^:]+]]: tensor<8x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient}
// JOINT-SAME:    %[[X:[^:]+]]: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient}
// JOINT-SAME:    %[[DY:[^:]+]]: tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_out_gradient, 0>})
// JOINT-SAME:    -> (tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}, tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in_gradient, 0>}, tensor<8x4xf32> {zorse.argument = #zorse.argument<parameter_gradient, 0>})
// JOINT:         %[[H:.+]] = zorse.matmul %[[X]], %[[W]]
// JOINT:         %[[Y:.+]] = zorse.gelu %[[H]]
// JOINT:         %[[GY:.+]] = zorse.gradient_of %[[Y]], %[[DY]]
// JOINT:         %[[DH:.+]] = zorse.gelu_grad {{.*}}%[[GY]]
// JOINT:         %[[GH:.+]] = zorse.gradient_of %[[H]], %[[DH]]
// JOINT:         %[[DX:.+]] = zorse.matmul %[[GH]], %[[W]]
// JOINT:         %[[GX:.+]] = zorse.gradient_of %[[X]], %[[DX]]
// JOINT:         return %[[Y]], %[[GX]], %{{.+}} :

// SAVED-LABEL: func.func @joint(
// SAVED-SAME:    tensor<?x8xf32> {zorse.argument = #zorse.argument<saved, 0>})
// SAVED:         %[[H:.+]] = zorse.matmul
// SAVED:         zorse.gradient_of
// SAVED:         return {{.*}}, %[[H]] :

// SLICED-LABEL: func.func @forward(
// SLICED-NOT:     gradient_of
// SLICED-LABEL: func.func @backward(
// SLICED-NOT:     gradient_of
zorse.class @mlp {
  func.func @forward(%w: tensor<8x4xf32> {zorse.argument = #zorse.argument<parameter, 0>, zorse.gradient},
                     %x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x8xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %h = zorse.matmul %x, %w {transpose_b} : tensor<?x4xf32>, tensor<8x4xf32> -> tensor<?x8xf32>
    %y = zorse.gelu %h : tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}
