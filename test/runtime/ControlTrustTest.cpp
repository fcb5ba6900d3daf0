// Tests admission and rejection: unauthenticated peers, malformed input, other programs.
#include "ControlPeers.h"
#include "ControlRig.h"
#include "ReservedPort.h"

#include "control/Proof.h"
#include "control/Sockets.h"

#include <atomic>

using namespace zorse::runtime;
using namespace zorse::runtime::test;
using zorse::control::monotonicSeconds;

namespace {

std::string joinError(const MemberOptions &options) {
  Result<std::unique_ptr<Member>> member = Member::join(options);
  return member.failed() ? member.message() : "";
}

std::unique_ptr<Coordinator> startCoordinator(const CoordinatorOptions &options) {
  return must(Coordinator::start(options));
}

// ---- refusals ----

TEST(ControlTrust, AnotherSecretIsRefusedWithoutALongWait) {
  auto coordinator = startCoordinator(coordinatorOptions(2));
  MemberOptions options = memberOptions(1, 2, coordinator->port());
  options.key.secret = "some other secret";
  double begin = monotonicSeconds();
  std::string error = joinError(options);
  EXPECT_LT(monotonicSeconds() - begin, 6 * patience());
  EXPECT_TRUE(contains(error, "rank 1 (device cpu:1)")) << error;
  EXPECT_TRUE(contains(error, "does not know this job's secret")) << error;
  EXPECT_TRUE(contains(error, "ZORSE_SECRET")) << error;
}

TEST(ControlTrust, AnotherJobIsNamed) {
  auto coordinator = startCoordinator(coordinatorOptions(2));
  MemberOptions options = memberOptions(1, 2, coordinator->port());
  options.key.job = "mine";
  options.times.joinSeconds = 0.5 * patience();
  std::string error = joinError(options);
  EXPECT_TRUE(contains(error, "expected 'mine', found 'job'")) << error;
}

TEST(ControlTrust, AnOlderGenerationEndsAtOnce) {
  CoordinatorOptions two = coordinatorOptions(2);
  two.generation = 2;
  auto coordinator = startCoordinator(two);
  MemberOptions options = memberOptions(1, 2, coordinator->port());
  options.generation = 1;
  double begin = monotonicSeconds();
  std::string error = joinError(options);
  EXPECT_LT(monotonicSeconds() - begin, 2 * patience());
  EXPECT_TRUE(contains(error, "expected generation 1, found 2")) << error;
  EXPECT_TRUE(contains(error, "must end")) << error;
  options.generation = 2;
  EXPECT_EQ(joinError(options), "");
}

TEST(ControlTrust, ANewerGenerationWaitsForItsOwnCoordinator) {
  ReservedPort reserved;
  uint16_t port = reserved.number();
  CoordinatorOptions old = coordinatorOptions(1);
  old.ports = {port};
  auto former = startCoordinator(old);
  MemberOptions options = memberOptions(0, 1, port);
  options.generation = 2;
  options.times.joinSeconds = 0.5 * patience();
  std::string error = joinError(options);
  EXPECT_TRUE(contains(error, "expected generation 2, found 1")) << error;

  options.times.joinSeconds = 10 * patience();
  std::thread replace([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    former.reset();
    CoordinatorOptions next = coordinatorOptions(1);
    next.generation = 2;
    next.ports = {port};
    former = startCoordinator(next);
  });
  Result<std::unique_ptr<Member>> member = Member::join(options);
  replace.join();
  ASSERT_FALSE(member.failed()) << member.message();
  EXPECT_EQ((*member)->generation(), 2u);
}

TEST(ControlTrust, AnyGenerationIsTheCoordinators) {
  CoordinatorOptions options = coordinatorOptions(1);
  options.generation = 41;
  auto coordinator = startCoordinator(options);
  Result<std::unique_ptr<Member>> member = Member::join(memberOptions(0, 1, coordinator->port()));
  ASSERT_FALSE(member.failed()) << member.message();
  EXPECT_EQ((*member)->generation(), 41u);
}

TEST(ControlTrust, ADuplicateRankEndsAndHarmsNobody) {
  Rig rig(2);
  std::string error = joinError(memberOptions(1, 2, rig.coordinator->port()));
  EXPECT_TRUE(contains(error, "rank 1 (device cpu:1) has joined already")) << error;
  rig.each([](uint32_t, Member &member) {
    EXPECT_FALSE(member.allGatherBytes("still works", "").failed());
  });
}

TEST(ControlTrust, AnotherWorldIsNamed) {
  auto coordinator = startCoordinator(coordinatorOptions(2));
  std::string error = joinError(memberOptions(2, 3, coordinator->port()));
  EXPECT_TRUE(contains(error, "the job has 2 ranks, this is rank 2 of 3")) << error;
  EXPECT_TRUE(contains(joinError(memberOptions(1, 3, coordinator->port())),
                       "the job has 2 ranks, this is rank 1 of 3"));
}

TEST(ControlTrust, AnotherVersionIsNamed) {
  OtherProgram newer([](Raw raw) {
    raw.say(greeting(zorse::control::COORDINATOR, std::string(32, 'n'), 9));
    raw.hear(0.2);
  });
  MemberOptions member = memberOptions(0, 1, newer.port);
  member.times.joinSeconds = 0.5 * patience();
  std::string error = joinError(member);
  EXPECT_TRUE(contains(error, "speaks version 9 of the protocol, expected 2")) << error;

  auto coordinator = startCoordinator(coordinatorOptions(1)); // the reverse direction
  Raw raw(coordinator->port());
  raw.say(greeting(zorse::control::MEMBER, std::string(32, 'n'), 9));
  EXPECT_TRUE(raw.next().value().has_hello());
  EXPECT_FALSE(raw.next());
}

TEST(ControlTrust, AFailedJobSaysWhy) {
  Rig rig(coordinatorOptions(2));
  Failure mine;
  mine.message = "disk full";
  rig.members[0]->fail(mine);
  EXPECT_TRUE(rig.coordinator->waitUntilOver(5 * patience()));
  std::string error = joinError(memberOptions(1, 2, rig.coordinator->port()));
  EXPECT_TRUE(contains(error, "the job has failed already: rank 0 (device cpu:0): disk full"))
      << error;
}

TEST(ControlTrust, ShortSecretsAreRefused) {
  CoordinatorOptions options = coordinatorOptions(1);
  options.key.secret = "short";
  EXPECT_TRUE(Coordinator::start(options).failed());
  MemberOptions member = memberOptions(0, 1, 1);
  member.key.secret = "short";
  EXPECT_TRUE(contains(joinError(member), "at least 16"));
}

// ---- endpoints ----

TEST(ControlTrust, PassesOverForeignProgramsAndOtherJobs) {
  OtherProgram ssh([](Raw raw) {
    raw.say(std::string("SSH-2.0-OpenSSH_9.2\r\n"));
    raw.hear(0.1);
  });
  OtherProgram http([](Raw raw) { // waits for a request, then answers
    raw.hear(0.05);
    raw.say(std::string("HTTP/1.1 400 Bad Request\r\n\r\n"));
  });
  OtherProgram closing([](Raw) {});
  CoordinatorOptions other = coordinatorOptions(1);
  other.key.job = "another";
  auto stranger = startCoordinator(other);
  CoordinatorOptions secret = coordinatorOptions(1);
  secret.key.secret = "yet another secret";
  auto secretive = startCoordinator(secret);
  auto coordinator = startCoordinator(coordinatorOptions(1));

  MemberOptions options = memberOptions(0, 1, coordinator->port());
  options.endpoints = {{"127.0.0.1", 1},
                       {"127.0.0.1", ssh.port},
                       {"127.0.0.1", http.port},
                       {"127.0.0.1", closing.port},
                       {"127.0.0.1", stranger->port()},
                       {"127.0.0.1", secretive->port()},
                       {"localhost", coordinator->port()}};
  double begin = monotonicSeconds();
  EXPECT_EQ(joinError(options), "");
  EXPECT_LT(monotonicSeconds() - begin, 2 * patience());
}

TEST(ControlTrust, AMuteProgramCostsASecond) {
  OtherProgram mute([](Raw raw) { raw.hear(3); });
  auto coordinator = startCoordinator(coordinatorOptions(1));
  MemberOptions options = memberOptions(0, 1, coordinator->port());
  options.endpoints.insert(options.endpoints.begin(), {"127.0.0.1", mute.port});
  double begin = monotonicSeconds();
  EXPECT_EQ(joinError(options), "");
  EXPECT_LT(monotonicSeconds() - begin, 3 * patience());
}

TEST(ControlTrust, WaitsForACoordinatorThatComesLater) {
  ReservedPort reserved;
  uint16_t port = reserved.number();
  std::unique_ptr<Coordinator> coordinator;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    CoordinatorOptions options = coordinatorOptions(1);
    options.ports = {port};
    coordinator = startCoordinator(options);
  });
  EXPECT_EQ(joinError(memberOptions(0, 1, port)), "");
  later.join();
}

