#pragma once

namespace zorse {

/// Runs the main function of a tool on the largest stack that the address space allows. Threads
/// created afterwards get large stacks too (up to 64 MiB).
///
/// Traversals of a model's graph, here and in MLIR, may recurse as deep as the graph: a chain of
/// 60,000 nodes needs more than the usual 8 MiB. Physical memory is allocated only for the pages
/// that are used.
int runOnDeepStack(int (*tool)(int, char **), int argc, char **argv);

} // namespace zorse
