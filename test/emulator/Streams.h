// Streams and events of the stand-in for libcuda. They check the order of memory accesses.
//
// Every access is checked when it is put on a stream, against all earlier accesses. Two accesses to
// the same bytes, one of them a write, must be ordered by streams, events or waits of host threads
// (vector clocks; F. Mattern, Virtual Time and Global States, 1989). A missing event is therefore
// detected in every run, independent of the actual timing.
//
// Streams execute work when it is put on them or, after runAtRandom or runAtPace, in separate
// threads with delays.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zorse::emulator {

struct Access {
  uintptr_t begin = 0, end = 0;
  bool write = false;
  bool takesTime = true; ///< at a pace; false for memory that the work may not access in full
};

struct Stream;
struct StreamEvent;

/// A mutation by a test: the n-th call of a kind.
enum class Mutation : uint8_t { None, DropWait, DropRecord, OtherStream };

// All functions that return a string return findings; "": none. nullptr is the blocking stream: its
// work is ordered after everything that any host thread has waited for, and before all work put on
// streams later.

Stream *makeStream();
void destroyStream(Stream *stream);
/// \param run  executes the work and returns its findings
/// \param least  minimum duration in seconds at a pace
std::string put(Stream *stream, const std::string &what, const std::vector<Access> &accesses,
                std::function<std::string()> run, double min = 0);
std::string synchronize(Stream *stream);

StreamEvent *makeEvent();
void destroyEvent(StreamEvent *event);
std::string record(StreamEvent *event, Stream *stream);
std::string wait(Stream *stream, StreamEvent *event);
std::string synchronize(StreamEvent *event);
/// Seconds of std::chrono::steady_clock of a completed event.
double secondsOf(StreamEvent *event);

/// Records an access after the work on the stream, without any work: memory that programs declare
/// as accessed.
std::string accessByStream(Stream *stream, const std::string &what, const Access &access);
/// An access of a host thread to memory that streams access.
std::string accessByHost(const Access &access);
/// Memory is allocated or freed. A pending access to it is a finding.
std::string forget(uintptr_t begin, uintptr_t end);

/// Waits for the work on a stream, or on all streams, without establishing an order. Drivers do
/// this when code is loaded or memory is pageable; callers must not rely on it.
void waitForStreams(const Stream *only = nullptr);
/// The stream's work may wait for other streams or processes. It is executed in a thread from now
/// on.
void runApart(Stream *stream);
/// Streams that are created later have threads that sleep at random before their work. \param most
/// seconds
void runAtRandom(uint64_t seed, double max);
/// Work takes the time of its bytes at this rate. Streams that are created later have threads that
/// sleep until this time is over. Their clocks are simulated: work begins when the work it waits
/// for ended, not when its thread woke up, so a busy machine does not slow them.
void runAtPace(double bytesPerSecond);
/// Inside work, at a pace: when it began, in seconds of std::chrono::steady_clock.
double workBegan();
/// Sets the end of the running work, instead of the time of its bytes.
void workLasts(double until);
/// Skips work that is put on a stream after its first event or its first wait, and completes all
/// events immediately. Calls then cost almost nothing, and the time of a process is the time of its
/// host code. Work on streams without events, or on no stream, is still executed.
void leaveWorkOut();
/// Whether work put on the stream now is skipped.
bool leavesOut(const Stream *stream);
/// \param index  of the calls of that kind, from 0
void mutate(Mutation mutation, uint64_t index);
/// Number of calls of a kind.
uint64_t calls(Mutation mutation);

} // namespace zorse::emulator
