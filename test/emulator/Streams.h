// Streams and events of the stand-in for libcuda, and a watch over their order.
//
// Every access of memory is checked when it is put on a stream, against those that were put there before it: two accesses to the same bytes, one of
// them a write, must be ordered by streams, events and what host threads waited for (vector clocks; M. Mattern, Virtual Time and Global States,
// 1989). So a missing event is found in every run, whatever ran first.
//
// Streams do their work when it is put on them, or, after runAtRandom or runAtPace, in threads of their own that dawdle.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zorse::emulator {

struct Access {
  uintptr_t begin = 0, end = 0;
  bool write = false;
  bool takesTime = true; ///< at a pace; memory that the work may use, and need not
};

struct Stream;
struct StreamEvent;

/// What tests break on purpose: the n-th call of a sort.
enum class Mutation : uint8_t { None, DropWait, DropRecord, OtherStream };

// All return findings; nothing found: "".
// nullptr is the stream whose calls block: it is ordered behind everything that some host thread has waited for, and before everything put on
// streams later.

Stream *makeStream();
void destroyStream(Stream *stream);
/// \param run  what the work does; its result is what is found then
/// \param least  seconds that it lasts at a pace, if its bytes do not take longer
std::string put(Stream *stream, const std::string &what, const std::vector<Access> &accesses, std::function<std::string()> run, double least = 0);
std::string synchronize(Stream *stream);

StreamEvent *makeEvent();
void destroyEvent(StreamEvent *event);
std::string record(StreamEvent *event, Stream *stream);
std::string wait(Stream *stream, StreamEvent *event);
std::string synchronize(StreamEvent *event);
/// Seconds of std::chrono::steady_clock; of an event that has come.
double secondsOf(StreamEvent *event);

/// An access behind what is on the stream, of which no work comes: what programs say that is touched, and is not.
std::string accessByStream(Stream *stream, const std::string &what, const Access &access);
/// A host thread's own access to memory of which streams know.
std::string accessByHost(const Access &access);
/// Memory that ends, or begins, to exist. What is still to touch it is a finding.
std::string forget(uintptr_t begin, uintptr_t end);

/// Waits for what is on a stream, or on all, and orders nothing by it: what drivers do where code is loaded or memory is pageable, and nobody should
/// rely on.
void waitForStreams(const Stream *only = nullptr);
/// The stream's work may wait for other streams, or processes: it is done in a thread from now on.
void runApart(Stream *stream);
/// Streams made later have threads that sleep at random before their work. \param most  seconds
void runAtRandom(uint64_t seed, double most);
/// Work takes as long as its bytes at this rate, and streams made later have threads for it, which sleep until that time is over. Streams and events
/// count on: work begins where what it waits for has ended, not when a thread was woken, so that a busy machine does not slow their clock.
void runAtPace(double bytesPerSecond);
/// In work, at a pace: when it began, in seconds of std::chrono::steady_clock.
double workBegan();
/// Until when it lasts, instead of what its bytes take.
void workLasts(double until);
/// What is put on a stream behind its first event, or behind what it waits for first, is left out, and every event has come: calls cost next to
/// nothing, so that what a process takes is the host's time. What is put on streams without events, or on none, is done.
void leaveWorkOut();
/// Whether what is put on it now is left out.
bool leavesOut(const Stream *stream);
/// \param index  of the calls of that sort, from 0
void mutate(Mutation mutation, uint64_t index);
/// How many calls of a sort there were.
uint64_t calls(Mutation mutation);

} // namespace zorse::emulator
