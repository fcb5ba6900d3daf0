// Imports GridSample. Each result is a weighted sum of gathered values at the positions around a
// computed place.
#include "Decomposition.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// One position that is read along one dimension, with its weight. Positions are whole numbers
/// within the dimension, stored as floats.
struct Tap {
  ImportedValue at, weight;
};

class Sampler {
public:
  Sampler(Decomposition &make, std::string mode, std::string padding, bool aligned)
      : make(make), mode(std::move(mode)), padding(std::move(padding)), aligned(aligned) {}

  /// \param grid  places in a dimension of `size` positions, from -1 to 1
  std::vector<Tap> taps(const ImportedValue &grid, int64_t size) {
    const auto extent = static_cast<double>(size);
    // -1 and 1 are the centers of the outermost positions (`aligned`), or their outer edges.
    ImportedValue x = aligned ? times(plus(grid, 1), (extent - 1) / 2)
                              : times(plus(times(plus(grid, 1), extent), -1), 0.5);
    if (mode == "nearest")
      return {inside(make("Round", {folded(x, size)}), size, {})};
    if (mode == "linear") {
      x = folded(x, size);
      ImportedValue low = make("Floor", {x}), high = plus(low, 1);
      ImportedValue part = make("Sub", {x, low});
      return {inside(low, size, plus(times(part, -1), 1)), inside(high, size, part)};
    }
    // Cubic convolution (Keys, 1981) with four positions. Each position is folded into the
    // dimension separately.
    constexpr double a = -0.75;
    ImportedValue low = make("Floor", {x}), part = make("Sub", {x, low});
    std::vector<Tap> found;
    for (int i = -1; i <= 2; ++i) {
      ImportedValue d = i < 1 ? plus(part, -i) : plus(times(part, -1), i);
      ImportedValue weight =
          i == 0 || i == 1
              ? plus(make("Mul", {make("Mul", {plus(times(d, a + 2), -(a + 3)), d}), d}), 1)
              : plus(make("Mul", {plus(make("Mul", {plus(times(d, a), -5 * a), d}), 8 * a), d}),
                     -4 * a);
      found.push_back(inside(folded(plus(low, i), size), size, weight));
    }
    return found;
  }

private:
  ImportedValue plus(const ImportedValue &x, double number) {
    return make("Add", {x, make.number(number, x)});
  }
  ImportedValue times(const ImportedValue &x, double number) {
    return make("Mul", {x, make.number(number, x)});
  }

  ImportedValue clipped(const ImportedValue &x, int64_t size) {
    return make("Min", {make("Max", {x, make.number(0, x)}),
                        make.number(static_cast<double>(size - 1), x)});
  }

  /// Moves outside places to the border or mirrors them, according to `padding`. "zeros" leaves
  /// them.
  ImportedValue folded(const ImportedValue &x, int64_t size) {
    if (padding == "zeros")
      return x;
    if (padding == "border")
      return clipped(x, size);
    const double min = aligned ? 0 : -0.5, span = static_cast<double>(aligned ? size - 1 : size);
    if (span == 0)
      return times(x, 0);
    ImportedValue away = make("Abs", {plus(x, -min)});
    ImportedValue turns = make("Floor", {times(away, 1 / span)});
    ImportedValue rest = make("Sub", {away, times(turns, span)});
    ImportedValue odd = make(
        "Greater",
        {make("Sub", {turns, times(make("Floor", {times(turns, 0.5)}), 2)}), make.number(0.5, x)});
    return clipped(plus(make("Where", {odd, plus(times(rest, -1), span), rest}), min), size);
  }

  /// A position outside has weight 0. An inside position without a weight has weight 1.
  Tap inside(const ImportedValue &at, int64_t size, ImportedValue weight) {
    ImportedValue within = clipped(at, size);
    if (padding != "zeros" && weight)
      return {within, std::move(weight)};
    ImportedValue one = make.number(1, at), zero = make.number(0, at);
    ImportedValue counts = make("Where", {make("Equal", {within, at}), one, zero});
    return {within, weight ? make("Mul", {weight, counts}) : counts};
  }

