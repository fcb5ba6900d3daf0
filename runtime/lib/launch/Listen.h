// Addresses of this host.
#pragma once

#include "zorse/runtime/Status.h"

#include <string>
#include <vector>

namespace zorse::runtime::launching {

struct OwnAddress {
  std::string interface, address; ///< "eth0", "10.0.0.3"
  bool loopback = false;
};

/// Of all interfaces that are up, IPv4 before IPv6, without link-local ones.
std::vector<OwnAddress> ownAddresses();

/// The address that `asked` means among these: one of them, an interface's name, a network ("10.1.0.0/16"), or any address of 127.0.0.0/8.
Result<std::string> chooseAddress(const std::string &asked, const std::vector<OwnAddress> &own);

/// The addresses of a host's name, as numbers; empty when it has none.
std::vector<std::string> addressesOf(const std::string &host);

/// Where the coordinator listens whose host the others know by a name with these addresses. 127.0.1.1 is what Debian's installer gives a machine's
/// own name: nobody else reaches it.
Result<std::string> chooseCoordinatorAddress(const std::string &host, const std::vector<std::string> &addresses, const std::string &asked,
                                             const std::vector<OwnAddress> &own);

} // namespace zorse::runtime::launching
