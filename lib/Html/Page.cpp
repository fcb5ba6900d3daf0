#include "zorse/Html/Page.h"

#include "Assets.h"

#include <nlohmann/json.hpp>

using namespace zorse;
using nlohmann::json;

const char *const html::kPlanScript = assets::plan_js;
const char *const html::kRunScript = assets::run_js;

std::string html::escape(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

namespace {

/// Escapes "</script>", which would end the script inside a string.
std::string inScript(const json &data) {
  std::string text = data.dump(-1, ' ', true, json::error_handler_t::replace), out;
  for (char c : text)
    out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

} // namespace

std::string html::page(const std::string &title, const std::string &body, const json &data,
                       const char *script) {
  std::string heading = escape(title);
  return "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport "
         "content=\"width=device-width,initial-scale=1\">\n<title>" +
         heading + "</title>\n<style>" + assets::page_css + "</style>\n<h1>" + heading + "</h1>\n" +
         body + "<div id=tip></div>\n<script>const data=" + inScript(data) + ";\n" +
         assets::common_js + script + "</script>\n</html>\n";
}