TEST(ControlTrust, SaysWhatItFoundEverywhereWhenTimeIsUp) {
  OtherProgram mute([](Raw raw) { raw.hear(0.3); });
  MemberOptions options = memberOptions(3, 4, mute.port);
  options.endpoints.push_back({"127.0.0.1", 1});
  options.endpoints.push_back({"no-such-host.invalid", 5});
  options.times.joinSeconds = 0.7 * patience();
  double begin = monotonicSeconds();
  std::string error = joinError(options);
  EXPECT_LT(monotonicSeconds() - begin, 3 * patience());
  EXPECT_TRUE(contains(error, "rank 3 (device cpu:3) found no coordinator of job 'job' within"))
      << error;
  EXPECT_TRUE(contains(error, "127.0.0.1:1: Connection refused") ||
              contains(error, "not tried again"))
      << error;
  EXPECT_TRUE(contains(error, "no-such-host.invalid") && contains(error, "secret")) << error;
}

TEST(ControlTrust, ListensOnIPv6AndOnNames) {
  for (const char *address : {"::1", "localhost", "::", "0.0.0.0", ""}) {
    CoordinatorOptions options = coordinatorOptions(1);
    options.listenAddress = address;
    Result<std::unique_ptr<Coordinator>> started = Coordinator::start(options);
    if (started.failed() && std::string(address).find(':') != std::string::npos)
      continue; // a machine without IPv6
    ASSERT_FALSE(started.failed()) << started.message();
    MemberOptions member = memberOptions(0, 1, (*started)->port());
    member.endpoints[0].host =
        std::string(address) == "::1" || std::string(address) == "::" ? "::1" : "localhost";
    EXPECT_EQ(joinError(member), "") << address;
  }
}

