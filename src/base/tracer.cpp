#include "base/tracer.h"

#include <utility>

namespace cohort {

namespace {

thread_local Tracer* tracer_of_thread = nullptr;

}  // namespace

Tracer* Tracer::current() {
  return tracer_of_thread;
}

Tracer* Tracer::make_current(Tracer* tracer) {
  return std::exchange(tracer_of_thread, tracer);
}

void refuse_in_trace(std::string_view what) {
  if (const Tracer* const tracer = Tracer::current()) tracer->refuse(what);
}

void outside_of_trace(HostStage stage) {
  Tracer* const tracer = Tracer::current();
  tracer == nullptr ? stage.act() : tracer->on_host(std::move(stage));
}

}  // namespace cohort
