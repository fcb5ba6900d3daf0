#include "Variables.h"

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

bool readPort(const std::string &text, uint32_t &port) {
  port = 0;
  for (char c : text) {
    if (c < '0' || c > '9')
      return false;
    port = port * 10 + uint32_t(c - '0');
    if (port > 65535)
      return false;
  }
  return !text.empty() && port > 0;
}

} // namespace

Result<std::vector<Endpoint>> zorse::runtime::parseEndpoints(const std::string &name,
                                                             const std::string &text) {
  auto bad = [&](const std::string &part) {
    return userError(shown(name, text) +
                     ": expects host:port with a port from 1 to 65535 (several separated by "
                     "commas, a range of ports as host:first-last, an IPv6 address as "
                     "[address]:port)" +
                     (part == text ? "" : ", got '" + part + "'"));
  };
  std::vector<Endpoint> endpoints;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    size_t colon = part.rfind(':');
    if (colon == std::string::npos || colon == 0)
      return bad(part);
    std::string host = part.substr(0, colon), ports = part.substr(colon + 1);
    if (host.front() == '[') {
      if (host.size() < 3 || host.back() != ']')
        return bad(part);
      host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string::npos) {
      return bad(part);
    }
    for (char c : host)
      if (c <= ' ' || c == '/' || c == '[' || c == ']')
        return bad(part);
    size_t dash = ports.find('-');
    uint32_t first = 0, last = 0;
    if (!readPort(ports.substr(0, dash), first) ||
        !readPort(dash == std::string::npos ? ports : ports.substr(dash + 1), last) ||
        last < first || last - first >= 64)
      return bad(part);
    for (uint32_t port = first; port <= last; ++port)
      endpoints.push_back({host, uint16_t(port)});
    if (endpoints.size() > 256)
      return userError(shown(name, text) + ": expects at most 256 addresses");
  }
  return endpoints;
}

std::string zorse::runtime::endpointsText(const std::vector<Endpoint> &endpoints) {
  std::string text;
  for (size_t i = 0; i < endpoints.size();) {
    size_t last = i;
    while (last + 1 < endpoints.size() && endpoints[last + 1].host == endpoints[i].host &&
           endpoints[last + 1].port == endpoints[last].port + 1)
      ++last;
    const std::string &host = endpoints[i].host;
    text += (text.empty() ? "" : ",") +
            (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
            std::to_string(endpoints[i].port);
    if (last > i)
      text += "-" + std::to_string(endpoints[last].port);
    i = last + 1;
  }
  return text;
}