TEST(ControlTrust, TriesEveryAddressOfAName) {
  // Another job listens on the same port of the name's other address.
  CoordinatorOptions six = coordinatorOptions(1);
  six.listenAddress = "::1";
  six.key.job = "another";
  if (Coordinator::start(six).failed() || must(zorse::control::resolve({"", 1})).size() < 2)
    GTEST_SKIP() << "no IPv6 here";
  ReservedPort both(/*six=*/true);
  six.ports = {both.number()};
  auto other = startCoordinator(six);
  CoordinatorOptions options = coordinatorOptions(1);
  options.ports = {both.number()};
  auto coordinator = startCoordinator(options);
  MemberOptions member = memberOptions(0, 1, coordinator->port());
  member.endpoints[0].host = ""; // loopback: ::1, then 127.0.0.1
  EXPECT_EQ(joinError(member), "");
}

TEST(ControlTrust, PiecesOfAnySizeInBothDirections) {
  auto coordinator = startCoordinator(coordinatorOptions(2));
  OtherProgram dribble([&](Raw raw) {
    Raw behind(coordinator->port());
    auto pieces = [](const std::string &bytes, Raw &to) {
      for (size_t at = 0, piece = 1; at < bytes.size(); at += piece, piece = piece % 7 + 1)
        to.say(bytes.substr(at, piece));
    };
    bool closed = false;
    while (!closed && !dribble.ending()) {
      pieces(raw.hear(0.005, &closed), behind);
      pieces(behind.hear(0.005, &closed), raw);
    }
  });
  std::unique_ptr<Member> direct;
  std::thread second([&] {
    direct = must(Member::join(memberOptions(1, 2, coordinator->port())));
    EXPECT_FALSE(direct->allGatherBytes("all", std::string(20000, 'y')).failed());
    direct->leave();
  });
  {
    auto member = must(Member::join(memberOptions(0, 2, dribble.port)));
    Result<std::vector<std::string>> all = member->allGatherBytes("all", std::string(20000, 'x'));
    EXPECT_TRUE(!all.failed() && all->at(0) == std::string(20000, 'x') &&
                all->at(1) == std::string(20000, 'y'));
    member->leave();
  }
  second.join();
  EXPECT_TRUE(coordinator->waitUntilOver(5 * patience()));
}

