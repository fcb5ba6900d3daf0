// Pages of HTML that need nothing else: style, script and data are in them. What draws is in
// lib/Html/assets.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace zorse::html {

extern const char *const kPlanScript; ///< assets/plan.js
extern const char *const kRunScript;  ///< assets/run.js

/// Text as it stands between tags and in attributes.
std::string escape(const std::string &text);

/// A whole page. \param body  HTML, below the heading. \param data  what `script` finds as `data`
std::string page(const std::string &title, const std::string &body, const nlohmann::json &data,
                 const char *script);

} // namespace zorse::html
