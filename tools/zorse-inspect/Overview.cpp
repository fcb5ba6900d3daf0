#include "Inspect.h"
#include "Terminal.h"

#include "zorse/Base/Format.h"
#include "zorse/Bundle/DescribeTraining.h"
#include "zorse/Summary/Summary.h"

#include <cstdio>
#include <map>
#include <set>

namespace zorse::inspect {

std::string wordFor(const bundle::Instruction &instruction) {
  switch (instruction.what_case()) {
  case bundle::Instruction::kCompute: {
    static const char *const words[] = {
        "?", "F", "B", "W", "R", "norm", "clip and check", "update", "sum loss"};
    int task = instruction.compute().task();
    return words[task >= 0 && task <= 8 ? task : 0];
  }
  case bundle::Instruction::kCopy:
    return "copy";
  case bundle::Instruction::kSend:
    return "send";
  case bundle::Instruction::kReceive:
    return "receive";
  case bundle::Instruction::kLoadInput:
    return "load";
  case bundle::Instruction::kLoadScalars:
    return "scalars";
  case bundle::Instruction::kAllGather:
    return "gather";
  case bundle::Instruction::kReduceScatter:
    return "reduce";
  case bundle::Instruction::kAllReduce:
    return "all-reduce";
  case bundle::Instruction::kReadMetrics:
    return "report";
  case bundle::Instruction::WHAT_NOT_SET:
    break;
  }
  return "?";
}

namespace {

void line(const char *name, const std::string &text) {
  printf("  %s %s\n", dim(fit(name, 9)).c_str(), text.c_str());
}

void printUnits(const bundle::ModelSummary &s) {
  const std::string per = samplesPerRow(s) > 1 ? "/group" : "/sample"; // a group of samples, or a
                                                                       // sample
  std::vector<std::vector<std::string>> table = {{">", "unit", ">class", ">parameters",
                                                  ">forward FLOPs" + per, ">backward",
                                                  ">saved" + per, ">for W" + per, ">output" + per}};
  for (int u = 0; u < s.units_size(); ++u) {
    const bundle::UnitInfo &unit = s.units(u);
    double parameters = 0, passed = 0;
    for (uint32_t p : unit.parameters()) {
      double elements = 1;
      for (int64_t extent : s.parameters(p).shape())
        elements *= extent;
      parameters += elements;
    }
    for (uint32_t v : unit.values_out())
      passed += s.values(v).bytes_per_row();
    // A sequence of equal blocks is shown as its first and its last unit.
    bool inBlocks = s.blocks_count() > 2 && u >= int(s.blocks_first_unit() + s.blocks_period()) &&
                    u < int(s.blocks_first_unit() + s.blocks_period() * (s.blocks_count() - 1));
    if (inBlocks) {
      if (u == int(s.blocks_first_unit() + s.blocks_period()))
        table.push_back({"⋮", std::to_string(s.blocks_count() - 2) + " more blocks like it"});
      continue;
    }
    const bundle::UnitClass &unitClass = classOf(s, unit);
    table.push_back({std::to_string(u), unit.name(), std::to_string(unit.class_id()),
                     amount(parameters),
                     amount(functionOf(unitClass, bundle::UnitFunction::FORWARD).flops_per_row()),
                     amount(functionOf(unitClass, bundle::UnitFunction::BACKWARD).flops_per_row()),
                     bytes(unitClass.saved_bytes().per_row()),
                     bytes(unitClass.saved_for_weight_grad_bytes().per_row()), bytes(passed)});
  }
  printTable(table);
}

void printDevices(const InspectedBundle &what) {
  double end = 0;
  for (const bundle::Program &program : what.programs)
    for (const bundle::Instruction &instruction : program.instructions())
      end = std::max(end, instruction.planned_end());
  std::vector<std::vector<std::string>> table = {{"device", "kind", ">threads", ">cells",
                                                  ">instructions", ">sends", ">sent", "memory", ">",
                                                  "busy", ">"}};
  for (size_t d = 0; d < what.programs.size(); ++d) {
    const bundle::Program &program = what.programs[d];
    const bundle::BundleDevice &device = what.bundle.devices[d];
    int sends = 0;
    double sent = 0, busy = 0;
    std::set<int> cells;
    for (const bundle::Instruction &instruction : program.instructions()) {
      if (instruction.has_send()) {
        ++sends;
        sent += instruction.send().region().bytes();
      }
      if (instruction.has_compute()) {
        busy += instruction.planned_end() - instruction.planned_start();
        if (instruction.compute().cell() >= 0)
          cells.insert(instruction.compute().cell());
      }
    }
    double memory = program.planned_bytes();
    std::string limit = device.memory ? bytes(memory) + " of " + bytes(device.memory)
                                      : bytes(memory);
    table.push_back({coloured(device.name, d), device.kind, std::to_string(device.threads),
                     std::to_string(cells.size()), std::to_string(program.instructions_size()),
                     std::to_string(sends), bytes(sent),
                     bar(device.memory ? memory / device.memory : 0, 12), limit,
                     bar(end > 0 ? busy / end : 0, 12), percent(end > 0 ? busy / end : 0)});
  }
  printTable(table);
}

} // namespace

void printOverview(const InspectedBundle &what) {
  const bundle::ModelSummary &s = what.bundle.summary;
  double trained = 0, frozen = 0, end = 0;
  for (const auto &p : s.parameters()) {
    double elements = 1;
    for (int64_t extent : p.shape())
      elements *= extent;
    (p.trainable() ? trained : frozen) += elements;
  }
  std::set<uint32_t> classes;
  for (const auto &unit : s.units())
    classes.insert(unit.class_id());
  std::map<std::string, int> instructions;
  int all = 0;
  for (const bundle::Program &program : what.programs)
    for (const bundle::Instruction &instruction : program.instructions()) {
      ++instructions[wordFor(instruction)];
      ++all;
      end = std::max(end, instruction.planned_end());
    }

  printf("%s  %s\n\n", bold(what.bundle.directory).c_str(),
         (what.bundle.model + ", " + what.bundle.precision + ", batch " +
          std::to_string(what.bundle.batch) + " × sequence " + std::to_string(what.bundle.sequence))
             .c_str());
  line("digest", what.bundle.digest);
  line("model", amount(trained) + " trained parameters" +
                    (frozen > 0 ? " and " + amount(frozen) + " frozen" : "") + " in " +
                    std::to_string(s.groups_size()) + " parameter groups; " +
                    std::to_string(s.units_size()) + " units of " + std::to_string(classes.size()) +
                    " classes; " + std::to_string(what.bundle.functions.functions_size()) +
                    " functions for " + what.bundle.functions.arch());
  std::string blocks = s.blocks_count() ? std::to_string(s.blocks_count()) + " blocks of " +
                                              std::to_string(s.blocks_period()) + " units"
                                        : "no repeated blocks";
  std::string terms = std::to_string(s.loss_size()) +
                      (s.loss_size() == 1 ? " loss term" : " loss terms");
  line("", blocks + ", " + terms);
  const std::vector<std::string> loss = describeLoss(s, what.bundle.batch);
  for (size_t i = 0; i < loss.size(); ++i)
    line(i == 0 ? "loss" : "", loss[i]);
  line("training", describeTraining(s.training()));
  std::string step = std::to_string(what.plan.cells.size()) +
                     (what.plan.cells.size() == 1 ? " cell, " : " cells, ") + std::to_string(all) +
                     " instructions (";
  const char *separator = "";
  for (const auto &[word, count] : instructions) {
    step += separator + std::to_string(count) + " " + word;
    separator = ", ";
  }
  line("step", step + ")" + (end > 0 ? ", " + showDuration(end) + " on the simulated clock" : ""));
  puts("");
  printDevices(what);
  puts("");
  printUnits(s);
  printf("\n  %s\n", dim("For details: --plan, --timeline, --memory=DEVICE, --program=DEVICE, "
                         "--functions, --kernels.")
                         .c_str());
}

} // namespace zorse::inspect
