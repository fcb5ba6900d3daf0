// Addresses of this host and of the coordinator.
#pragma once

#include "zorse/runtime/Status.h"

#include <string>
#include <vector>

namespace zorse::runtime::launching {

struct OwnAddress {
  std::string interface, address; ///< "eth0", "10.0.0.3"
  bool loopback = false;
};

/// Addresses of all interfaces that are up, IPv4 before IPv6, except link-local ones.
std::vector<OwnAddress> ownAddresses();

/// Selects the address that `asked` describes: one of `own`, an interface's name, a network
/// ("10.1.0.0/16"), or any address of 127.0.0.0/8.
Result<std::string> chooseAddress(const std::string &asked, const std::vector<OwnAddress> &own);

/// The numeric addresses of a host name; empty if there are none.
std::vector<std::string> addressesOf(const std::string &host);

/// The address on which the coordinator listens if the other hosts know its host by a name with
/// these addresses. Debian's installer assigns 127.0.1.1 to a machine's own name; other hosts
/// cannot reach that address.
Result<std::string> chooseCoordinatorAddress(const std::string &host,
                                             const std::vector<std::string> &addresses,
                                             const std::string &asked,
                                             const std::vector<OwnAddress> &own);

} // namespace zorse::runtime::launching
