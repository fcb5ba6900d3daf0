#include "AssignFunctions.h"

#include "zorse/Bundle/Manifest.h"
#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Summary.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>

namespace zorse::pipelines {

namespace {

int placeOfWorkspace(const bundle::CompiledFunction &compiled) {
  for (int s = 0; s < compiled.arguments_size(); ++s)
    if (compiled.arguments(s).kind() == bundle::WORKSPACE)
      return s;
  return -1;
}

/// Inserts a workspace of 0 bytes as argument `place`; launches keep their operands.
void insertWorkspace(bundle::CompiledFunction &compiled, int place,
                     const bundle::FunctionArgument &like) {
  *compiled.add_arguments() = like;
  compiled.mutable_arguments(compiled.arguments_size() - 1)->clear_bytes();
  for (int s = compiled.arguments_size() - 1; s > place; --s)
    compiled.mutable_arguments()->SwapElements(s, s - 1);
  const auto shift = [place](bundle::Pointer &pointer) {
    if (pointer.argument() >= uint32_t(place) && pointer.argument() != UINT32_MAX)
      pointer.set_argument(pointer.argument() + 1);
  };
  for (bundle::Launch &launch : *compiled.mutable_launches()) {
    if (launch.has_kernel())
      std::for_each(launch.mutable_kernel()->mutable_operands()->begin(),
                    launch.mutable_kernel()->mutable_operands()->end(), shift);
    if (launch.has_library())
      std::for_each(launch.mutable_library()->mutable_operands()->begin(),
                    launch.mutable_library()->mutable_operands()->end(), shift);
    if (launch.has_exchange() && launch.exchange().argument() >= uint32_t(place))
      launch.mutable_exchange()->set_argument(launch.exchange().argument() + 1);
    if (!launch.has_matmul())
      continue;
    bundle::Matmul &product = *launch.mutable_matmul();
    for (bundle::Pointer *pointer : {product.mutable_a(), product.mutable_b(), product.mutable_c()})
      shift(*pointer);
    if (product.has_bias())
      shift(*product.mutable_bias());
  }
}

/// Adds workspace arguments that the other target has. A target with a library that executes more
/// in one call may need no workspace.
void shareWorkspaceArguments(codegen::CompiledFunctions &compiled,
                             codegen::CompiledFunctions &other) {
  for (int b = 0; b < compiled.library.functions_size(); ++b) {
    bundle::CompiledFunction &one = *compiled.library.mutable_functions(b),
                             &two = *other.library.mutable_functions(b);
    const int first = placeOfWorkspace(one), second = placeOfWorkspace(two);
    if (first < 0 && second >= 0)
      insertWorkspace(one, second, two.arguments(second));
    if (second < 0 && first >= 0)
      insertWorkspace(two, first, one.arguments(first));
  }
}

/// Sets every target's workspace to the largest of all targets, because programs, plan and verifier
/// use one value.
void levelWorkspaces(std::vector<codegen::CompiledFunctions> &targets) {
  codegen::CompiledFunctions &first = targets.front();
  auto others = llvm::drop_begin(targets);
  for (bool back : {false, true}) // first to the first target, then from it to all others
    for (codegen::CompiledFunctions &other : others)
      back ? shareWorkspaceArguments(other, first) : shareWorkspaceArguments(first, other);
  for (bool back : {false, true}) // the largest to the first target, then to all others
    for (codegen::CompiledFunctions &other : others)
      for (int b = 0; b < first.library.functions_size(); ++b) {
        bundle::CompiledFunction &to = *(back ? other : first).library.mutable_functions(b),
                                 &from = *(back ? first : other).library.mutable_functions(b);
        const int place = placeOfWorkspace(to);
        if (place < 0)
          continue;
        bundle::AffineSize &bytes = *to.mutable_arguments(place)->mutable_bytes(),
                           &max = *from.mutable_arguments(placeOfWorkspace(from))->mutable_bytes();
        bytes.set_fixed(std::max(bytes.fixed(), max.fixed()));
        bytes.set_per_row(std::max(bytes.per_row(), max.per_row()));
      }
}

} // namespace

std::string levelTargets(mlir::MLIRContext *context,
                         std::vector<codegen::CompiledFunctions> &targets,
                         const bundle::ModelSummary &summary, uint32_t sumTerms) {
  levelWorkspaces(targets);
  for (codegen::CompiledFunctions &target : targets)
    codegen::appendBuiltinFunctions(context, target, summary, sumTerms);
  for (const codegen::CompiledFunctions &other : llvm::drop_begin(targets))
    if (std::string problem = bundle::differentArguments(targets.front().library, other.library);
        !problem.empty())
      return problem;
  return {};
}

/// Adds the functions for sums of rounded terms to the summary.
static void nameRoundedSums(bundle::ModelSummary &summary, const llvm::StringMap<uint32_t> &index) {
  auto add = [&](const std::string &name, bundle::ElementType type, uint32_t contributions,
                 bundle::ElementType term, bool continues) {
    auto found = index.find(name);
    if (found == index.end())
      return;
    bundle::SumFunction &sum = *summary.add_sums();
    sum.set_type(type);
    sum.set_num_contributions(contributions);
    sum.set_function(found->second);
    sum.set_term_type(term);
    sum.set_continues(continues);
  };
  add(codegen::kRoundTermsName, bundle::BF16, 1, bundle::F32, false);
  for (bool continues : {false, true})
    for (uint32_t terms = 2; terms <= kMaxSumTerms; ++terms)
      add(codegen::roundedSumName(terms, continues), bundle::F32, terms, bundle::BF16, continues);
}

void nameFunctions(bundle::ModelSummary &summary, const bundle::FunctionLibrary &library) {
  llvm::StringMap<uint32_t> index;
  for (int i = 0; i < library.functions_size(); ++i)
    index[library.functions(i).name()] = uint32_t(i);
  units::assignFunctions(summary, [&](llvm::StringRef function) {
    units::FunctionSizes sizes;
    auto found = index.find(function);
    sizes.function = found == index.end() ? UINT32_MAX : found->second;
    if (found == index.end())
      return sizes;
    const bundle::CompiledFunction &compiled = library.functions(int(sizes.function));
    if (const int place = placeOfWorkspace(compiled); place >= 0)
      sizes.workspace = compiled.arguments(place).bytes();
    return sizes;
  });
  summary.clear_sums();
  for (bundle::ElementType type : {bundle::F32, bundle::F64, bundle::BF16, bundle::F16})
    for (uint32_t terms = 2; terms <= kMaxSumTerms; ++terms)
      if (auto found = index.find(codegen::sumName(type, terms)); found != index.end()) {
        bundle::SumFunction &sum = *summary.add_sums();
        sum.set_type(type);
        sum.set_num_contributions(terms);
        sum.set_function(found->second);
      }
  nameRoundedSums(summary, index);
}

std::set<std::string> unusedParts(const bundle::ModelSummary &summary, const step::Plan &plan) {
  std::set<std::string> parts;
  if (plan.gradientWire == step::GradientWire::Unrounded) {
    parts.insert(codegen::kRoundTermsName);
    for (bool continues : {false, true})
      for (uint32_t terms = 2; terms <= kMaxSumTerms; ++terms)
        parts.insert(codegen::roundedSumName(terms, continues));
  }
  std::vector<bool> repeated(size_t(summary.classes_size()), false);
  for (const step::Cell &cell : plan.cells)
    if (step::recomputes(summary, cell, plan.schedule.splitBackward))
      repeated[step::unitInfo(summary, {cell.unitEnd - 1, cell.group, cell.member}).class_id()] =
          true;
  for (auto [unitClass, isRepeated] : llvm::zip(summary.classes(), repeated)) {
    using Function = bundle::UnitFunction;
    if (!plan.schedule.splitBackward)
      for (Function::Task task : {Function::INPUT_GRADIENTS, Function::WEIGHT_GRADIENTS})
        parts.insert(functionName(unitClass, task));
    if (!isRepeated)
      parts.insert(functionName(unitClass, Function::RECOMPUTE));
  }
  return parts;
}

} // namespace zorse::pipelines
