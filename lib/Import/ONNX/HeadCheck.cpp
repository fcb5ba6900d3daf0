#include "HeadCheck.h"

#include "HeadData.h"
#include "ImportState.h"
#include "Interpret.h"
#include "Lengths.h"

#include "../Reference/Evaluator.h"
#include "zorse/Base/Format.h"

#include "mlir/IR/Diagnostics.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// Limits on operations for the largest number of samples: up to kWholeGraph, the head is the whole
/// graph; above kMax, nothing is compared.
constexpr int64_t kWholeGraph = int64_t(1) << 20, kMax = int64_t(1) << 24;
/// Above this number of logits, cross-entropies are replaced by a function of the label.
constexpr int64_t kMaxLogits = int64_t(1) << 16;
/// Max draws of data until the loss is finite.
constexpr int kDraws = 6;

std::string number(double value) { return zorse::format("%.10g", value); }

std::string listed(const std::vector<int64_t> &numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i)
    text += (i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
  return text;
}

/// All ways to divide samples into consecutive cells. A few of them if there are more than 5
/// samples.
std::vector<std::vector<int64_t>> divisions(int64_t samples) {
  if (samples > 5)
    return {{samples},
            {1, samples - 1},
            {samples - 2, 2},
            {samples / 2, samples - samples / 2},
            {1, samples / 2, samples - samples / 2 - 1}};
  std::vector<std::vector<int64_t>> all;
  for (int64_t bits = 0; bits < int64_t(1) << (samples - 1); ++bits) {
    std::vector<int64_t> cells{1};
    for (int64_t i = 0; i + 1 < samples; ++i)
      if (bits >> i & 1)
        cells.push_back(1);
      else
        ++cells.back();
    all.push_back(cells);
  }
  return all;
}

class Check {
public:
  explicit Check(const HeadSource &source) : source(source), program(source.function) {}
  HeadOutcome run();

private:
  enum class Result : uint8_t { Equal, Different, Unknown };
  bool prepare(bool wholeGraph);
  bool cutAgain(HeadFrontier &frontier);
  Result compare(int64_t samples);
  Result compareDraw(int64_t samples, int draw);
  bool hasLargeLogits() const;
  std::optional<double> lossOfFile(const HeadData &data, int64_t samples);
  bool lossOfCells(const std::vector<int64_t> &cells, std::vector<double> &terms, double &loss);
  double factorOf(const HeadTerm &term, double batch, double cell,
                  const std::vector<double> &counts, const std::vector<double> &ofCell) const;
  void describe(int64_t samples, const std::vector<int64_t> &cells, double file, double imported,
                const std::vector<double> &terms);

  const HeadSource &source;
  HeadProgram program;
  std::unique_ptr<HeadFrontier> frontier;
  std::set<int> cuts;
  bool whole = false, lossOfLabel = false;
  std::string why, error;
};

bool Check::hasLargeLogits() const {
  bool large = false;
  source.function.walk([&](CrossEntropyOp op) {
    int64_t elements = 1;
    for (int64_t size : op.getLogits().getType().getShape())
      elements *= ShapedType::isDynamic(size) ? 1 : size;
    large |= elements > kMaxLogits;
  });
  return large;
}

// Raises the frontier until the file's head and the imported program read the same values. The
// importer may have merged operations across a frontier, so that its cut values do not exist in the
// program.
bool Check::cutAgain(HeadFrontier &frontier) {
  for (int round = 0; round < 64; ++round) {
    cuts = frontier.cuts(source.loss);
    llvm::DenseSet<Value> places;
    for (int value : cuts)
      if (source.values[value].value)
        places.insert(source.values[value].value);
    bool leaks = false;
    for (BlockArgument argument : program.slice(places, lossOfLabel))
      leaks |= !isLifted(source.function, argument);
    if (!leaks)
      return true;
    std::vector<int> above;
    for (int value : cuts)
      if (!program.reads(source.values[value].value))
        above.push_back(value);
    if (!frontier.raise(above))
      return why = "what was imported reads other values than the file's head", false;
  }
  return why = "no frontier was found", false;
}

bool Check::prepare(bool wholeGraph) {
  whole = wholeGraph;
  lossOfLabel = !whole && hasLargeLogits();
  frontier = std::make_unique<HeadFrontier>(source.graph, source.values, whole);
  frontier->lossOfLabel = lossOfLabel;
  if (!whole)
    return cutAgain(*frontier);
  cuts = frontier->cuts(source.loss);
  llvm::DenseSet<Value> places;
  for (int value : cuts)
    places.insert(source.values[value].value);
  program.slice(places, lossOfLabel);
  return true;
}