  Decomposition &make;
  std::string mode, padding;
  bool aligned;
};

} // namespace

/// Maps x [N, C, positions...] and grid [N, places..., dims], with the last dimension of positions
/// first, to [N, C, places...].
static LogicalResult importGridSample(OpContext &op) {
  constexpr int64_t kMaxTaps = 64;
  ImportedValue x = op.operand(0), grid = op.operand(1);
  if (!isFloat(x.type) || !isFloat(grid.type) || x.rank() < 3 || grid.rank() != x.rank() ||
      x.view.elements() == 0 || grid.view.elements() == 0)
    return op.error(
        "expects floats of samples x channels x positions, and a grid of the same rank");
  const int64_t dims = x.rank() - 2;
  if (grid.view.size(dims + 1) != dims || grid.view.size(0) != x.view.size(0))
    return op.error("expects a grid of " + Twine(x.view.size(0)) + " samples with " + Twine(dims) +
                    " numbers for every place, found " + Twine(grid.view.size(0)) + " and " +
                    Twine(grid.view.size(dims + 1)));
  if (x.view.sampleAxis() > 0 || grid.view.sampleAxis() > 0)
    return op.error("expects its samples in dimension 0");
  std::string mode = op.text("mode");
  mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  int64_t count = 1;
  for (int64_t d = 0; d < dims; ++d)
    count *= mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  if (count > kMaxTaps)
    return op.error("reads " + Twine(count) + " positions for every place; at most " +
                    Twine(kMaxTaps) + " are supported");

  Decomposition make(op);
  Sampler sampler(make, mode, op.text("padding_mode"), op.integer("align_corners") != 0);
  const std::vector<int64_t> shape = x.shape(), places = grid.shape();
  int64_t positions = 1, all = 1;
  for (int64_t d = 0; d < dims; ++d)
    positions *= shape[d + 2], all *= places[d + 1];
  // Channels are last, so that the values at a position form one row to gather.
  ImportedValue rows = make.transpose(make.reshape(x, {shape[0], shape[1], positions}), {0, 2, 1});
  ImportedValue flat = make.reshape(grid, {shape[0], all, dims});
  std::vector<Tap> sums{{}}; // row-major number of the position, and the product of weights
  for (int64_t d = 0; d < dims && !make.hasFailed(); ++d) {
    std::vector<Tap> next;
    for (const Tap &outer : sums)
      for (const Tap &tap : sampler.taps(make.slice(flat, 2, dims - 1 - d, 1), shape[d + 2])) {
        if (!outer.at) {
          next.push_back(tap);
          continue;
        }
        ImportedValue row =
            make("Mul", {outer.at, make.number(static_cast<double>(shape[d + 2]), outer.at)});
        next.push_back({make("Add", {row, tap.at}), make("Mul", {outer.weight, tap.weight})});
      }
    sums = std::move(next);
  }
  ImportedValue result;
  for (const Tap &tap : sums) {
    if (make.hasFailed())
      return failure();
    ImportedValue picked =
        make("GatherND", {rows, make.cast(tap.at, ElementKind::I64)}, {{"batch_dims", int64_t(1)}});
    ImportedValue part = make("Mul", {picked, tap.weight});
    result = result ? make("Add", {result, part}) : part;
  }
  std::vector<int64_t> final{shape[0], shape[1]};
  final.insert(final.end(), places.begin() + 1, places.end() - 1);
  return make.result(make.reshape(make.transpose(result, {0, 2, 1}), final));
}

void zorse::onnx_import::registerGridOps(OperatorRegistry &registry) {
  registry.add({
      {{"GridSample"},
       2,
       2,
       {integer("align_corners", 0),
        only(text("mode", "linear"), {"linear", "nearest", "cubic", "bilinear", "bicubic"}),
        only(text("padding_mode", "zeros"), {"zeros", "border", "reflection"})},
       importGridSample},
  });
}
