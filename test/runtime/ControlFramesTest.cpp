// Tests the wire format of the control plane: frames, strict parsing, proofs.
#include "control/Frames.h"
#include "control/Proof.h"

#include <gtest/gtest.h>

#include <random>

using namespace zorse::control;
using zorse::runtime::Result;

namespace {

std::string framed(const std::string &payload) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(char(payload.size() >> shift & 0xff));
  return out + payload;
}

TEST(ControlFrames, LengthIsBigEndian) {
  Message message;
  message.mutable_report()->set_value(std::string(300, 'x'));
  SharedFrame frame = encode(message);
  size_t length = frame->size() - 4;
  EXPECT_EQ((*frame)[0], 0);
  EXPECT_EQ((*frame)[1], 0);
  EXPECT_EQ(size_t((unsigned char)(*frame)[2]), length >> 8);
  EXPECT_EQ(size_t((unsigned char)(*frame)[3]), length & 0xff);
}

TEST(ControlFrames, ComeOutOfPiecesOfAnySize) {
  std::string stream;
  std::vector<std::string> payloads;
  for (size_t size : {1u, 5u, 200u, 1000u, 2u, 999u})
    payloads.push_back(std::string(size, char('a' + size % 26)));
  for (const std::string &payload : payloads)
    stream += framed(payload);
  for (size_t piece = 1; piece <= stream.size(); piece += piece < 16 ? 1 : 97) {
    FrameReader reader(1024);
    std::vector<std::string> found;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.append(stream.data() + at, std::min(piece, stream.size() - at));
      while (std::optional<std::string_view> frame = reader.next())
        found.emplace_back(*frame);
    }
    EXPECT_EQ(found, payloads) << "in pieces of " << piece;
    EXPECT_EQ(reader.buffered(), 0u);
    EXPECT_FALSE(reader.broken());
  }
}

TEST(ControlFrames, LengthsBeyondTheLimitEndTheStream) {
  for (std::string head :
       {std::string("\0\0\0\0", 4), std::string("\0\0\4\1", 4), std::string("\xff\xff\xff\xff", 4),
        std::string("HTTP", 4), std::string("SSH-", 4)}) {
    FrameReader reader(1024);
    reader.append(head.data(), head.size());
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.broken());
    std::string more(1 << 20, 'x');
    reader.append(more.data(), more.size());
    EXPECT_LT(reader.buffered(), 16u) << "what follows must not be kept";
  }
  FrameReader reader(1024);
  std::string whole = framed(std::string(1024, 'x'));
  reader.append(whole.data(), whole.size());
  EXPECT_TRUE(reader.next());
}

// ---- the parser ----

Result<Message> parse(const Message &message, Role sender, HandshakeState state,
                      uint32_t worldSize = 4) {
  SharedFrame frame = encode(message);
  return parseMessage(std::string_view(*frame).substr(kLengthBytes), sender, state, worldSize);
}

Message greeting(Role role) {
  Message message;
  message.mutable_hello()->set_magic(kMagic);
  message.mutable_hello()->set_version(kVersion);
  message.mutable_hello()->set_role(role);
  message.mutable_hello()->set_nonce(std::string(kNonceBytes, 'n'));
  return message;
}
Message welcome() {
  Message message;
  JoinAccepted &welcome = *message.mutable_join_accepted();
  welcome.set_job("job");
  welcome.set_generation(1);
  welcome.set_rank(3);
  welcome.set_world_size(4);
  welcome.set_heartbeat_seconds(0.25);
  welcome.set_heartbeat_timeout_seconds(10);
  welcome.set_mac(std::string(kMacBytes, 'm'));
  return message;
}
Message failure() {
  Message message;
  message.mutable_failed()->set_rank(1);
  message.mutable_failed()->set_peer(UINT32_MAX);
  message.mutable_failed()->set_exit_code(2);
  return message;
}
Message contributions(uint32_t first, int count) {
  Message message;
  message.mutable_contributions()->set_name("name");
  message.mutable_contributions()->set_first(first);
  for (int i = 0; i < count; ++i)
    message.mutable_contributions()->add_values("x");
  return message;
}

TEST(ControlFrames, GoodMessagesPass) {
  EXPECT_FALSE(parse(greeting(MEMBER), MEMBER, HandshakeState::Greeting).failed());
  EXPECT_FALSE(parse(greeting(COORDINATOR), COORDINATOR, HandshakeState::Greeting).failed());
  EXPECT_FALSE(parse(welcome(), COORDINATOR, HandshakeState::Join).failed());
  EXPECT_FALSE(parse(failure(), MEMBER, HandshakeState::Work).failed());
  EXPECT_FALSE(parse(contributions(1, 3), COORDINATOR, HandshakeState::Work).failed());
}