std::optional<double> Check::lossOfFile(const HeadData &data, int64_t samples) {
  onnx_reference::Options options;
  options.lossOfLabel = lossOfLabel;
  options.maxElements = whole ? 8 * kWholeGraph : 2 * kMax;
  onnx_reference::Evaluator evaluator(
      source.graph, source.model, options,
      [&](int value) -> std::optional<onnx_reference::Array> {
        if (!cuts.count(value))
          return std::nullopt;
        return data.show(source.values[value], samples);
      },
      [&](int value) -> std::optional<onnx_reference::Shape> {
        if (!frontier->hasShape(value))
          return std::nullopt;
        return shapeFor(source.values[value].view, samples);
      });
  const onnx_reference::Array *loss = evaluator.evaluate(source.loss);
  if (!loss || loss->size() != 1)
    return why = loss ? "the loss is no scalar" : evaluator.problem(), std::nullopt;
  return loss->real(0);
}

double Check::factorOf(const HeadTerm &term, double batch, double cell,
                       const std::vector<double> &counts, const std::vector<double> &ofCell) const {
  switch (source.damage) {
  case HeadDamage::Drop:
    return &term == &program.loss().back() ? 1 : term.factor.evaluate(batch, counts);
  case HeadDamage::Double:
    return (&term == &program.loss().back() ? 2 : 1) * term.factor.evaluate(batch, counts);
  case HeadDamage::Seven:
    return term.factor.evaluate(7, counts);
  case HeadDamage::SamplesOfPart:
    return term.factor.evaluate(cell, counts);
  case HeadDamage::CountsOfPart:
    return term.factor.evaluate(batch, ofCell);
  default:
    return term.factor.evaluate(batch, counts);
  }
}

bool Check::lossOfCells(const std::vector<int64_t> &cells, std::vector<double> &terms,
                        double &loss) {
  terms.assign(program.loss().size(), 0);
  int64_t first = 0, batch = 0;
  for (int64_t cell : cells)
    batch += cell;
  for (int64_t cell : cells) {
    HeadProgram::Sums sums;
    if (!program.cell(first, first + cell, sums))
      return why = program.problem(), false;
    for (size_t k = 0; k < terms.size(); ++k)
      terms[k] += factorOf(program.loss()[k], static_cast<double>(batch * source.samplesPerRow),
                           static_cast<double>(cell * source.samplesPerRow), program.totals(),
                           sums.counts) *
                  sums.numerators[k];
    first += cell;
  }
  loss = 0;
  for (double term : terms)
    loss += term;
  return true;
}

void Check::describe(int64_t samples, const std::vector<int64_t> &cells, double file,
                     double imported, const std::vector<double> &terms) {
  error = "the loss '" + source.graph.valueNames[source.loss] +
          "' is not imported as the file has it: for " + std::to_string(samples) +
          " samples of random numbers" + (cells.size() > 1 ? " in cells of " + listed(cells) : "") +
          " the file's nodes yield " + number(file) + ", what was imported " + number(imported);
  for (size_t k = 0; k < terms.size(); ++k)
    error += (k ? " + " : " = ") + number(terms[k]) + " (" + program.loss()[k].factor.print() +
             " times a sum)";
  error += ". This is a fault of the compiler: please report it with the file. --trust-import "
           "skips this check; the loss may then differ from "
           "the file's";
}

Check::Result Check::compareDraw(int64_t samples, int draw) {
  HeadData data(source, program, cuts);
  if (!data.draw(samples, draw)) {
    why = data.problem();
    return Result::Unknown;
  }
  std::optional<double> file = lossOfFile(data, samples);
  if (!file)
    return Result::Unknown;
  if (!std::isfinite(*file)) {
    why = "the loss of random numbers is not finite";
    return Result::Unknown;
  }
  if (!program.begin(data.numbers(), samples)) {
    why = program.problem();
    return Result::Unknown;
  }
  for (const std::vector<int64_t> &cells : divisions(samples)) {
    std::vector<double> terms;
    double imported = 0, size = std::max(std::fabs(*file), 1e-12);
    if (!lossOfCells(cells, terms, imported))
      return Result::Unknown;
    for (double term : terms)
      if (std::isfinite(term))
        size = std::max(size, std::fabs(term));
    if (!(std::fabs(imported - *file) <= source.tolerance * size))
      return describe(samples, cells, *file, imported, terms), Result::Different;
  }
  return Result::Equal;
}

Check::Result Check::compare(int64_t samples) {
  const int draws = program.operations(samples) > kWholeGraph ? 2 : kDraws;
  for (int draw = 0; draw < draws; ++draw) {
    why.clear();
    if (Result result = compareDraw(samples, draw); result != Result::Unknown)
      return result;
    if (why.find("is not known to the evaluator") != std::string::npos)
      break;
  }
  return Result::Unknown;
}

