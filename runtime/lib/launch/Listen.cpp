#include "Listen.h"

#include "zorse/runtime/Launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

struct Number {
  int family = 0; ///< 0: no address
  uint8_t bytes[16] = {};
  size_t size() const { return family == AF_INET ? 4 : 16; }
};

Number numberOf(const std::string &text) {
  Number number;
  for (int family : {AF_INET, AF_INET6})
    if (::inet_pton(family, text.c_str(), number.bytes) == 1) {
      number.family = family;
      break;
    }
  return number;
}

bool isLoopback(const std::string &address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

std::string textOf(const sockaddr *address, socklen_t size) {
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text
                                                                                          : "";
}

bool inNetwork(const std::string &address, const Number &network, unsigned bits) {
  Number number = numberOf(address);
  if (number.family != network.family)
    return false;
  for (unsigned bit = 0; bit < bits; ++bit)
    if ((number.bytes[bit / 8] ^ network.bytes[bit / 8]) & (0x80 >> bit % 8))
      return false;
  return true;
}

std::string listed(const std::vector<OwnAddress> &own) {
  std::string text;
  for (const OwnAddress &each : own)
    text += (text.empty() ? "" : ", ") + each.interface + " " + each.address;
  return text.empty() ? "none" : text;
}

} // namespace

std::vector<OwnAddress> launching::ownAddresses() {
  std::vector<OwnAddress> own;
  ifaddrs *all = nullptr;
  if (::getifaddrs(&all) != 0)
    return own;
  for (ifaddrs *at = all; at; at = at->ifa_next) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) ||
        (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
      continue;
    bool six = at->ifa_addr->sa_family == AF_INET6;
    std::string address = textOf(at->ifa_addr, six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (!address.empty() && address.find('%') == std::string::npos)
      own.push_back({at->ifa_name, address, (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(all);
  std::stable_sort(own.begin(), own.end(), [](const OwnAddress &a, const OwnAddress &b) {
    return (a.address.find(':') != std::string::npos) < (b.address.find(':') != std::string::npos);
  });
  return own;
}

std::vector<std::string> launching::addressesOf(const std::string &host) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::vector<std::string> addresses;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0)
    return addresses;
  for (addrinfo *at = found; at; at = at->ai_next)
    if (std::string text = textOf(at->ai_addr, at->ai_addrlen); !text.empty())
      addresses.push_back(text);
  ::freeaddrinfo(found);
  return addresses;
}

Result<std::string> launching::chooseAddress(const std::string &asked,
                                             const std::vector<OwnAddress> &own) {
  auto none = [&](const std::string &what) {
    return userError("--local-addr " + asked + ": " + what +
                     "; expects an address of this host, the name of a network interface or a "
                     "network (10.1.0.0/16), this host has " +
                     listed(own));
  };
  if (size_t slash = asked.find('/'); slash != std::string::npos) {
    Number network = numberOf(asked.substr(0, slash));
    std::string bits = asked.substr(slash + 1);
    if (network.family == 0 || bits.empty() || bits.size() > 3 ||
        bits.find_first_not_of("0123456789") != std::string::npos ||
        std::stoul(bits) > network.size() * 8)
      return none("is no network");
    for (const OwnAddress &each : own)
      if (inNetwork(each.address, network, unsigned(std::stoul(bits))))
        return each.address;
    return none("this host has no address in it");
  }
  for (const OwnAddress &each : own)
    if (each.interface == asked || each.address == asked)
      return each.address;
  Number number = numberOf(asked);
  if (number.family == AF_INET && number.bytes[0] == 127) // the whole network belongs to this host
    return asked;
  return none(number.family != 0 ? "is no address of this host"
                                 : "is neither an address nor an interface");
}

Result<std::string> launching::chooseCoordinatorAddress(const std::string &host,
                                                        const std::vector<std::string> &addresses,
                                                        const std::string &asked,
                                                        const std::vector<OwnAddress> &own) {
  for (const std::string &address : addresses) {
    bool ours = isLoopback(address) ||
                std::any_of(own.begin(), own.end(),
                            [&](const OwnAddress &each) { return each.address == address; });
    if (ours && address != "127.0.1.1")
      return address;
  }
  if (!asked.empty())
    return chooseAddress(asked, own);
  std::vector<std::string> outward;
  for (const OwnAddress &each : own)
    if (!each.loopback && each.address.find(':') == std::string::npos)
      outward.push_back(each.address);
  if (outward.size() == 1)
    return outward[0];
  std::string is = addresses.empty() ? "has no address" : "is " + addresses[0];
  return userError("the other hosts look for this one as '" + host + "', which " + is +
                   " here, and no other host can reach that; this host has " + listed(own) +
                   ". Choose one with --local-addr, or correct /etc/hosts");
}

Result<std::string> zorse::runtime::coordinatorAddress(const RankEnvironment &environment,
                                                       const std::string &asked) {
  if (environment.oneHost || environment.coordinator.empty())
    return std::string("127.0.0.1");
  const std::string &host = environment.coordinator.front().host;
  return chooseCoordinatorAddress(host, addressesOf(host), asked, ownAddresses());
}

Result<std::string> zorse::runtime::rankAddress(const RankEnvironment &environment,
                                                const std::string &asked) {
  if (environment.oneHost || environment.coordinator.empty())
    return std::string("127.0.0.1");
  std::vector<OwnAddress> own = ownAddresses();
  if (!asked.empty())
    return chooseAddress(asked, own);
  const std::string &host = environment.coordinator.front().host;
  for (const std::string &address : addressesOf(host)) {
    if (address == "127.0.1.1") // the coordinator is on this host
      return coordinatorAddress(environment, asked);
    // The address that the kernel would choose. Connecting a datagram socket sends nothing.
    bool six = address.find(':') != std::string::npos;
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICHOST;
    if (::getaddrinfo(address.c_str(), "9", &hints, &found) != 0)
      continue;
    sockaddr_storage mine = {};
    socklen_t size = sizeof mine;
    int socket = ::socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    std::string text;
    if (socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr *>(&mine), &size) == 0)
      text = textOf(reinterpret_cast<sockaddr *>(&mine), size);
    if (socket >= 0)
      ::close(socket);
    ::freeaddrinfo(found);
    if (!text.empty())
      return text;
  }
  return userError("cannot find this host's address on the route to '" + host +
                   "', where rank 0 is; this host has " + listed(own) +
                   ". Choose one with --local-addr, or correct the name");
}
