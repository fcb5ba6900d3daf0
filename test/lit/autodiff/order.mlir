// RUN: not zorse-opt %s --zorse-choose-saved 2>&1 | FileCheck %s --check-prefix=SAVED
// RUN: not zorse-opt %s --zorse-slice-joint 2>&1 | FileCheck %s --check-prefix=SLICE
// RUN: not zorse-opt %s --zorse-join-backward --zorse-differentiate 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: not zorse-opt %s --zorse-join-backward --zorse-compile-functions 2>&1 | FileCheck %s --check-prefix=BODIES
// RUN: not zorse-opt %s --zorse-find-units 2>&1 | FileCheck %s --check-prefix=UNITS
// RUN: not zorse-opt %s --zorse-verify-model 2>&1 | FileCheck %s --check-prefix=MODEL
// A pass that runs too early or too late names the pass that must run first.

// SAVED:  error: zorse-choose-saved: expected classes with a function '@joint', found none: run --zorse-join-backward first
// SLICE:  error: zorse-slice-joint: expected classes with a function '@joint', found none: run --zorse-join-backward first
// AGAIN:  error: zorse-differentiate: expected classes with a function '@forward', found none: run --zorse-find-units first
// BODIES: error: zorse-compile-functions: expected functions of units, found joint function 'c.joint': run --zorse-slice-joint first
// UNITS:  error: zorse-find-units: expected a recognized @model, found class '@c': units have been found already
// MODEL:  error: (M1) expects a function @model of one block; found class '@c': passes over a model come before --zorse-find-units
zorse.class @c {
  func.func @forward(%x: tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_in, 0>, zorse.gradient})
      -> (tensor<?x4xf32> {zorse.argument = #zorse.argument<boundary_out, 0>, zorse.gradient}) {
    %y = zorse.gelu %x : tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}