HeadOutcome Check::run() {
  ScopedDiagnosticHandler quiet(source.function.getContext(),
                                [](Diagnostic &) { return success(); });
  std::vector<int64_t> sizes{2, 3, 5}, done;
  if (source.fixedSamples)
    sizes = {source.fixedSamples};
  if (!program.readTerms())
    return {"", "the loss is not checked against the file: " + program.problem()};
  // Tries the whole graph first, if it is cheap and all its operators are known. Otherwise compares
  // the head below the frontier.
  for (const bool wholeGraph : {true, false}) {
    done.clear();
    if (!prepare(wholeGraph) || (wholeGraph && program.operations(sizes.back()) > kWholeGraph))
      continue;
    for (int64_t samples : sizes) {
      if (program.operations(samples) > kMax) {
        why = "it has more than " + std::to_string(kMax) + " operations for " +
              std::to_string(samples) + " samples";
        continue;
      }
      const Result result = compare(samples);
      if (result == Result::Different)
        return {error, ""};
      if (result == Result::Unknown)
        break;
      done.push_back(samples);
    }
    if (!done.empty())
      break;
  }
  if (done.empty())
    return {"", "the loss is not checked against the file: " + why};
  const std::string rows =
      source.samplesPerRow > 1
          ? "one group of " + std::to_string(source.samplesPerRow) + " samples ("
      : done == std::vector<int64_t>{1} ? "1 sample ("
                                        : listed(done) + " samples in every division (";
  std::string text = "the loss is the file's for " + rows +
                     (whole ? "the whole graph"
                            : std::to_string(frontier->nodes().size()) +
                                  " nodes from where samples are combined") +
                     ")";
  if (done.size() < sizes.size())
    text += "; not checked for " + std::to_string(sizes[done.size()]) + ": " + why;
  return {"", text};
}

} // namespace

HeadOutcome zorse::onnx_import::checkHead(const HeadSource &source) { return Check(source).run(); }

/// Converts an imported value. \param moved  maps the values that handlers used to the arguments of
/// @model
static HeadValue valueOf(const ImportedValue &given, const llvm::DenseMap<Value, Value> &moved) {
  using Kind = HeadValue::Kind;
  HeadValue value;
  value.type = given.type;
  value.view = given.view;
  if (given.grouped) // the check takes one row, whose samples are the file's
    value.view.dims.erase(value.view.dims.begin());
  value.kind = given.isConstant() ? Kind::Constant
               : given.isKnown()  ? Kind::Known
               : given.isTensor() ? Kind::Tensor
               : given.isLoss()   ? Kind::Loss
               : given.isDrawn()  ? Kind::Drawn
                                  : Kind::Absent;
  if (given.isTensor()) {
    value.value = moved.lookup_or(given.value(), given.value());
    const std::optional<double> scale = given.scale().constant();
    value.scale = scale.value_or(1);
    value.readable = scale && !given.countsSamples &&
                     (countSampleFactors(given.view) == 1 || !isBatched(given));
  }
  return value;
}

LogicalResult zorse::onnx_import::checkAgainstFile(ImportState &state, func::FuncOp function,
                                                   ArrayRef<BlockArgument> before,
                                                   const std::vector<WeightSource> &sources) {
  const char *unchecked = state.options.trustImport ? "--trust-import"
                          : state.lossNumber < 0    ? "it is not in the file"
                          : !state.statistics.empty()
                              ? "it depends on the statistics of a batch norm"
                              : nullptr;
  if (unchecked) {
    state.notes.push_back(std::string("the loss is not checked against the file: ") + unchecked);
    return success();
  }
  if (state.options.alter)
    state.options.alter(*state.module);
  llvm::DenseMap<Value, Value> moved;
  for (auto [index, argument] : llvm::enumerate(before))
    moved[argument] = function.getArgument(index);
  std::vector<HeadValue> all;
  all.reserve(state.values.size());
  for (const ImportedValue &value : state.values)
    all.push_back(valueOf(value, moved));
  HeadSource source{state.graph, state.model, all, function, sources};
  source.loss = state.lossNumber;
  source.fixedSamples = state.rowsBaked ? state.rows : 0;
  source.samplesPerRow = std::max<int64_t>(state.options.groupRows, 1);
  // Folded constants are rounded to their types, but the file's nodes are evaluated in f64.
  const bool rounds = llvm::any_of(all, [](const HeadValue &value) {
    return value.kind != HeadValue::Kind::Absent && isFloat(value.type) &&
           value.type != ElementKind::F64;
  });
  source.tolerance = state.options.compute == ComputeType::F64 && !rounds ? 1e-9 : 1e-5;
  source.damage = state.options.headDamage;
  HeadOutcome outcome = checkHead(source);
  if (!outcome.error.empty())
    return error(state, outcome.error);
  state.notes.push_back(outcome.note);
  return success();
}
