#include "MemoryPeers.h"

#include "../../control/Proof.h"
#include "../../control/Sockets.h"

#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/time.h>

using namespace zorse::runtime;
namespace control = zorse::control;

namespace zorse::runtime {

/// First bytes of a request; little-endian, like all processors that run programs.
struct MemoryRequest {
  enum Operation : uint32_t { Layout, Read, Write };
  uint32_t operation = Layout;
  uint32_t count = 0;  ///< Read: number of ranges that follow. Write: 1 if `kept` is valid
  MemoryStep step;     ///< Write: `kept`
  char name[256] = {}; ///< Read: file. Write: device
};

} // namespace zorse::runtime

namespace {

constexpr size_t kNonce = 32;
constexpr uint32_t kMaxRanges = 1 << 20, kMaxText = 256 << 20;

struct Reply {
  uint32_t good = 0, textBytes = 0;
};

bool sendAll(int socket, const void *data, size_t bytes) {
  const char *from = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return false;
    from += sent;
    bytes -= size_t(sent);
  }
  return true;
}

bool receiveAll(int socket, void *data, size_t bytes) {
  char *to = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, to, bytes, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    to += got;
    bytes -= size_t(got);
  }
  return true;
}

bool sendReply(int socket, bool good, const std::string &text) {
  const Reply reply = {good, uint32_t(text.size())};
  return sendAll(socket, &reply, sizeof reply) && sendAll(socket, text.data(), text.size());
}

void setTimeout(int socket, double seconds) {
  timeval time = {};
  time.tv_sec = time_t(seconds);
  time.tv_usec = suseconds_t((seconds - double(time.tv_sec)) * 1e6);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

/// Each end sends a nonce, then a MAC over its role and both nonces. The server sends its MAC after
/// the client's, so a stranger learns nothing from it.
bool authenticate(int socket, const std::string &secret, bool server) {
  const std::string mine = control::randomBytes(kNonce);
  std::string theirs(kNonce, '\0');
  if (!sendAll(socket, mine.data(), kNonce) || !receiveAll(socket, theirs.data(), kNonce))
    return false;
  const std::string nonces = server ? theirs + mine : mine + theirs,
                    asClient =
                        control::hmacSha256(secret, "zorse memory checkpoints: client" + nonces),
                    asServer =
                        control::hmacSha256(secret, "zorse memory checkpoints: server" + nonces);
  const std::string &own = server ? asServer : asClient, &other = server ? asClient : asServer;
  std::string mac(control::kMacBytes, '\0');
  if (!server && !sendAll(socket, own.data(), own.size()))
    return false;
  if (!receiveAll(socket, mac.data(), mac.size()) || !control::equalMacs(mac, other))
    return false;
  return !server || sendAll(socket, own.data(), own.size());
}

template <size_t N> void setName(char (&name)[N], const std::string &text) {
  std::strncpy(name, text.c_str(), N - 1);
}

} // namespace

// ---- server ----

Result<std::unique_ptr<MemoryServer>> MemoryServer::start(const MemoryStore &store,
                                                          const CheckpointOptions::Peers &options) {
  Result<control::Listener> listener = control::listenOn(options.listenAddress, {0});
  if (listener.failed())
    return listener.error();
  std::unique_ptr<MemoryServer> server(new MemoryServer(store, options.secret));
  server->endpoint_ = {options.listenAddress, listener->port};
  server->listener_ = std::move(listener->socket);
  server->waker_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Result<std::thread> thread = control::startThread([s = server.get()] { s->accept(); });
  if (thread.failed())
    return thread.error();
  server->acceptor_ = std::move(*thread);
  return server;
}

MemoryServer::~MemoryServer() {
  const uint64_t one = 1;
  (void)!::write(waker_.get(), &one, sizeof one);
  if (acceptor_.joinable())
    acceptor_.join();
  std::map<int, std::thread> connections;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    connections.swap(connections_);
  }
  for (auto &[socket, thread] : connections)
    ::shutdown(socket, SHUT_RDWR);
  for (auto &[socket, thread] : connections) {
    thread.join();
    ::close(socket);
  }
}

