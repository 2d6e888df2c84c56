#include "cluster/liveness.h"

namespace cohort {

void Liveness::enter(uint64_t incarnation, Time now) {
  if (!is(incarnation)) contender_ = 0;
  entered_ = true;
  incarnation_ = incarnation;
  hear(now);
}

void Liveness::hear(Time now) {
  heard_ = now;
  suspected_ = false;
}

void Liveness::contest(uint64_t incarnation, Time now) {
  if (contender_ == incarnation) return;
  contender_ = incarnation;
  contested_ = now;
}

}  // namespace cohort
