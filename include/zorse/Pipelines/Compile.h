// The compiler as one function: the implementation of zorse-compile.
//
//     import → recognize → units → backward → lower → plan → kernels → step → exec
//     → verify → bundle
//
// The phases between the first and the last are passes (docs/internals/passes.md). compileModel can
// stop after any of them, and print or dump its result.
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

/// Stages of the module, in order (docs/internals/passes.md).
enum class Stage : uint8_t {
  Graph,      ///< imported
  Recognized, ///< canonical form, with its content hash and roundings
  Units,      ///< @model is a chain of units, with a forward function for each class
  Functions,  ///< all functions that programs call
  Lowered,    ///< a zorse.target for each architecture: compiled functions, and their kernels
  Plan,       ///< zorse.plan is canonical; targets have only the compiled functions that it uses
  Kernels,    ///< targets have machine code
  Step, ///< the plan is expanded and can run; the expansion is an analysis and does not change the
        ///< module
  Programs, ///< the module has zorse.programs
  Verified, ///< the programs are verified
  Bundle,   ///< the bundle is written
};

enum class Emit : uint8_t { Nothing, Graph, Pipeline, Units, Plan, Exec, Llvm };

/// Whether the bundle contains the initial weights or refers to the model's files. Auto: it
/// contains them up to kCopiedWeights bytes; copying more would take longer than the rest of the
/// compilation. Later: it refers to the model's files, which need not exist yet and are not read.
enum class Weights : uint8_t { Auto, Copy, Reference, Later };
inline constexpr uint64_t kCopiedWeights = 64 << 20;

struct CompileOptions {
  std::string model;                 ///< ONNX file
  std::string cluster;               ///< YAML file
  std::string plan;                  ///< plan.json; empty: the plan is searched
  std::vector<std::string> profiles; ///< measured times (docs/reference/profile-json.md); later
                                     ///< files have precedence
  std::string output;                ///< bundle directory; empty: no bundle is written
  std::string rebuild;               ///< bundle whose kernels are rebuilt; empty: none
  std::string near; ///< bundle whose model is planned again for other devices, with its functions
                    ///< and machine code; empty: none
  std::vector<std::string> exclude;  ///< with `near`: devices of the cluster to leave out
  std::vector<std::string> slowdown; ///< with `near`: "NAME=FACTOR" of devices that compute slower

  /// Maximum number of devices that divide a unit; above 1, and without a plan, plans with groups
  /// of devices are also searched.
  uint32_t tensorParallelSize = 1;
  std::string gradientWire; ///< name of a step::GradientWire; empty: as `plan` says
  int64_t batch = 0;        ///< samples per step
  int64_t groupRows = -1; ///< consecutive samples that the model may combine; 0: none; -1: `batch`
                          ///< if it combines samples, else none
  int64_t sequence = 0;   ///< length of symbolic sequence dimensions; 0: the model has none
  std::string saved = "min-cut"; ///< activations that forwards save for their backwards: min-cut,
                                 ///< none or full (autodiff::RecomputePolicy)
  Precision precision;           ///< compute type of units, and rounding
  std::map<std::string, int64_t> dims;          ///< other symbolic dimensions by name
  std::string loss, lossOutput, logits, labels; ///< as in ImportOptions
  bool shiftLabels = false;
  std::optional<bool> shiftedInGraph;
  int64_t ignoreIndex = -100;
  std::vector<std::string> train, freeze; ///< initializers, by name or pattern
  bool trustGuess = false;                ///< the trained parameters may be guessed
  bool trustImport = false; ///< skips the numerical comparison of the imported loss with the file

  bundle::TrainingOptions training;
  std::string decay = "rank"; ///< rank, all, none or names:P,Q
  bool optimizerGiven = false, learningRateGiven = false, clipGiven = false,
       decayGiven = false; ///< given by the caller: they override the file's own training options
  Weights weights = Weights::Auto;

  bool simulateOnly = false; ///< devices may be of kinds without a driver: the bundle is only for
                             ///< `zorse-run --simulate`
  bool sampling = false;     ///< adds a compiled function for text generation by zorse-run
  bool allFunctions = false; ///< also compiles functions that only other plans use: recomputation,
                             ///< parts of split backwards, sums of rounded gradients

  Stage last = Stage::Bundle; ///< last stage to make
  Emit emit = Emit::Nothing;  ///< output printed to standard output after the phase that makes it
  std::string dumpDir;        ///< directory for the results of every phase
  std::string arch = "native";
  unsigned threads = 2;
  bool quiet = false;     ///< no line per phase
  bool mlirFlags = false; ///< MLIR's own options (--mlir-timing, ...) have been parsed and apply to
                          ///< the passes

  bool writesBundle() const {
    return emit == Emit::Nothing && last == Stage::Bundle && !output.empty();
  }
};

/// Returns the stage made by the phase with this `--compile-to` name, or nothing.
std::optional<Stage> findPhase(const std::string &name);

/// Copies plan, cluster, batch, sequence, precision, training options and CPU architecture from the
/// bundle `options.rebuild`.
Status adoptBundle(CompileOptions &options);

/// Copies batch, sequence, precision and, if none is given, the cluster from the bundle
/// `options.near`.
Status adoptNearBundle(CompileOptions &options);

/// Runs the phases that make `options.last`. Diagnostics, warnings and one line per phase are
/// printed to standard error, `emit` to standard output.
/// \returns whether all phases succeeded; errors have been printed
bool compileModel(const CompileOptions &options);

/// Runs the first half, up to compiled functions, which provides the planner's data about a model.
bool summarizeModel(const CompileOptions &options, bundle::ModelSummary &summary,
                    bundle::FunctionLibrary &functions);

} // namespace zorse::pipelines
