// Fuzzes data from peers: frames and messages of the control plane at every stage, the
// coordinator's decisions on them, hellos of Gloo's connections, and published facts.
#include "Fuzz.h"
#include "fuzz.pb.h"

#include "control/Frames.h"
#include "control/Job.h"
#include "transport/gloo/Handshake.h"
#include "zorse/runtime/Hardware.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::control;

namespace {

/// Checks that ranks accept every sent frame, and discards it.
class Checked : public Outbox {
public:
  explicit Checked(uint32_t world) : world_(world) {}
  void send(uint32_t rank, const SharedFrame &frame, bool) override {
    ZORSE_FUZZ_EXPECT(rank < world_ && frame->size() > kLengthBytes);
    runtime::Result<Message> message = parseMessage(std::string_view(*frame).substr(kLengthBytes),
                                                    COORDINATOR, HandshakeState::Work, world_);
    ZORSE_FUZZ_EXPECT(!message.failed() ||
                      message.message().find("message 9 ") != std::string::npos ||
                      message.message().find("at this point") == std::string::npos);
  }
  void giveUp(uint32_t rank) override { ZORSE_FUZZ_EXPECT(rank < world_); }

private:
  uint32_t world_;
};

/// Reads frames in pieces and parses each frame as if it came from either side at any stage.
bool readStream(std::string_view bytes, uint32_t world) {
  bool good = false;
  for (size_t limit : {kGreetingBytes, kFrameBytes}) {
    FrameReader reader(limit);
    size_t piece = 1 + bytes.size() / 3;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      std::string_view part = bytes.substr(at, piece);
      reader.append(part.data(), part.size());
      while (std::optional<std::string_view> frame = reader.next()) {
        ZORSE_FUZZ_EXPECT(frame->size() <= limit);
        for (Role sender : {MEMBER, COORDINATOR})
          for (HandshakeState state : {HandshakeState::Greeting, HandshakeState::Proof,
                                       HandshakeState::Join, HandshakeState::Work})
            good |= !parseMessage(*frame, sender, state, world).failed();
      }
    }
    ZORSE_FUZZ_EXPECT(reader.buffered() <= bytes.size());
  }
  return good;
}

} // namespace

bool fuzz::readOne(std::string_view bytes) {
  ControlInput input;
  if (!input.ParseFromArray(bytes.data(), int(bytes.size())))
    return readStream(bytes, 4);
  uint32_t world = 1 + input.world() % 8;
  Checked outbox(world);
  JobSettings settings;
  settings.worldSize = world;
  settings.host = world > 2 ? 0 : runtime::kNoRank;
  Job job(settings, outbox);
  double now = 0;
  bool good = false;
  std::vector<bool> joined(world, false);
  for (const ControlInput::Event &event : input.events()) {
    uint32_t rank = event.rank() % world;
    switch (event.what_case()) {
    case ControlInput::Event::kMessage: {
      SharedFrame frame = encode(event.message());
      ExactCopy copy(std::string_view(*frame).substr(kLengthBytes));
      if (event.message().has_join() || event.message().has_hello()) {
        (void)parseMessage(copy.view(), MEMBER, HandshakeState::Join, world).failed();
        if (job.isAbsent(rank) && !job.rootCause()) {
          job.joined(rank, event.message().join().device().substr(0, kDeviceBytes), now);
          joined[rank] = true;
        }
        break;
      }
      good |= !parseMessage(copy.view(), COORDINATOR, HandshakeState::Work, world).failed();
      if (!job.isConnected(rank))
        break;
      job.recordActivity(rank, now);
      runtime::Result<Message> message =
          parseMessage(copy.view(), MEMBER, HandshakeState::Work, world);
      if (message.failed()) {
        job.broken(rank, message.message(), now);
      } else {
        good = true;
        job.received(rank, *message, now);
      }
      break;
    }
    case ControlInput::Event::kRaw:
      good |= readStream(event.raw(), world);
      if (event.raw().size() >= runtime::gloo_transport::kHelloBytes) {
        ExactCopy hello(
            std::string_view(event.raw()).substr(0, runtime::gloo_transport::kHelloBytes));
        auto decoded =
            runtime::gloo_transport::decodeHello(reinterpret_cast<const uint8_t *>(hello.data()));
        if (decoded) {
          auto again = runtime::gloo_transport::encode(*decoded);
          ZORSE_FUZZ_EXPECT(std::equal(again.begin(), again.end(),
                                       reinterpret_cast<const uint8_t *>(hello.data())));
        }
      }
      (void)runtime::decodeHardware(event.raw()).failed();
      break;
    case ControlInput::Event::kMilliseconds:
      now += event.milliseconds() % 100000 / 1000.0;
      job.tick(now);
      break;
    case ControlInput::Event::kClosed:
      if (job.isConnected(rank))
        job.closed(rank, "closed its connection", now);
      break;
    case ControlInput::Event::kEnded:
      job.processEnded(rank, !event.ended(), "was killed by signal 9 (Killed)", 137, now);
      break;
    case ControlInput::Event::kStop:
      job.requestStop(now);
      break;
    default:
      break;
    }
  }
  // For every input, a failed job has a verdict that can be sent.
  if (job.rootCause()) {
    Message verdict;
    *verdict.mutable_root_cause()->mutable_failure() = toMessage(*job.rootCause());
    SharedFrame frame = encode(verdict);
    ZORSE_FUZZ_EXPECT(!parseMessage(std::string_view(*frame).substr(kLengthBytes), COORDINATOR,
                                    HandshakeState::Work, world)
                           .failed());
  }
  return good;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  return fuzz::mutateMessage(fuzz::ControlInput(), data, size, maxSize, seed);
}
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t oneSize,
                                            const uint8_t *other, size_t otherSize, uint8_t *out,
                                            size_t outMaxSize, unsigned seed) {
  return fuzz::crossMessages(fuzz::ControlInput(), one, oneSize, other, otherSize, out, outMaxSize,
                             seed);
}