void MemoryServer::accept() {
  for (;;) {
    std::array<pollfd, 2> wait = {pollfd{listener_.get(), POLLIN, 0},
                                  pollfd{waker_.get(), POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR)
      return;
    if (wait[1].revents)
      return;
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) { // no descriptors: try later
      constexpr int kPauseMilliseconds = 50;
      ::poll(nullptr, 0, kPauseMilliseconds);
      continue;
    }
    sendWithoutDelay(socket);
    std::lock_guard<std::mutex> lock(mutex_);
    Result<std::thread> thread = control::startThread([this, socket] { serve(socket); });
    if (thread.failed())
      ::close(socket);
    else
      connections_[socket] = std::move(*thread); // joined at the end: there are few
  }
}

void MemoryServer::serve(int socket) {
  constexpr double kGreetingSeconds = 10;
  setTimeout(socket, kGreetingSeconds);
  if (!authenticate(socket, secret_, /*server=*/true)) {
    ::shutdown(socket, SHUT_RDWR);
    return;
  }
  setTimeout(socket, 0); // the client decides when it ends
  MemoryRequest request;
  Slots slots;
  bool good = true;
  while (good && receiveAll(socket, &request, sizeof request)) {
    request.name[sizeof request.name - 1] = 0;
    if (request.operation == MemoryRequest::Layout) {
      Result<std::string> text = store_.layoutText(request.step.generation);
      good = sendReply(socket, !text.failed(), text.failed() ? text.message() : *text);
    } else if (request.operation == MemoryRequest::Read) {
      good = send(socket, request);
    } else {
      const Status status = request.operation == MemoryRequest::Write
                                ? receive(socket, request, slots)
                                : Status(userError("an unknown request"));
      good = sendReply(socket, status.succeeded(), status.failed() ? status.message() : "") &&
             status.succeeded();
    }
  }
  ::shutdown(socket, SHUT_RDWR);
}

bool MemoryServer::send(int socket, const MemoryRequest &request) {
  if (request.count > kMaxRanges)
    return false;
  std::vector<MemoryPeer::Range> ranges(request.count);
  if (!receiveAll(socket, ranges.data(), ranges.size() * sizeof ranges[0]))
    return false;
  Result<MemoryStore::View> view = store_.view(request.step, request.name);
  if (view.failed())
    return sendReply(socket, false, view.message());
  for (const MemoryPeer::Range &range : ranges)
    if (range.offset > view->header.stateBytes ||
        range.bytes > view->header.stateBytes - range.offset)
      return sendReply(socket, false, "a range beyond the state");
  if (!sendReply(socket, true, ""))
    return false;
  for (const MemoryPeer::Range &range : ranges) {
    const std::byte *data = view->state() + range.offset;
    const uint64_t hash = XXH64(data, range.bytes, 0);
    if (!sendAll(socket, data, range.bytes) || !sendAll(socket, &hash, sizeof hash))
      return false;
  }
  return sendReply(socket, view->isUnchanged(), "the slot was overwritten while it was read");
}

Status MemoryServer::receive(int socket, const MemoryRequest &request, Slots &slots) {
  SlotHeader header;
  if (!receiveAll(socket, &header, sizeof header))
    return userError("the connection was lost");
  header.file[sizeof header.file - 1] = 0;
  const std::optional<MemoryStep> kept = request.count ? std::optional(request.step) : std::nullopt;
  int which = MemoryStore::kOtherNodes;
  if (kept && MemoryStore::contentOf(store_.slotPath(request.name, which)) == kept)
    ++which;
  const std::string path = store_.slotPath(request.name, which);
  auto slot = slots.find(path);
  if (slot == slots.end()) {
    Result<MemorySlot> opened = store_.openSlot(request.name, which, header.stateBytes);
    if (opened.failed())
      return opened.error();
    slot = slots.emplace(path, std::move(*opened)).first;
  }
  if (slot->second.stateBytes() != header.stateBytes)
    return userError("the device's state has another size than before");
  slot->second.begin();
  uint64_t hash = 0;
  if (!receiveAll(socket, slot->second.state(), header.stateBytes) ||
      !receiveAll(socket, &hash, sizeof hash))
    return userError("the connection was lost");
  if (hash != XXH64(slot->second.state(), header.stateBytes, 0))
    return userError("the state was changed on its way");
  slot->second.finish(header);
  return Status::success();
}

