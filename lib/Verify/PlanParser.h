// plan.json is nearly all cells. This parser makes a list of them, and a tree of the rest: a tree of all took longer than many a check.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::verify {

/// The events of a JSON text (nlohmann's SAX interface). Knows cells of the plain form {"units": [0, 6], "samples": [0, 8], "device": "a" or 0}, in
/// any order, and no others.
class PlanParser {
public:
  using Json = nlohmann::json;
  struct Cell {
    int64_t units[2], samples[2];
    std::string device; ///< empty: it has a number
    int64_t deviceNumber;
  };

  Json tree; ///< the top-level "cells" is an empty list
  std::vector<Cell> cells;

  /// False: the text is no JSON, or has cells of another form.
  bool parse(std::string_view text) {
    return Json::sax_parse(text.begin(), text.end(), this, Json::input_format_t::json, /*strict=*/true, /*ignore_comments=*/true);
  }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return state == State::Tree ? add(value) : number(value); }
  bool number_unsigned(uint64_t value) { return state == State::Tree ? add(value) : value <= uint64_t(INT64_MAX) && number(int64_t(value)); }
  bool number_float(double value, const std::string &) { return add(value); }
  bool string(std::string &value) {
    if (state != State::Device)
      return add(std::move(value));
    cells.back().device = std::move(value);
    state = State::Cell;
    return !cells.back().device.empty();
  }
  bool binary(Json::binary_t &) { return false; }

  bool start_object(size_t) {
    if (state == State::Tree)
      return open(Json::object());
    if (state != State::Cells)
      return false;
    cells.emplace_back();
    seen = 0;
    state = State::Cell;
    return true;
  }
  bool key(std::string &name) {
    if (state == State::Tree) {
      lastKey = std::move(name);
      return true;
    }
    const bool units = name == "units", samples = name == "samples", device = name == "device";
    const unsigned field = units ? 1 : samples ? 2 : device ? 4 : 0;
    if (!field || (seen & field))
      return false;
    seen |= field;
    numbers = units ? cells.back().units : cells.back().samples;
    state = device ? State::Device : State::Range;
    return true;
  }
  bool end_object() {
    if (state == State::Tree)
      return close();
    state = State::Cells;
    return seen == 7;
  }
  bool start_array(size_t) {
    if (state == State::Range) {
      left = 2;
      state = State::Numbers;
      return true;
    }
    const bool ofCells = parents.size() == 1 && tree.is_object() && lastKey == "cells";
    if (state != State::Tree || !open(Json::array()) || (ofCells && hasCells))
      return false;
    if (ofCells) {
      hasCells = true;
      state = State::Cells;
    }
    return true;
  }
  bool end_array() {
    if (state == State::Numbers) {
      state = State::Cell;
      return left == 0;
    }
    state = State::Tree;
    return close();
  }
  bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &) { return false; }

private:
  enum class State {
    Tree,
    Cells,
    Cell,
    Range,
    Numbers,
    Device
  }; ///< where the next event belongs: Cell: a key; Range: a list; Device: a name or number
  State state = State::Tree;
  bool hasCells = false;
  unsigned seen = 0;          ///< keys of the cell
  int64_t *numbers = nullptr; ///< of the range, and how many are left to come
  int left = 0;
  std::vector<Json *> parents; ///< open lists and objects of the tree
  std::string lastKey;

  bool number(int64_t value) {
    if (state == State::Device) {
      cells.back().deviceNumber = value;
      state = State::Cell;
      return true;
    }
    if (state != State::Numbers || left == 0)
      return false;
    numbers[2 - left--] = value;
    return true;
  }
  Json *place(Json value) {
    if (parents.empty())
      return &(tree = std::move(value));
    Json &parent = *parents.back();
    if (parent.is_object())
      return &(parent[lastKey] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool add(Json value) {
    if (state == State::Tree)
      place(std::move(value));
    return state == State::Tree;
  }
  bool open(Json value) {
    parents.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    parents.pop_back();
    return true;
  }
};

} // namespace zorse::verify
