#include "Inspect.h"
#include "Terminal.h"

#include <cstdio>

namespace zorse::inspect {

namespace {

std::string lower(std::string text) {
  for (char &c : text)
    c = c == '_' ? ' ' : static_cast<char>(tolower(c));
  return text;
}

std::string extent(const bundle::AffineSize &e, const char *row) {
  if (e.per_row() == 0)
    return std::to_string(e.fixed());
  std::string text = (e.per_row() == 1 ? "" : std::to_string(e.per_row()) + "·") + row;
  return e.fixed() ? std::to_string(e.fixed()) + "+" + text : text;
}

std::string describe(const bundle::Launch &launch) {
  switch (launch.what_case()) {
  case bundle::Launch::kKernel:
    return "kernel   " + launch.kernel().symbol() + "  iterations " +
           extent(launch.kernel().iterations(), "rows");
  case bundle::Launch::kMatmul: {
    const bundle::Matmul &p = launch.matmul();
    std::string text = "matmul   " + extent(p.m(), "rows") + " x " + extent(p.n(), "rows") + " x " +
                       extent(p.k(), "rows");
    if (p.batch().per_row() || p.batch().fixed() > 1)
      text += ", batch " + extent(p.batch(), "rows");
    return text + (p.transpose_a() ? ", A transposed" : "") +
           (p.transpose_b() ? ", B transposed" : "") + (p.accumulates() ? ", adds" : "") +
           (p.has_bias() ? ", bias added" : "");
  }
  case bundle::Launch::kLibrary:
    return "library  " + launch.library().name();
  case bundle::Launch::kExchange:
    return "exchange argument " + std::to_string(launch.exchange().argument());
  case bundle::Launch::WHAT_NOT_SET:
    break;
  }
  return "?";
}

} // namespace

void printFunctions(const bundle::BundleView &bundle) {
  const bundle::FunctionLibrary &library = bundle.functions;
  std::string targets = library.arch();
  for (const bundle::FunctionLibrary &other : bundle.otherTargets)
    targets += ", " + other.arch();
  printf("%s for %s\n", bold(std::to_string(library.functions_size()) + " functions").c_str(),
         targets.c_str());
  for (int b = 0; b < library.functions_size(); ++b) {
    const bundle::CompiledFunction &function = library.functions(b);
    printf("\n%s %s", dim(std::to_string(b)).c_str(), bold(function.name()).c_str());
    if (function.flops_per_row() > 0)
      printf("   %s FLOPs a row", amount(function.flops_per_row()).c_str());
    puts("");
    std::vector<std::vector<std::string>> table = {{"argument", "", "", ">bytes", ">a row"}};
    for (const bundle::FunctionArgument &argument : function.arguments())
      table.push_back({lower(bundle::AccessMode_Name(argument.mode())),
                       lower(bundle::ArgumentKind_Name(argument.kind())) + " " +
                           std::to_string(argument.index()),
                       argument.name(), bytes(argument.bytes().fixed()),
                       argument.bytes().per_row() ? bytes(argument.bytes().per_row()) : ""});
    printTable(table);
    for (int i = 0; i < function.launches_size(); ++i)
      printf("   %s %s   %s\n", dim(fit(std::to_string(i), 3, true)).c_str(),
             describe(function.launches(i)).c_str(), dim(function.launches(i).origin()).c_str());
  }
}

} // namespace zorse::inspect