TEST(ControlFrames, MessagesAreRefusedAtTheWrongTimeAndFromTheWrongSide) {
  EXPECT_TRUE(parse(greeting(MEMBER), COORDINATOR, HandshakeState::Greeting).failed())
      << "one's own greeting reflected";
  EXPECT_TRUE(parse(greeting(MEMBER), MEMBER, HandshakeState::Work).failed());
  EXPECT_TRUE(parse(failure(), MEMBER, HandshakeState::Greeting).failed());
  EXPECT_TRUE(parse(failure(), MEMBER, HandshakeState::Join).failed());
  EXPECT_TRUE(parse(failure(), COORDINATOR, HandshakeState::Work).failed());
  EXPECT_TRUE(parse(contributions(1, 3), MEMBER, HandshakeState::Work).failed());
  EXPECT_TRUE(parse(welcome(), COORDINATOR, HandshakeState::Proof).failed());
  EXPECT_TRUE(parse(Message(), MEMBER, HandshakeState::Work).failed());
}

// A rank may report two durations for every peer: since when it has not heard the peer, and since
// when nothing was delivered to the peer.
TEST(ControlFrames, EveryPeerMayBeUnheardAndUndelivered) {
  Message message;
  for (uint32_t rank = 0; rank < 4; ++rank)
    for (bool undelivered : {false, true}) {
      UnresponsiveRank &silence = *message.mutable_heartbeat()->add_unresponsive();
      silence.set_rank(rank);
      silence.set_seconds(1);
      silence.set_undelivered(undelivered);
    }
  EXPECT_FALSE(parse(message, MEMBER, HandshakeState::Work).failed());
  message.mutable_heartbeat()->add_unresponsive()->set_rank(0);
  EXPECT_TRUE(parse(message, MEMBER, HandshakeState::Work).failed());
}

TEST(ControlFrames, EveryFieldIsChecked) {
  auto refusedJoin = [](auto change, Role sender, HandshakeState state, Message message) {
    change(message);
    return parse(message, sender, state).failed();
  };
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_hello()->set_magic("http"); }, MEMBER,
                          HandshakeState::Greeting, greeting(MEMBER)));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_hello()->set_nonce("short"); }, MEMBER,
                          HandshakeState::Greeting, greeting(MEMBER)));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_join_accepted()->set_world_size(5); },
                          COORDINATOR, HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_join_accepted()->set_rank(4); }, COORDINATOR,
                          HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_join_accepted()->set_generation(0); },
                          COORDINATOR, HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin(
      [](Message &m) {
        m.mutable_join_accepted()->set_has_coordinator_rank(true),
            m.mutable_join_accepted()->set_host(4);
      },
      COORDINATOR, HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin(
      [](Message &m) {
        m.mutable_join_accepted()->set_heartbeat_timeout_seconds(
            std::numeric_limits<double>::quiet_NaN());
      },
      COORDINATOR, HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_join_accepted()->set_heartbeat_seconds(-1); },
                          COORDINATOR, HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_join_accepted()->set_mac("m"); }, COORDINATOR,
                          HandshakeState::Join, welcome()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_failed()->set_cause(6); }, MEMBER,
                          HandshakeState::Work, failure()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_failed()->set_rank(4); }, MEMBER,
                          HandshakeState::Work, failure()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_failed()->set_peer(4); }, MEMBER,
                          HandshakeState::Work, failure()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_failed()->set_exit_code(256); }, MEMBER,
                          HandshakeState::Work, failure()));
  EXPECT_TRUE(refusedJoin([](Message &m) { m.mutable_failed()->set_exit_code(-1); }, MEMBER,
                          HandshakeState::Work, failure()));
  EXPECT_TRUE(refusedJoin(
      [](Message &m) { m.mutable_failed()->set_message(std::string(kTextBytes + 1, 'x')); }, MEMBER,
      HandshakeState::Work, failure()));
  EXPECT_TRUE(refusedJoin(
      [](Message &m) { m.mutable_failed()->set_device(std::string(kDeviceBytes + 1, 'x')); },
      MEMBER, HandshakeState::Work, failure()));
  EXPECT_TRUE(parse(contributions(4, 1), COORDINATOR, HandshakeState::Work).failed());
  EXPECT_TRUE(parse(contributions(1, 4), COORDINATOR, HandshakeState::Work).failed());
  EXPECT_TRUE(parse(contributions(UINT32_MAX, 2), COORDINATOR, HandshakeState::Work).failed());
  EXPECT_TRUE(parse(contributions(0, 0), COORDINATOR, HandshakeState::Work).failed());
  Message refusal;
  refusal.mutable_join_rejected()->set_reason(Reason(77));
  EXPECT_TRUE(parse(refusal, COORDINATOR, HandshakeState::Join).failed());
  Message contribution;
  contribution.mutable_contribution()->set_name(std::string(kNameBytes + 1, 'x'));
  EXPECT_TRUE(parse(contribution, MEMBER, HandshakeState::Work).failed());
}

