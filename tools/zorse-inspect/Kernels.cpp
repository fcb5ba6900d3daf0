// Prints the generated GPU kernels of a bundle, one table per architecture.
#include "KernelTable.h"
#include "Terminal.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <cstdio>

namespace zorse::inspect {

namespace {

/// Minimum fraction of the total time for a remark about a kernel, and the occupancy below which it
/// gets one.
constexpr double kWorthwhile = 0.02, kLowOccupancy = 0.5;

constexpr const char *kLegend[] = {
    "Times are lower bounds: bytes / bandwidth, without launch overhead and caches. Matrix "
    "products run in cuBLASLt and are not listed; --functions "
    "shows them.",
    "in: functions that launch it, n times each (n×). a step: launches per step on the devices "
    "above. rows: batch size of the largest call; "
    "--batch-size N "
    "sets another.",
    "loads, stores: instructions that access global memory, n×bytes. occup.: resident warps per "
    "SM, as a fraction of the maximum.",
    "read, written: bytes of the buffers behind operands that are loaded or stored, each counted "
    "once and up to its last byte.",
    "moves: minimum bytes, elements that views and gathers access, at most read plus written. "
    "FLOPs: upper bound, for kernels without loops.",
};

/// Formats a kernel's time, which may be shorter than the times in other views.
std::string duration(double value) {
  return value < 1e-6 ? format("%.0f ns", value * 1e9) : showDuration(value);
}

/// "addf_mulf_tanh 87feb8": the operations of a kernel, and the first digits of its hash.
std::string shortName(const std::string &symbol) {
  const size_t hash = symbol.rfind('_');
  return hash == std::string::npos ? fit(symbol, 26)
                                   : fit(symbol.substr(0, hash), std::min(19, int(hash))) + " " +
                                         symbol.substr(hash + 1, 6);
}

/// "attention.backward 2×, mlp.forward".
std::string functionsOf(const KernelRow &row) {
  std::string text;
  for (const auto &[function, launches] : row.functions)
    text += (text.empty() ? "" : ", ") + function +
            (launches > 1 ? " " + std::to_string(launches) + "×" : "");
  constexpr int width = 30;
  return columnsOf(text) > width ? fit(text, width) : text;
}

/// "3×16 1×4": three accesses of 16 bytes, one of 4.
std::string widths(const AccessWidths &accesses) {
  std::string text;
  for (auto it = accesses.rbegin(); it != accesses.rend(); ++it)
    text += (text.empty() ? "" : " ") + std::to_string(it->second) + "×" +
            std::to_string(it->first);
  return text.empty() ? "-" : text;
}

int widest(const KernelRow &row) {
  int bytes = 0;
  for (const AccessWidths *accesses : {&row.code.loads, &row.code.stores})
    if (!accesses->empty())
      bytes = std::max(bytes, accesses->rbegin()->first);
  return bytes;
}

/// Returns possible improvements of a kernel; empty if none is visible here.
std::string remarkOn(const KernelRow &row) {
  std::string text;
  auto add = [&](const std::string &remark) { text += (text.empty() ? "" : ", ") + remark; };
  if (row.assembled && row.assembled->spilledBytes > 0)
    add("spills");
  if (row.occupancy && row.occupancy->share < kLowOccupancy)
    add("occupancy " + percent(row.occupancy->share) + " by " + row.occupancy->limit);
  if (int bytes = widest(row); bytes > 0 && bytes < 16)
    add("no access wider than " + std::to_string(bytes) + " B");
  return text;
}

void print(const InspectedBundle &what, const KernelQuery &asked, const KernelTable &table) {
  std::string devices;
  int64_t launches = 0;
  double time = 0;
  for (int device : table.devices)
    devices += (devices.empty() ? "" : ", ") + what.bundle.devices[size_t(device)].name;
  for (const KernelRow &row : table.rows) {
    launches += row.launches;
    time += row.stepSeconds;
  }
  printf("%s %zu kernels; %s\n", bold(table.target->arch()).c_str(), table.rows.size(),
         devices.empty() ? "not used by any device of the bundle"
                         : (std::to_string(launches) + " launches in a step of " + devices +
                            ", at least " + duration(time))
                               .c_str());
  printf("  %s\n\n", dim("assumed GPU: " + table.gpu + ", " + amount(table.bandwidth) +
                         "B/s of memory bandwidth")
                         .c_str());

  std::vector<std::vector<std::string>> rows = {
      {">", "kernel", "in", ">a step", ">threads", ">regs", ">spill", ">shared", ">occup.", "loads",
       "stores", ">rows", ">read", ">written", ">moves", ">FLOPs", ">time", ">share", "from"}};
  std::string remarks;
  for (const KernelRow &row : table.rows) {
    const std::string number = std::to_string(rows.size());
    const bool known = row.assembled.has_value();
    const double share = time > 0 ? row.stepSeconds / time : 0;
    rows.push_back(
        {number, shortName(row.symbol), functionsOf(row), std::to_string(row.launches),
         std::to_string(row.threads), known ? std::to_string(row.assembled->registers) : "-",
         known ? std::to_string(row.assembled->spilledBytes) : "-",
         known ? std::to_string(row.assembled->sharedBytes) : "-",
         row.occupancy ? percent(row.occupancy->share) : "-", widths(row.code.loads),
         widths(row.code.stores), std::to_string(row.rows), bytes(row.read), bytes(row.written),
         bytes(row.moved), row.flops ? amount(*row.flops) : "-", duration(row.seconds),
         percent(share), fit(row.origin, std::min(24, columnsOf(row.origin)))});
    if (std::string remark = remarkOn(row); share >= kWorthwhile && !remark.empty())
      remarks.append(remarks.empty() ? "" : "; ")
          .append(number)
          .append(" (")
          .append(remark)
          .append(")");
  }
  printTable(rows);
  printf("\n  %s\n", remarks.empty()
                         ? "look at: no remarks on kernels with at least 2 % of the time"
                         : ("look at: " + remarks).c_str());
  if (!table.withoutAssembler.empty())
    printf("  no registers, spills, shared memory and occupancy: %s\n",
           table.withoutAssembler.c_str());
}

} // namespace

Status printKernels(const InspectedBundle &what, const KernelQuery &asked) {
  Result<std::vector<KernelTable>> tables = findTargets(what, asked);
  if (tables.failed())
    return tables.error();
  const Result<std::string> assembler = findAssembler(asked.assembler);
  if (assembler.failed())
    return assembler.error();
  for (KernelTable &table : *tables) {
    if (Status status = fillTable(what, asked, *assembler, table); status.failed())
      return status;
    print(what, asked, table);
    puts("");
  }
  for (const char *line : kLegend)
    printf("  %s\n", dim(line).c_str());
  return Status::success();
}

} // namespace zorse::inspect
