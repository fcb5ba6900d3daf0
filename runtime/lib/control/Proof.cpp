#include "Proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/random.h>

using namespace zorse::control;

std::string zorse::control::randomBytes(size_t bytes) {
  std::string out(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    ssize_t n = ::getrandom(out.data() + got, bytes - got, 0);
    if (n > 0)
      got += size_t(n);
    else if (errno != EINTR) { // cannot happen on a kernel with this call; without random numbers
                               // the connection would be insecure
      std::perror("getrandom");
      std::abort();
    }
  }
  return out;
}

std::string zorse::control::hmacSha256(const std::string &secret, std::string_view text) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  if (!HMAC(EVP_sha256(), secret.data(), int(secret.size()),
            reinterpret_cast<const unsigned char *>(text.data()), text.size(), mac, &bytes))
    return {}; // equals no MAC: equalMacs rejects it
  return {reinterpret_cast<const char *>(mac), bytes};
}

bool zorse::control::equalMacs(const std::string &a, const std::string &b) {
  return a.size() == kMacBytes && b.size() == kMacBytes &&
         CRYPTO_memcmp(a.data(), b.data(), kMacBytes) == 0;
}

namespace {

/// Concatenates fields, each with its length: no two lists of fields give the same text.
class Transcript {
public:
  Transcript(const char *purpose, Role sender, const Nonces &nonces) {
    text(purpose).number(kVersion).number(sender).text(nonces.member).text(nonces.coordinator);
  }
  Transcript &text(std::string_view value) {
    number(value.size());
    bytes_.append(value);
    return *this;
  }
  Transcript &number(uint64_t value) {
    for (int shift = 56; shift >= 0; shift -= 8)
      bytes_.push_back(char(value >> shift & 0xff));
    return *this;
  }
  Transcript &real(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return number(bits);
  }
  std::string mac(const std::string &secret) const { return hmacSha256(secret, bytes_); }

private:
  std::string bytes_;
};

} // namespace

std::string zorse::control::macOfSecret(const std::string &secret, Role sender,
                                        const Nonces &nonces) {
  return Transcript("zorse control: knows the secret", sender, nonces).mac(secret);
}

std::string zorse::control::macOfJoin(const std::string &secret, const Nonces &nonces,
                                      const Join &join) {
  return Transcript("zorse control: joins", MEMBER, nonces)
      .text(join.job())
      .number(join.generation())
      .number(join.rank())
      .number(join.world_size())
      .text(join.device())
      .mac(secret);
}

std::string zorse::control::macOfWelcome(const std::string &secret, const Nonces &nonces,
                                         const JoinAccepted &welcome) {
  return Transcript("zorse control: admits", COORDINATOR, nonces)
      .text(welcome.job())
      .number(welcome.generation())
      .number(welcome.rank())
      .number(welcome.world_size())
      .real(welcome.heartbeat_seconds())
      .real(welcome.heartbeat_timeout_seconds())
      .number(welcome.has_coordinator_rank())
      .number(welcome.host())
      .text(welcome.host_device())
      .number(welcome.stopping())
      .number(welcome.last_step())
      .mac(secret);
}