TEST(ControlFrames, BeforeTheProofFramesAreSmall) {
  Message large = greeting(MEMBER);
  large.mutable_hello()->set_magic(std::string(2 * kGreetingBytes, 'x'));
  EXPECT_TRUE(parse(large, MEMBER, HandshakeState::Greeting).failed());
  Message join; // the largest message
  join.mutable_join()->set_job(std::string(kJobBytes, 'x'));
  join.mutable_join()->set_device(std::string(kDeviceBytes, 'x'));
  join.mutable_join()->set_generation(UINT64_MAX);
  join.mutable_join()->set_rank(UINT32_MAX);
  join.mutable_join()->set_world_size(UINT32_MAX);
  join.mutable_join()->set_mac(std::string(kMacBytes, 'x'));
  EXPECT_FALSE(parse(join, MEMBER, HandshakeState::Join).failed());
}

TEST(ControlFrames, DamagedMessagesNeverPassUnchecked) {
  std::mt19937 random(7);
  const std::vector<std::pair<Message, HandshakeState>> seeds = {
      {greeting(MEMBER), HandshakeState::Greeting},
      {failure(), HandshakeState::Work},
      {contributions(1, 3), HandshakeState::Work},
      {welcome(), HandshakeState::Join}};
  for (int round = 0; round < 20000; ++round) {
    const auto &[seed, state] = seeds[random() % seeds.size()];
    std::string bytes = encode(seed)->substr(kLengthBytes);
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes)
      switch (random() % 3) {
      case 0:
        bytes[random() % bytes.size()] = char(random());
        break;
      case 1:
        bytes.insert(random() % bytes.size(), 1, char(random()));
        break;
      case 2:
        bytes.resize(1 + random() % bytes.size());
        break;
      }
    Role sender = random() % 2 ? MEMBER : COORDINATOR;
    Result<Message> message = parseMessage(bytes, sender, state, 4);
    if (message.failed())
      continue;
    if (message->has_contributions()) {
      EXPECT_LE(message->contributions().first() + uint64_t(message->contributions().values_size()),
                4u);
    }
    if (message->has_failed()) {
      EXPECT_TRUE(message->failed().rank() < 4 || message->failed().rank() == UINT32_MAX);
    }
    if (message->has_hello() && message->hello().version() == kVersion) {
      EXPECT_EQ(message->hello().nonce().size(), kNonceBytes);
    }
  }
}

// ---- proofs ----

TEST(ControlProof, IsTheKnownFunction) { // RFC 4231, test case 2
  std::string mac = hmacSha256("Jefe", "what do ya want for nothing?"), hex;
  for (unsigned char byte : mac) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    hex += text;
  }
  EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(ControlProof, DependsOnEverything) {
  Nonces nonces{randomBytes(), randomBytes()}, other{nonces.member, randomBytes()},
      swapped{nonces.coordinator, nonces.member};
  EXPECT_NE(nonces.member, nonces.coordinator);
  std::string mac = macOfSecret("secret of sixteen", MEMBER, nonces);
  EXPECT_TRUE(equalMacs(mac, macOfSecret("secret of sixteen", MEMBER, nonces)));
  EXPECT_FALSE(equalMacs(mac, macOfSecret("Secret of sixteen", MEMBER, nonces)));
  EXPECT_FALSE(equalMacs(mac, macOfSecret("secret of sixteen", COORDINATOR, nonces)))
      << "a proof could be reflected";
  EXPECT_FALSE(equalMacs(mac, macOfSecret("secret of sixteen", MEMBER, other)))
      << "a proof could be replayed";
  EXPECT_FALSE(equalMacs(mac, macOfSecret("secret of sixteen", MEMBER, swapped)));
  EXPECT_FALSE(equalMacs(mac, mac.substr(0, 31)));
  EXPECT_FALSE(equalMacs("", ""));

  Join join;
  join.set_job("job");
  join.set_device("d");
  std::string base = macOfJoin("s", nonces, join);
  auto differs = [&](auto change) {
    Join changed = join;
    change(changed);
    return macOfJoin("s", nonces, changed) != base;
  };
  EXPECT_TRUE(differs([](Join &j) { j.set_job("jo"), j.set_device("bd"); }))
      << "fields run into each other";
  EXPECT_TRUE(differs([](Join &j) { j.set_generation(1); }));
  EXPECT_TRUE(differs([](Join &j) { j.set_rank(1); }));
  EXPECT_TRUE(differs([](Join &j) { j.set_world_size(1); }));
  EXPECT_TRUE(macOfJoin("s", other, join) != base);

  JoinAccepted plain = welcome().join_accepted();
  std::string welcomed = macOfWelcome("s", nonces, plain);
  auto welcomeDiffers = [&](auto change) {
    JoinAccepted changed = plain;
    change(changed);
    return macOfWelcome("s", nonces, changed) != welcomed;
  };
  EXPECT_TRUE(welcomeDiffers([](JoinAccepted &w) { w.set_generation(2); }));
  EXPECT_TRUE(welcomeDiffers([](JoinAccepted &w) { w.set_rank(1); }));
  EXPECT_TRUE(welcomeDiffers([](JoinAccepted &w) { w.set_job("other"); }));
  EXPECT_TRUE(welcomeDiffers([](JoinAccepted &w) { w.set_stopping(true); }));
  EXPECT_TRUE(welcomeDiffers([](JoinAccepted &w) { w.set_heartbeat_timeout_seconds(1); }));
}

} // namespace