// ---- client ----

Error MemoryPeer::broken(const std::string &what) const {
  return userError("checkpoints in memory of the node at " + control::describe(endpoint_) + ": " +
                   what);
}

Result<std::unique_ptr<MemoryPeer>> MemoryPeer::connect(const Endpoint &endpoint,
                                                        const CheckpointOptions::Peers &options) {
  Result<std::vector<control::Address>> addresses = control::resolve(endpoint);
  if (addresses.failed())
    return addresses.error();
  std::string why = "no address";
  for (const control::Address &address : *addresses) {
    Result<FileDescriptor> socket =
        control::connectTo(address, control::monotonicSeconds() + options.timeoutSeconds);
    if (socket.failed()) {
      why = socket.message();
      continue;
    }
    const int fd = socket->get();
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setTimeout(fd, options.timeoutSeconds);
    sendWithoutDelay(fd);
    std::unique_ptr<MemoryPeer> peer(new MemoryPeer(endpoint, std::move(*socket)));
    if (authenticate(fd, options.secret, /*server=*/false))
      return peer;
    why = "it does not know this job's secret";
  }
  return userError("checkpoints in memory of the node at " + control::describe(endpoint) + ": " +
                   why);
}

Status MemoryPeer::readReply(std::string &text) {
  Reply reply;
  if (!receiveAll(socket_.get(), &reply, sizeof reply) || reply.textBytes > kMaxText)
    return broken("the connection was lost");
  text.resize(reply.textBytes);
  if (!receiveAll(socket_.get(), text.data(), text.size()))
    return broken("the connection was lost");
  return reply.good ? Status::success() : Status(broken(text));
}

Result<std::string> MemoryPeer::readLayout(uint64_t generation) {
  MemoryRequest request;
  request.step.generation = generation;
  std::string text;
  if (!sendAll(socket_.get(), &request, sizeof request))
    return broken("the connection was lost");
  if (Status status = readReply(text); status.failed())
    return status.error();
  return text;
}

Status MemoryPeer::read(const MemoryStep &step, const std::string &file,
                        const std::vector<Range> &ranges,
                        const std::function<void(size_t range, const std::byte *)> &take) {
  MemoryRequest request;
  request.operation = MemoryRequest::Read;
  request.count = uint32_t(ranges.size());
  request.step = step;
  setName(request.name, file);
  std::string text;
  if (!sendAll(socket_.get(), &request, sizeof request) ||
      !sendAll(socket_.get(), ranges.data(), ranges.size() * sizeof ranges[0]))
    return broken("the connection was lost");
  if (Status status = readReply(text); status.failed())
    return status;
  std::vector<std::byte> buffer;
  for (size_t i = 0; i < ranges.size(); ++i) {
    buffer.resize(std::max<size_t>(buffer.size(), ranges[i].bytes));
    uint64_t hash = 0;
    if (!receiveAll(socket_.get(), buffer.data(), ranges[i].bytes) ||
        !receiveAll(socket_.get(), &hash, sizeof hash))
      return broken("the connection was lost");
    if (hash != XXH64(buffer.data(), ranges[i].bytes, 0))
      return broken("state was changed on its way");
    take(i, buffer.data());
  }
  return readReply(text);
}

Status MemoryPeer::write(const std::string &device, const std::optional<MemoryStep> &kept,
                         const SlotHeader &header, const std::byte *state) {
  MemoryRequest request;
  request.operation = MemoryRequest::Write;
  request.count = kept.has_value();
  request.step = kept.value_or(MemoryStep());
  setName(request.name, device);
  const uint64_t hash = XXH64(state, header.stateBytes, 0);
  std::string text;
  if (!sendAll(socket_.get(), &request, sizeof request) ||
      !sendAll(socket_.get(), &header, sizeof header) ||
      !sendAll(socket_.get(), state, header.stateBytes) ||
      !sendAll(socket_.get(), &hash, sizeof hash))
    return broken("the connection was lost");
  return readReply(text);
}
