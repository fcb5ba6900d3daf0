// Prints the human-readable summary.
#include "zorse/Units/Units.h"

#include "zorse/Summary/Summary.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace zorse;

namespace {

template <typename List>
void printShape(llvm::raw_ostream &os, const List &shape, const char *separator = "x") {
  os << '[';
  for (int i = 0; i < shape.size(); ++i)
    os << (i ? separator : "") << shape.Get(i);
  os << ']';
}

llvm::StringRef typeName(bundle::ElementType type) {
  static constexpr llvm::StringLiteral names[] = {"?",   "f32", "f64", "bf16",
                                                  "f16", "i64", "i32", "i1"};
  return type >= 0 && type < 8 ? llvm::StringRef(names[type]) : llvm::StringRef("?");
}

void printUnit(const bundle::ModelSummary &summary, int u, llvm::raw_ostream &os) {
  const bundle::UnitInfo &unit = summary.units(u);
  const bundle::UnitClass &unitClass = classOf(summary, unit);
  using Function = bundle::UnitFunction;
  auto flops = [&](Function::Task task) {
    return llvm::format("%.4g", functionOf(unitClass, task).flops_per_row());
  };
  os << "unit " << u << " '" << unit.name() << "' class " << unit.class_id() << " parameters ";
  printShape(os, unit.parameters(), " ");
  os << " inputs ";
  printShape(os, unit.inputs(), " ");
  os << " in ";
  printShape(os, unit.values_in(), " ");
  os << " out ";
  printShape(os, unit.values_out(), " ");
  if (unit.loss_terms_size()) {
    os << " loss ";
    printShape(os, unit.loss_terms(), " ");
  }
  os << " instances from " << unit.rng_id_base() << " saved " << unitClass.saved_bytes().per_row()
     << " bytes flops " << flops(Function::FORWARD) << " + " << flops(Function::BACKWARD);
  if (unit.splits())
    os << " = " << flops(Function::INPUT_GRADIENTS) << " B + " << flops(Function::WEIGHT_GRADIENTS)
       << " W, deferred " << unitClass.saved_for_weight_grad_bytes().per_row() << " bytes";
  if (functionOf(unitClass, Function::RECOMPUTE).flops_per_row() > 0)
    os << ", again " << flops(Function::RECOMPUTE);
  os << " a row\n";
}

/// Prints a group and its parameters.
void printGroup(const bundle::ModelSummary &summary, int g, llvm::raw_ostream &os) {
  const bundle::FlatGroupInfo &group = summary.groups(g);
  os << "group " << g << " '" << group.name() << "' " << typeName(group.type()) << ' '
     << group.elements() << " elements" << (group.trainable() ? "" : ", frozen") << ", units ";
  printShape(os, group.units(), " ");
  os << '\n';
  for (uint32_t p : group.parameters()) {
    const bundle::ParameterInfo &parameter = summary.parameters(p);
    os << "  parameter " << p << " '" << parameter.name() << "' ";
    printShape(os, parameter.shape());
    os << " at " << parameter.offset();
    if (parameter.trainable())
      os << " rule " << summary.update_rules(int(parameter.update_rule())).name();
    os << '\n';
  }
}

} // namespace

void units::printSummary(const bundle::ModelSummary &summary, llvm::raw_ostream &os) {
  os << "model " << typeName(summary.compute_type()) << ", " << summary.units_size() << " units";
  if (summary.blocks_count())
    os << ", " << summary.blocks_count() << " blocks of " << summary.blocks_period()
       << " from unit " << summary.blocks_first_unit();
  os << '\n';
  for (int u = 0; u < summary.units_size(); ++u)
    printUnit(summary, u, os);
  for (int v = 0; v < summary.values_size(); ++v) {
    const bundle::ValueInfo &value = summary.values(v);
    os << "value " << v << " '" << value.name() << "' " << typeName(value.type()) << ' ';
    printShape(os, value.shape());
    os << ' ' << value.bytes_per_row() << " bytes a row from unit " << value.producer() << " to ";
    printShape(os, value.users(), " ");
    os << (value.needs_gradient() ? "" : " without gradient") << '\n';
  }
  for (int g = 0; g < summary.groups_size(); ++g)
    printGroup(summary, g, os);
  for (int i = 0; i < summary.inputs_size(); ++i) {
    const bundle::GraphInput &input = summary.inputs(i);
    os << "input " << i << " '" << input.name() << "' " << typeName(input.type()) << ' ';
    printShape(os, input.shape());
    if (!input.role().empty())
      os << " role " << input.role();
    if (input.upper_bound())
      os << " in [" << input.lower_bound() << ", " << input.upper_bound() << ")";
    if (input.ignore_allowed())
      os << " or " << input.ignore_index();
    if (input.shifted_in_graph())
      os << ", shifted by the graph";
    os << ", units ";
    printShape(os, input.units(), " ");
    os << '\n';
  }
  for (int k = 0; k < summary.loss_size(); ++k) {
    const bundle::LossTerm &term = summary.loss(k);
    os << "loss " << k << " '" << term.name() << "' factor " << term.factor() << '\n';
  }
  for (int j = 0; j < summary.counts_size(); ++j)
    os << "count n" << j << " " << reduceName(summary.counts(j).reduce()) << " of "
       << summary.counts(j).meaning() << '\n';
  for (int j = 0; j < summary.known_size(); ++j)
    os << "known " << j << " " << summary.known(j) << '\n';
  if (summary.reads_sample_numbers())
    os << "reads sample numbers\n";
  if (summary.samples_per_row() > 0)
    os << "groups of " << summary.samples_per_row() << " samples"
       << (summary.combines_samples() ? ", which the loss combines\n" : "\n");
}
