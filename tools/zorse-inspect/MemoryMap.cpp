// Draws a memory map of one device over a step.
#include "Inspect.h"
#include "Terminal.h"

#include "zorse/runtime/Buffers.h"
#include "zorse/runtime/OutputFile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

namespace zorse::inspect {

namespace {

using runtime::Buffer;

constexpr int kKinds = 16;

/// Kind of a buffer. Unknown kinds, from bundles of another version, are shown as scratch.
int kindOf(const bundle::Value &value) {
  return value.kind() >= 0 && value.kind() < kKinds ? value.kind() : 0;
}

const char *kindName(int kind) {
  static const char *const names[] = {"workspace",
                                      "parameters",
                                      "gradients",
                                      "reduced gradients",
                                      "moments",
                                      "activation",
                                      "activation gradient",
                                      "saved",
                                      "input",
                                      "scalars",
                                      "loss",
                                      "local metrics",
                                      "global metrics",
                                      "optimizer step",
                                      "saved for W",
                                      "low precision"};
  return names[kind];
}
constexpr char kSigns[] = "wPGRMagSislssoDC"; // by kind
constexpr unsigned kColours[] = {7, 0, 1, 6, 3, 2, 5, 8, 9, 10, 11, 10, 10, 10, 12, 4};

void drawArena(const bundle::Program &program, const std::vector<Buffer> &buffers, uint32_t arena) {
  double size = program.arenas(arena).bytes();
  int width = std::max(30, terminalWidth() - 20), height = 28,
      instructions = program.instructions_size();
  struct Pixel {
    double share = 0;
    int kind = -1;
  };
  std::vector<std::vector<Pixel>> picture(height, std::vector<Pixel>(width));
  for (const Buffer &b : buffers) {
    if (b.arena != arena)
      continue;
    int x0 = static_cast<int64_t>(b.first) * width / instructions,
        x1 = static_cast<int64_t>(b.last + 1) * width / instructions;
    double y0 = b.offset / size * height, y1 = (b.offset + b.bytes) / size * height;
    for (int y = static_cast<int>(y0); y < std::min<double>(height, y1); ++y) {
      double share = std::min<double>(y + 1, y1) - std::max<double>(y, y0);
      for (int x = x0; x < std::max(x1, x0 + 1) && x < width; ++x)
        if (share >= picture[y][x].share)
          picture[y][x] = {share, kindOf(b.value)};
    }
  }
  for (int y = 0; y < height; ++y) {
    std::string text = "  " + dim(fit(y % 4 == 0 ? bytes(size * y / height) : "", 10, true)) + " ";
    for (int x = 0; x < width;) {
      int e = x;
      while (e < width && picture[y][e].kind == picture[y][x].kind)
        ++e;
      int kind = picture[y][x].kind;
      text += kind < 0 ? dim(std::string(e - x, '.'))
                       : onColour(std::string(e - x, kSigns[kind]), kColours[kind]);
      x = e;
    }
    puts(text.c_str());
  }
  printf("  %s %s\n", fit(bytes(size), 10, true).c_str(),
         dim("first instruction of the step → last").c_str());
}

bool writeSvg(const bundle::Program &program, const std::vector<Buffer> &buffers,
              const std::string &path) {
  static const char *const fills[] = {"#bbb",    "#3b82f6", "#f97316", "#b45309", "#c026d3",
                                      "#22c55e", "#eab308", "#6366f1", "#f472b6", "#0d9488",
                                      "#ef4444", "#0d9488", "#0d9488", "#0d9488", "#84cc16"};
  std::ostringstream out;
  double width = 1200, height = 600, top = 0;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\""
      << height * program.arenas_size() << "\" font-family=\"sans-serif\">\n";
  for (int arena = 0; arena < program.arenas_size(); ++arena, top += height)
    for (const Buffer &b : buffers) {
      if (static_cast<int>(b.arena) != arena)
        continue;
      double size = program.arenas(arena).bytes(), n = program.instructions_size();
      out << "<rect x=\"" << width * b.first / n << "\" y=\"" << top + height * b.offset / size
          << "\" width=\"" << width * (b.last + 1 - b.first) / n << "\" height=\""
          << height * b.bytes / size << "\" fill=\"" << fills[kindOf(b.value)]
          << "\" fill-opacity=\"0.8\" stroke=\"white\" stroke-width=\"0.3\"><title>"
          << kindName(kindOf(b.value)) << ' ' << b.value.id() << " [" << b.value.begin() << ':'
          << b.value.end() << "], " << b.bytes << " bytes at " << b.offset << ", instructions "
          << b.first << " to " << b.last << "</title></rect>\n";
    }
  out << "</svg>\n";
  return runtime::writeOutput(path, out.str()).succeeded();
}

} // namespace

Status printMemory(const InspectedBundle &what, int device, const std::string &svg) {
  const bundle::Program &program = what.programs[device];
  std::vector<Buffer> buffers = runtime::findBuffers(program);
  for (const Buffer &b : buffers)
    if (b.arena >= static_cast<uint32_t>(program.arenas_size()) ||
        b.offset + b.bytes > program.arenas(b.arena).bytes())
      return userError("device " + program.device_name() + ": a buffer of " +
                       std::to_string(b.bytes) + " bytes at " + std::to_string(b.offset) +
                       " lies outside arena " + std::to_string(b.arena));
  if (!svg.empty()) {
    if (!writeSvg(program, buffers, svg))
      return userError(svg + ": cannot be written");
    printf("  %s: hover over a buffer to see its description\n", svg.c_str());
    return Status::success();
  }

  printf("%s %s, %s planned\n\n", bold("Memory of").c_str(),
         coloured(program.device_name(), device).c_str(), bytes(program.planned_bytes()).c_str());
  static const char *const kinds[] = {"?", "device", "pinned host", "host", "NVMe"};
  for (int a = 0; a < program.arenas_size(); ++a) {
    if (program.arenas(a).bytes() == 0 || program.instructions_size() == 0)
      continue;
    printf("  %s\n", dim("arena " + std::to_string(a) + ", " +
                         kinds[std::clamp<int>(program.arenas(a).kind(), 0, 4)] + " memory")
                         .c_str());
    drawArena(program, buffers, a);
  }

  // Live bytes at the peak, by kind. State of one region is counted once, whatever parts of it are
  // accessed.
  std::map<int, std::pair<int, double>> byKind;
  for (const Buffer &b : buffers) {
    auto &[count, total] = byKind[kindOf(b.value)];
    ++count;
    total += b.bytes;
  }
  puts("");
  std::vector<std::vector<std::string>> table = {
      {"", "holds", ">buffers", ">bytes, reuse counted again"}};
  for (const auto &[kind, instruction] : byKind)
    table.push_back({onColour(std::string(1, kSigns[kind]), kColours[kind]), kindName(kind),
                     std::to_string(instruction.first), bytes(instruction.second)});
  printTable(table);
  return Status::success();
}

} // namespace zorse::inspect