TEST(ControlTrust, ALostNetworkIsNoticedAtBothEnds) {
  // A proxy that stops forwarding at some point without closing a connection.
  CoordinatorOptions options = coordinatorOptions(2);
  options.times.heartbeatTimeoutSeconds = 1;
  auto coordinator = startCoordinator(options);
  std::atomic<bool> cut{false}, ending{false};
  OtherProgram cable([&](Raw raw) {
    Raw behind(coordinator->port());
    while (!cut && !cable.ending()) {
      behind.say(raw.hear(0.005));
      raw.say(behind.hear(0.005));
    }
    while (!ending && !cable.ending())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  Ear here, there;
  MemberOptions near = memberOptions(0, 2, coordinator->port()),
                far = memberOptions(1, 2, cable.port);
  here.attach(near), there.attach(far);
  auto first = must(Member::join(near)), second = must(Member::join(far));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  double begin = monotonicSeconds();
  cut = true;
  Failure rootCause = here.verdict();
  EXPECT_EQ(rootCause.cause, Failure::MissedHeartbeats);
  EXPECT_TRUE(contains(rootCause.message,
                       "rank 1 (device cpu:1) is lost: nothing was heard of it for 1.0 s"))
      << rootCause.message;
  Failure own = there.verdict();
  EXPECT_EQ(own.cause, Failure::MissedHeartbeats);
  EXPECT_TRUE(contains(own.message, "the launcher at 127.0.0.1:")) << own.message;
  EXPECT_TRUE(contains(own.message, "is lost: nothing was heard of it for 1.0 s")) << own.message;
  EXPECT_LT(monotonicSeconds() - begin, 3 * patience());
  EXPECT_TRUE(coordinator->waitUntilOver(3 * patience()));
  ending = true;
}

TEST(ControlTrust, TakesTheFirstFreePort) {
  auto first = startCoordinator(coordinatorOptions(1));
  CoordinatorOptions options = coordinatorOptions(1);
  options.ports = {first->port(), 0};
  auto second = startCoordinator(options);
  EXPECT_NE(second->port(), first->port());
  options.ports = {first->port()};
  Result<std::unique_ptr<Coordinator>> third = Coordinator::start(options);
  ASSERT_TRUE(third.failed());
  EXPECT_TRUE(contains(third.message(), std::to_string(first->port()) + ": Address already in use"))
      << third.message();
  options.listenAddress = "192.0.2.1";
  EXPECT_TRUE(contains(Coordinator::start(options).message(), "192.0.2.1"));
}

// ---- before the proof ----

TEST(ControlTrust, TheCoordinatorOnlyGreetsStrangers) {
  auto coordinator = startCoordinator(coordinatorOptions(1));
  Raw raw(coordinator->port());
  EXPECT_TRUE(raw.next().value().has_hello());
  raw.say(greeting(zorse::control::MEMBER, std::string(32, 'n')));
  zorse::control::Message proof;
  proof.mutable_authenticate()->set_mac(std::string(32, 'm'));
  raw.say(proof);
  std::optional<zorse::control::Message> answer = raw.next();
  ASSERT_TRUE(answer && answer->has_join_rejected());
  EXPECT_EQ(answer->join_rejected().reason(), zorse::control::WRONG_SECRET);
  EXPECT_EQ(answer->join_rejected().job() + answer->join_rejected().message(), "")
      << "reveals the job to an unauthenticated peer";
  EXPECT_EQ(answer->join_rejected().generation() + answer->join_rejected().world_size(), 0u);
  bool closed = false;
  EXPECT_EQ(raw.hear(2 * patience(), &closed), "");
  EXPECT_TRUE(closed);
}

TEST(ControlTrust, MembersOnlyGreetStrangers) {
  std::mutex mutex;
  std::string heard;
  OtherProgram spy([&](Raw raw) { // knows everything except the secret; echoes the member's own
                                  // proof
    raw.say(greeting(zorse::control::COORDINATOR, std::string(32, 'n')));
    std::optional<zorse::control::Message> hello = raw.next(), proof = raw.next();
    if (!hello || !proof || !proof->has_authenticate())
      return;
    raw.say(*proof);
    std::string after = raw.hear(0.3);
    std::lock_guard<std::mutex> lock(mutex);
    heard += after;
    EXPECT_FALSE(contains(hello->SerializeAsString() + proof->SerializeAsString(), "cpu:0"));
  });
  MemberOptions options = memberOptions(0, 1, spy.port);
  options.times.joinSeconds = 1 * patience();
  std::string error = joinError(options);
  EXPECT_TRUE(contains(error, "does not know this job's secret")) << error;
  EXPECT_GT(spy.connections, 0);
  std::lock_guard<std::mutex> lock(mutex);
  EXPECT_EQ(heard, "");
}

TEST(ControlTrust, RecordedConversationsAreWorthNothing) {
  // A proxy records the bytes of an admitted member and replays them to the coordinator.
  auto coordinator = startCoordinator(coordinatorOptions(2));
  std::mutex mutex;
  std::string recorded;
  std::atomic<bool> enough{false};
  OtherProgram proxy([&](Raw raw) {
    Raw behind(coordinator->port());
    while (!enough && !proxy.ending()) {
      std::string up = raw.hear(0.01);
      {
        std::lock_guard<std::mutex> lock(mutex);
        recorded += up;
      }
      behind.say(up);
      raw.say(behind.hear(0.01));
    }
  });
  Result<std::unique_ptr<Member>> member = Member::join(memberOptions(0, 2, proxy.port));
  enough = true;
  ASSERT_FALSE(member.failed()) << member.message();
  Raw again(coordinator->port());
  {
    std::lock_guard<std::mutex> lock(mutex);
    ASSERT_GT(recorded.size(), 100u);
    again.say(recorded);
  }
  EXPECT_TRUE(again.next().value().has_hello());
  std::optional<zorse::control::Message> answer = again.next();
  ASSERT_TRUE(answer && answer->has_join_rejected());
  EXPECT_EQ(answer->join_rejected().reason(), zorse::control::WRONG_SECRET);
}

TEST(ControlTrust, JunkNeitherEndsNorStallsTheJob) {
  Rig rig(2);
  uint16_t port = rig.coordinator->port();
  std::atomic<bool> ending{false};
  std::thread junk([&] {
    const std::string large(1 << 16, 'x');
    for (int i = 0; !ending; ++i) {
      Raw raw(port);
      switch (i % 6) {
      case 0:
        raw.say(std::string("GET / HTTP/1.1\r\n\r\n"));
        break;
      case 1:
        raw.say(large);
        break;
      case 2:
        raw.say(std::string("\x7f\xff\xff\xff", 4) + large);
        break;
      case 3:
        raw.say(std::string("\0\0\0\5abcde", 9));
        break;
      case 4:
        break; // a port scan
      case 5:
        raw.say(greeting(zorse::control::MEMBER, "short"));
        break;
      }
    }
  });
  std::vector<Raw> slow; // many peers that send one byte and stay connected
  for (int i = 0; i < 300; ++i) {
    slow.emplace_back(port);
    slow.back().say(std::string(1, '\0'));
  }
  double begin = monotonicSeconds();
  rig.each([](uint32_t, Member &member) {
    for (int round = 0; round < 50; ++round)
      ASSERT_FALSE(member.allGatherBytes(std::to_string(round), "x").failed());
  });
  EXPECT_LT(monotonicSeconds() - begin, 5 * patience());
  EXPECT_FALSE(rig.coordinator->failure());
  ending = true;
  junk.join();
}

TEST(ControlTrust, RanksJoinThoughAllPlacesAreTaken) {
  CoordinatorOptions options = coordinatorOptions(4);
  auto coordinator = startCoordinator(options);
  std::vector<Raw> slow;
  for (int i = 0; i < 400; ++i)
    slow.emplace_back(coordinator->port());
  std::vector<std::unique_ptr<Member>> members;
  double begin = monotonicSeconds();
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Result<std::unique_ptr<Member>> member =
        Member::join(memberOptions(rank, 4, coordinator->port()));
    ASSERT_FALSE(member.failed()) << member.message();
    members.push_back(std::move(*member));
  }
  EXPECT_LT(monotonicSeconds() - begin, 8 * patience());
}

TEST(ControlTrust, StrangersAreShownTheDoorInTime) {
  auto coordinator = startCoordinator(coordinatorOptions(1));
  Raw silent(coordinator->port());
  bool closed = false;
  double begin = monotonicSeconds();
  silent.hear(8 * patience(), &closed);
  EXPECT_TRUE(closed);
  EXPECT_LT(monotonicSeconds() - begin, 7 * patience());
}

TEST(ControlTrust, StrangersWhoAnnounceMuchAreShownTheDoorAtOnce) {
  auto coordinator = startCoordinator(coordinatorOptions(1));
  Raw raw(coordinator->port());
  raw.say(std::string("\0\0\4\1", 4)); // one byte more than a greeting may have
  bool closed = false;
  double begin = monotonicSeconds();
  raw.hear(4 * patience(), &closed);
  EXPECT_TRUE(closed);
  EXPECT_LT(monotonicSeconds() - begin,
            patience() > 1 ? 4.5 : 3); // unauthenticated peers have five seconds
}

TEST(ControlTrust, MissingRanksAreNamedWithThoseWhoWereTurnedAway) {
  CoordinatorOptions options = coordinatorOptions(3);
  options.times.joinSeconds = 3;
  options.devices = {"a100:0", "a100:1", "t4:0"};
  auto coordinator = startCoordinator(options);
  Ear ear;
  MemberOptions present = memberOptions(1, 3, coordinator->port());
  ear.attach(present);
  Result<std::unique_ptr<Member>> member = Member::join(present);
  ASSERT_FALSE(member.failed());
  MemberOptions stranger = memberOptions(2, 3, coordinator->port());
  stranger.key.secret = "some other secret";
  stranger.times.joinSeconds = 1;
  joinError(stranger);
  Failure rootCause = ear.verdict();
  EXPECT_EQ(rootCause.cause, Failure::NotJoined);
  EXPECT_EQ(rootCause.rank, 0u);
  EXPECT_TRUE(contains(rootCause.message, "rank 0 (device a100:0), rank 2 (device t4:0) did not "
                                          "join within 3.0 s: expected 3 ranks, found 1"))
      << rootCause.message;
  EXPECT_TRUE(contains(rootCause.message, "did not know the secret (last from 127.0.0.1)"))
      << rootCause.message;
}

TEST(ControlTrust, AnAdmittedRankThatSendsNonsenseEndsTheJob) {
  auto coordinator = startCoordinator(coordinatorOptions(1));
  Raw raw(coordinator->port());
  zorse::control::Nonces nonces{std::string(32, 'n'), raw.next().value().hello().nonce()};
  raw.say(greeting(zorse::control::MEMBER, nonces.member));
  zorse::control::Message proof, join;
  proof.mutable_authenticate()->set_mac(
      macOfSecret(testKey().secret, zorse::control::MEMBER, nonces));
  raw.say(proof);
  EXPECT_TRUE(raw.next().value().has_authenticate());
  join.mutable_join()->set_job("job");
  join.mutable_join()->set_world_size(1);
  join.mutable_join()->set_mac(macOfJoin(testKey().secret, nonces, join.join()));
  raw.say(join);
  EXPECT_TRUE(raw.next().value().has_join_accepted());
  raw.say(std::string("\xff\xff\xff\xff", 4));
  EXPECT_TRUE(coordinator->waitUntilOver(5 * patience()));
  ASSERT_TRUE(coordinator->failure());
  EXPECT_TRUE(
      contains(coordinator->failure()->message, "rank 0 sent the coordinator an invalid message"))
      << coordinator->failure()->message;
}

} // namespace
