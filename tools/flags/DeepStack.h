#pragma once

namespace zorse {

/// Runs a tool's main function on a stack that is as large as the address space allows, and gives threads that are made from here on large ones, too.
/// What walks along the graph of a model, here and in MLIR, may recurse as deep as the graph is: a chain of 60,000 nodes needs more than the 8 MiB
/// that a stack usually has. Memory is taken only as far as it is used.
int runOnDeepStack(int (*tool)(int, char **), int argc, char **argv);

} // namespace zorse
