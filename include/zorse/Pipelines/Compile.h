// The compiler as one call: what zorse-compile does.
//
//   import → recognize → units → backward → bodies → plan → kernels → step → exec → verify → bundle
//
// The phases between the first and the last are passes (docs/passes.md). compileModel can stop after any of them, and print or dump what it has.
#pragma once

#include "zorse/Base/Status.h"
#include "zorse/Summary/Summary.h"

#include "bundle.pb.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::pipelines {

/// What the module is, in order (docs/passes.md).
enum class Stage : uint8_t {
  Graph,      ///< as it was imported
  Recognized, ///< in one canonical form, with its content hash and roundings
  Units,      ///< @model a chain of units, a forward for each class
  Functions,  ///< all functions that programs call
  Bodies,     ///< a zorse.target for each architecture: bodies, and their kernels
  Plan,       ///< zorse.plan is canonical; targets have what it uses
  Kernels,    ///< and machine code
  Step,       ///< the plan is expanded, and can run: beside the module, which it does not change
  Programs,   ///< zorse.programs
  Verified,   ///< they are verified
  Bundle,     ///< and written
};

enum class Emit : uint8_t { Nothing, Graph, Pipeline, Units, Plan, Exec, Llvm };

/// Whether the bundle holds the initial weights or names the model's files. Auto: it holds them up to kCopiedWeights bytes; beyond, copying would
/// take longer than everything else. Later: it names the model's files, which need not exist yet; no byte of them is read.
enum class Weights : uint8_t { Auto, Copy, Reference, Later };
inline constexpr uint64_t kCopiedWeights = 64 << 20;

struct CompileOptions {
  std::string model;                 ///< ONNX file
  std::string cluster;               ///< YAML file
  std::string plan;                  ///< plan.json; empty: searched
  std::vector<std::string> profiles; ///< measured times (docs/profile.md), later ones go before
  std::string output;                ///< bundle directory; empty: none is written
  std::string rebuild;               ///< a bundle from elsewhere that is made anew; empty: none

  int64_t batch = 0;                            ///< samples per step
  int64_t batchNormRows = 0;                    ///< samples whose statistics batch norm takes together; 0: batch norm is an error
  int64_t sequence = 0;                         ///< length of symbolic sequence dimensions; 0: the model has none
  std::string saved = "min-cut";                ///< what forwards keep for their backwards: min-cut, keep or full (autodiff::SavePolicy)
  Precision precision;                          ///< what units compute in, and what is rounded
  std::map<std::string, int64_t> dims;          ///< other symbolic dimensions by name
  std::string loss, lossOutput, logits, labels; ///< as in ImportOptions
  bool shiftLabels = false;
  std::optional<bool> shiftedInGraph;
  int64_t ignoreIndex = -100;
  std::vector<std::string> train, freeze; ///< initializers by name or pattern
  bool trustGuess = false;                ///< what is trained may be guessed
  bool trustImport = false;               ///< the imported loss is not compared with the file by numbers

  bundle::TrainingOptions training;
  std::string decay = "rank"; ///< rank, all, none or names:P,Q
  bool optimizerGiven = false, learningRateGiven = false, clipGiven = false,
       decayGiven = false; ///< by the caller: what a file that brings its own training says of them does not count
  Weights weights = Weights::Auto;

  bool simulateOnly = false; ///< the bundle's devices may be of kinds without a driver: it is for `zorse-run --simulate` alone
  bool sampling = false;     ///< a further body for zorse-run to sample text by
  bool splitBodies = false;  ///< the parts of split backwards also where the plan does not split: to be measured

  Stage last = Stage::Bundle; ///< that is made
  Emit emit = Emit::Nothing;  ///< printed to standard output after the phase that makes it
  std::string dumpDir;        ///< what every phase made, as files
  std::string arch = "native";
  unsigned threads = 2;
  bool quiet = false;     ///< no line per phase
  bool mlirFlags = false; ///< MLIR's own options (--mlir-timing, ...) have been parsed, and hold for the passes

  bool writesBundle() const { return emit == Emit::Nothing && last == Stage::Bundle && !output.empty(); }
};

/// What the phase makes that `--compile-to` calls so, or nothing.
std::optional<Stage> findPhase(const std::string &name);

/// Takes plan, cluster, batch, sequence, precision, training options and processor from the bundle `options.rebuild`.
Status adoptBundle(CompileOptions &options);

/// Runs the phases that make `options.last`. Diagnostics, warnings and one line per phase go to standard error, `emit` to standard output.
/// \returns whether everything went well; what went wrong has been printed.
bool compileModel(const CompileOptions &options);

/// The first half, up to bodies: what planning needs to know of a model.
bool summarizeModel(const CompileOptions &options, bundle::ModelSummary &summary, bundle::BodyLibrary &bodies);

} // namespace zorse::pipelines
