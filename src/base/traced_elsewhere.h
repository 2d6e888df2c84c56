// Spans beyond traces: threads whose work others account for, and listeners.
#pragma once

#include <atomic>
#include <chrono>

namespace cohort {

// Leaves out the spans of this thread from now on: another thread, which waits for it, has spans of its own for what it
// does meanwhile.
void leave_out_own_spans();

// A function that is told of each span (cohort/trace.h) at its end, on the thread of the span, whether a trace is being
// taken or not. It has to be thread-safe.
using SpanListener = void (*)(const char* category, const char* name, std::chrono::steady_clock::time_point begin,
                              std::chrono::steady_clock::time_point end);
// The listener of the process, null: none. It hears spans while detail::tracing has kHeard.
inline std::atomic<SpanListener> span_listener = nullptr;

}  // namespace cohort
