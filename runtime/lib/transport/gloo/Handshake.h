// Mutual authentication of two ranks over a new connection. Each proves that it knows the job's
// secret:
//
//   connecting rank (client)                                        accepting rank (server)
//     hello: magic, generation, from, to, index, count, nonce  -->
//                                                              <--  reply: nonce, proof("server")
//     proof("client")                                          -->
//                                                              <--  admitted
//
// proof(role) = HMAC-SHA256(secret, role, job, generation, from, to, index, count, both nonces).
// Frames have fixed lengths, so a stranger can make a rank buffer no more than one frame. The
// server sends nothing that depends on the secret before it has received a well-formed hello for
// its own rank and generation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace zorse::runtime::gloo_transport {

constexpr size_t kNonceBytes = 32, kProofBytes = 32;
using Nonce = std::array<uint8_t, kNonceBytes>;
using Proof = std::array<uint8_t, kProofBytes>;

/// Identifies a connection.
struct Purpose {
  uint64_t generation = 0;
  uint32_t from = 0, to = 0; ///< ranks: `from` connects, `to` accepts
  uint32_t index = 0;        ///< 0: control connection, 1 and up: data connections
  uint32_t count = 0;        ///< number of connections between this pair of ranks
};

struct Hello {
  Purpose purpose;
  Nonce nonce;
};

constexpr size_t kHelloBytes = 8 + 8 + 4 * 4 + kNonceBytes;
constexpr size_t kReplyBytes = kNonceBytes + kProofBytes;
constexpr uint8_t kAdmitted = 0x5a;

std::array<uint8_t, kHelloBytes> encode(const Hello &hello);
/// Returns nullopt if the bytes are not a hello.
std::optional<Hello> decodeHello(const uint8_t *bytes);

enum class Role : uint8_t { Client, Server };

/// Computes the proof of `role`. Returns nullopt if the crypto library failed.
std::optional<Proof> prove(Role role, const std::string &secret, const std::string &job,
                           const Purpose &purpose, const Nonce &client, const Nonce &server);
/// Compares in constant time.
bool sameProof(const Proof &expected, const uint8_t *found);
/// Returns false if no random numbers are available.
bool randomNonce(Nonce &nonce);

} // namespace zorse::runtime::gloo_transport
