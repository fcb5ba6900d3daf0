// Prints the planned times as a Gantt chart in text. A cell's forward is a digit, its backward the
// same digit in the other shade (a letter without colors). W of a split backward is one sign for
// all cells.
#include "Inspect.h"
#include "Terminal.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <cstdio>

namespace zorse::inspect {

namespace {

/// The character and color number of an instruction. Cells are numbered per device in the order of
/// their samples.
struct Mark {
  char sign;
  unsigned colour;
  int weight; ///< if several instructions share a column, the one with the largest weight is shown
};

Mark markFor(const bundle::Instruction &instruction, const std::vector<int> &rank) {
  if (instruction.has_compute()) {
    int cell = instruction.compute().cell();
    int place = cell >= 0 && cell < static_cast<int>(rank.size()) ? rank[cell] : 0;
    switch (instruction.compute().task()) {
    case bundle::Compute::F:
      return {static_cast<char>(place < 10 ? '0' + place : '+'), 0, 3};
    case bundle::Compute::B:
      return {static_cast<char>(place < 26 ? 'a' + place : '*'), 2, 3};
    case bundle::Compute::W:
      return {'=', 8, 3};
    case bundle::Compute::UPDATE_GROUP:
      return {'U', 3, 2};
    default:
      return {'N', 1, 2};
    }
  }
  if (instruction.has_send())
    return {'>', 5, 2};
  if (instruction.has_receive())
    return {'<', 5, 2};
  if (instruction.has_all_gather())
    return {'G', 4, 2};
  if (instruction.has_reduce_scatter() || instruction.has_all_reduce())
    return {'R', 6, 2};
  return {'.', 7, 1};
}

const char *queueName(const bundle::Queue &queue) {
  switch (queue.kind()) {
  case bundle::COMPUTE:
    return "compute";
  case bundle::SEND_QUEUE:
    return "send";
  case bundle::RECEIVE_QUEUE:
    return "receive";
  case bundle::COLLECTIVE_QUEUE:
    return "collect";
  case bundle::HOST_TO_DEVICE:
    return "load";
  case bundle::DEVICE_TO_HOST:
    return "to host";
  case bundle::DEVICE_TO_DEVICE:
    return "direct";
  default:
    return "i/o";
  }
}

} // namespace

void printTimeline(const InspectedBundle &what) {
  double end = 0;
  for (const bundle::Program &program : what.programs)
    for (const bundle::Instruction &instruction : program.instructions())
      end = std::max(end, instruction.planned_end());
  if (end <= 0) {
    puts("  The programs carry no planned times.");
    return;
  }

  // Micro-batches of a device are numbered by first sample, so that 0 1 2 a b c reads as a
  // schedule.
  std::vector<int> rank(what.plan.cells.size());
  for (size_t c = 0; c < rank.size(); ++c)
    for (const step::Cell &other : what.plan.cells)
      rank[c] += other.device == what.plan.cells[c].device &&
                 (other.sampleBegin < what.plan.cells[c].sampleBegin ||
                  (other.sampleBegin == what.plan.cells[c].sampleBegin &&
                   other.unitBegin < what.plan.cells[c].unitBegin));

  int margin = 0;
  for (const auto &device : what.bundle.devices)
    margin = std::max(margin, columnsOf(device.name));
  margin += 12;
  int width = std::max(30, terminalWidth() - margin - 8);

  for (size_t d = 0; d < what.programs.size(); ++d) {
    const bundle::Program &program = what.programs[d];
    double busy = 0;
    for (int q = 0; q < program.queues_size(); ++q) {
      std::vector<Mark> columns(width, Mark{' ', 0, 0});
      bool used = false;
      for (const bundle::Instruction &instruction : program.instructions()) {
        if (static_cast<int>(instruction.queue()) != q)
          continue;
        used = true;
        if (instruction.has_compute())
          busy += instruction.planned_end() - instruction.planned_start();
        int from = std::min(width - 1, static_cast<int>(instruction.planned_start() / end * width));
        int to = std::min(
            width, std::max(from + 1, static_cast<int>(instruction.planned_end() / end * width)));
        Mark mark = markFor(instruction, rank);
        for (int c = from; c < to; ++c)
          if (mark.weight >= columns[c].weight)
            columns[c] = mark;
      }
      if (!used)
        continue;
      std::string text = "  " +
                         coloured(fit(q == 0 ? what.bundle.devices[d].name : "", margin - 11), d) +
                         " " + dim(fit(queueName(program.queues(q)), 7)) + " ";
      for (int c = 0; c < width;) { // consecutive equal marks share one escape sequence
        int e = c;
        std::string run;
        while (e < width && columns[e].sign == columns[c].sign &&
               columns[e].colour == columns[c].colour)
          run += columns[e++].sign;
        text += columns[c].sign == ' ' ? dim(std::string(e - c, '.'))
                                       : onColour(run, columns[c].colour);
        c = e;
      }
      if (program.queues(q).kind() == bundle::COMPUTE)
        text += " " + fit(percent(busy / end), 5, true);
      puts(text.c_str());
    }
  }
  printf("\n  %s %s\n", fit("", margin - 2).c_str(),
         dim("0 " + std::string(std::max(0, width - 12), '-') + " " + showDuration(end)).c_str());
  printf("  %s forwards of the device's micro-batches (+ from the 11th on), %s their backwards (* "
         "from the 27th on), %s weight gradients of a split "
         "backward, %s update, %s gradient norm and clipping, %s send, %s receive, %s gather, %s "
         "reduce\n",
         onColour("012", 0).c_str(), onColour("abc", 2).c_str(), onColour("=", 8).c_str(),
         onColour("U", 3).c_str(), onColour("N", 1).c_str(), onColour(">", 5).c_str(),
         onColour("<", 5).c_str(), onColour("G", 4).c_str(), onColour("R", 6).c_str());
}

} // namespace zorse::inspect
