#include "Handshake.h"

#include <cstring>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <vector>

using namespace zorse::runtime::gloo_transport;

namespace {

constexpr char kMagic[8] = {'Z', 'O', 'R', 'S', 'E', 'T', 'R', '1'};

void put(uint8_t *&to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    *to++ = uint8_t(value >> 8 * i);
}

uint64_t get(const uint8_t *&from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t(*from++) << 8 * i;
  return value;
}

void putPurpose(uint8_t *&to, const Purpose &purpose) {
  put(to, purpose.generation, 8);
  put(to, purpose.from, 4);
  put(to, purpose.to, 4);
  put(to, purpose.index, 4);
  put(to, purpose.count, 4);
}

} // namespace

std::array<uint8_t, kHelloBytes> zorse::runtime::gloo_transport::encode(const Hello &hello) {
  std::array<uint8_t, kHelloBytes> bytes;
  uint8_t *to = bytes.data();
  std::memcpy(to, kMagic, sizeof kMagic);
  to += sizeof kMagic;
  putPurpose(to, hello.purpose);
  std::memcpy(to, hello.nonce.data(), kNonceBytes);
  return bytes;
}

std::optional<Hello> zorse::runtime::gloo_transport::decodeHello(const uint8_t *bytes) {
  if (std::memcmp(bytes, kMagic, sizeof kMagic) != 0)
    return std::nullopt;
  const uint8_t *from = bytes + sizeof kMagic;
  Hello hello;
  hello.purpose.generation = get(from, 8);
  hello.purpose.from = uint32_t(get(from, 4));
  hello.purpose.to = uint32_t(get(from, 4));
  hello.purpose.index = uint32_t(get(from, 4));
  hello.purpose.count = uint32_t(get(from, 4));
  std::memcpy(hello.nonce.data(), from, kNonceBytes);
  return hello;
}

std::optional<Proof> zorse::runtime::gloo_transport::prove(Role role, const std::string &secret,
                                                           const std::string &job,
                                                           const Purpose &purpose,
                                                           const Nonce &client,
                                                           const Nonce &server) {
  // All fields before the job name have fixed lengths, so different messages have different bytes.
  std::vector<uint8_t> message(sizeof kMagic + 1 + 24 + 2 * kNonceBytes + job.size());
  uint8_t *to = message.data();
  std::memcpy(to, kMagic, sizeof kMagic);
  to += sizeof kMagic;
  *to++ = role == Role::Client ? 'c' : 's';
  putPurpose(to, purpose);
  std::memcpy(to, client.data(), kNonceBytes);
  std::memcpy(to + kNonceBytes, server.data(), kNonceBytes);
  std::memcpy(to + 2 * kNonceBytes, job.data(), job.size());
  Proof proof;
  unsigned length = 0;
  if (!HMAC(EVP_sha256(), secret.data(), int(secret.size()), message.data(), message.size(),
            proof.data(), &length) ||
      length != kProofBytes)
    return std::nullopt;
  return proof;
}

bool zorse::runtime::gloo_transport::sameProof(const Proof &expected, const uint8_t *found) {
  return CRYPTO_memcmp(expected.data(), found, kProofBytes) == 0;
}

bool zorse::runtime::gloo_transport::randomNonce(Nonce &nonce) {
  return RAND_bytes(nonce.data(), int(nonce.size())) == 1;
}
