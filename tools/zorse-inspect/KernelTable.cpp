#include "KernelTable.h"

#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace zorse::inspect {

namespace {

double at(const bundle::AffineSize &extent, int64_t rows) {
  return double(extent.fixed()) + double(extent.per_row()) * double(rows);
}

struct Bytes {
  double read = 0, written = 0, moved = 0;
};

/// Bytes read and written by one launch. Counts the buffers behind the operands, each once and up
/// to its last byte. A strided view or a gather touches less: the function's `cost` counts accessed
/// elements, but some of them twice. The minimum moved is therefore the smaller of the two.
Bytes bytesOf(const bundle::KernelLaunch &launch, const PtxKernel &code, int64_t rows) {
  Bytes bytes;
  double accumulated = 0;
  const double points = at(launch.iterations(), rows);
  for (size_t i = 0; i < code.operands.size() && i < 64; ++i) {
    const PtxKernel::Operand &needs = code.operands[i];
    const double reach = double(needs.fixed) + double(needs.perRow) * double(rows) +
                         double(needs.perPoint) * points;
    if (code.loaded >> i & 1)
      bytes.read += reach;
    if (code.stored >> i & 1)
      bytes.written += reach;
    if (std::find(launch.accumulates().begin(), launch.accumulates().end(), uint32_t(i)) !=
        launch.accumulates().end())
      accumulated += reach; // also read, but not counted by `cost`
  }
  const double all = bytes.read + bytes.written, cost = at(launch.cost(), rows);
  bytes.moved = cost > 0 ? std::min(all, cost + accumulated) : all;
  return bytes;
}

std::optional<double> flopsOf(const bundle::KernelLaunch &launch, const PtxKernel &code,
                              int64_t rows) {
  if (const double products = at(launch.matmul_flops(), rows); products > 0)
    return products; // the other accesses are negligible
  if (code.flops < 0 || launch.per_thread() == 0)
    return std::nullopt;
  return double(code.flops) * std::ceil(at(launch.iterations(), rows) / launch.per_thread());
}

/// Calls of a function in a step.
struct Calls {
  std::vector<int64_t> rows; ///< batch sizes on the devices that run this code
  int64_t elsewhere = 0;     ///< largest batch size on other devices
};

std::vector<Calls> findCalls(const InspectedBundle &what, const KernelQuery &asked,
                             const KernelTable &table) {
  std::vector<Calls> calls(size_t(table.target->functions_size()));
  for (size_t d = 0; d < what.programs.size(); ++d) {
    const bool here = std::find(table.devices.begin(), table.devices.end(), int(d)) !=
                      table.devices.end();
    for (const bundle::Instruction &instruction : what.programs[d].instructions())
      for (const bundle::Call &call : instruction.compute().calls()) {
        if (call.function() >= calls.size())
          continue;
        // Calls outside of units work on elements of state, whose number does not depend on the
        // batch size.
        const int64_t rows = asked.rows > 0 && call.unit() >= 0 ? asked.rows : call.rows();
        here ? calls[call.function()].rows.push_back(rows)
             : void(calls[call.function()].elsewhere =
                        std::max(calls[call.function()].elsewhere, rows));
      }
  }
  return calls;
}

void addLaunch(const bundle::KernelLaunch &launch, const Calls &calls, int64_t otherwise,
               double bandwidth, KernelRow &row) {
  for (int64_t rows : calls.rows)
    row.stepSeconds += bytesOf(launch, row.code, rows).moved / bandwidth;
  row.launches += int64_t(calls.rows.size());
  const int64_t rows = !calls.rows.empty() ? *std::max_element(calls.rows.begin(), calls.rows.end())
                       : calls.elsewhere   ? calls.elsewhere
                                           : otherwise;
  const Bytes bytes = bytesOf(launch, row.code, rows);
  if (rows < row.rows || (rows == row.rows && bytes.moved <= row.moved))
    return; // already listed with a larger batch size
  row.rows = rows;
  row.read = bytes.read;
  row.written = bytes.written;
  row.moved = bytes.moved;
  row.flops = flopsOf(launch, row.code, rows);
  row.seconds = bytes.moved / bandwidth;
}

} // namespace

Status fillTable(const InspectedBundle &what, const KernelQuery &asked,
                 const std::string &assembler, KernelTable &table) {
  const bundle::FunctionLibrary &target = *table.target;
  Result<bundle::KernelFile> kernels = bundle::readKernels(what.bundle, target);
  if (kernels.failed())
    return kernels.error();
  const std::string &path = kernels->path;
  const std::map<std::string, PtxKernel> code = readPtx(kernels->bytes);
  std::map<std::string, KernelRow> rows;
  const std::vector<Calls> calls = findCalls(what, asked, table);
  for (int b = 0; b < target.functions_size(); ++b)
    for (const bundle::Launch &launch : target.functions(b).launches()) {
      if (!launch.has_kernel())
        continue;
      const std::string &symbol = launch.kernel().symbol();
      auto found = code.find(symbol);
      if (found == code.end() ||
          found->second.operands.size() != size_t(launch.kernel().operands_size()))
        return userError(path + ": expected kernel '" + symbol + "', which function '" +
                         target.functions(b).name() + "' launches, and the memory it touches (" +
                         symbol + "_needs), got " +
                         (found == code.end() ? "none of that name"
                                              : "no such list, or another number of operands") +
                         ". Compile the bundle again");
      KernelRow &row = rows[symbol];
      if (row.functions.empty()) {
        row.symbol = symbol;
        row.origin = launch.origin();
        row.threads = launch.kernel().threads();
        row.launchShared = int(launch.kernel().shared_bytes());
        row.code = found->second;
      }
      if (row.functions.empty() || row.functions.back().first != target.functions(b).name())
        row.functions.emplace_back(target.functions(b).name(), 0);
      ++row.functions.back().second;
      addLaunch(launch.kernel(), calls[size_t(b)],
                asked.rows > 0 ? asked.rows
                               : what.bundle.batch / zorse::samplesPerRow(what.bundle.summary),
                table.bandwidth, row);
    }
  if (assembler.empty()) {
    table.withoutAssembler = "no assembler found: tools/ptxas.sh downloads NVIDIA's; --ptxas PATH "
                             "or $PTXAS selects another one";
  } else if (auto assembled = assemble(assembler, target.arch(), path); !assembled.failed()) {
    const SmLimits *limits = findSmLimits(target.arch());
    for (auto &[symbol, row] : rows)
      if (auto found = assembled->find(symbol); found != assembled->end()) {
        row.assembled = found->second;
        if (limits)
          row.occupancy = occupancyOf(*limits, int(row.threads), found->second.registers,
                                      found->second.sharedBytes, row.launchShared);
        row.assembled->sharedBytes += row.launchShared;
      }
  } else {
    table.withoutAssembler = assembler + " rejects " + path + ": " + assembled.message() +
                             "; --ptxas PATH selects another one, tools/ptxas.sh downloads one "
                             "that supports sm_60 to sm_120";
  }
  for (auto &[symbol, row] : rows)
    table.rows.push_back(std::move(row));
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const KernelRow &a, const KernelRow &b) {
                     return a.stepSeconds != b.stepSeconds ? a.stepSeconds > b.stepSeconds
                                                           : a.seconds > b.seconds;
                   });
  return Status::success();
}

} // namespace zorse::inspect
