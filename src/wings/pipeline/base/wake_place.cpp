#include "wings/pipeline/base/wake_place.h"

#include <vector>

namespace cohort {

int core_behind(int distance) {
  cpu_set_t cores;
  const int own = sched_getcpu();
  if (pthread_getaffinity_np(pthread_self(), sizeof(cores), &cores) != 0) return -1;
  std::vector<int> all;
  std::size_t place = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores)) continue;
    if (core == own) place = all.size();
    all.push_back(core);
  }
  return all.empty() ? -1 : all[(place + static_cast<std::size_t>(distance)) % all.size()];
}

void WakePlace::sleep() {
  if (core_ < 0) core_ = sched_getcpu();
  if (pthread_getaffinity_np(pthread_self(), sizeof(cores_), &cores_) == 0) sleeper_ = pthread_self();
}

void WakePlace::bind() {
  if (!sleeper_ || core_ < 0 || core_ >= CPU_SETSIZE || !CPU_ISSET(core_, &cores_)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core_, &one);
  bound_ = pthread_setaffinity_np(*sleeper_, sizeof(one), &one) == 0 || bound_;
}

void WakePlace::leave() {
  sleeper_.reset();
  core_ = sched_getcpu();
  if (bound_) pthread_setaffinity_np(pthread_self(), sizeof(cores_), &cores_);
  bound_ = false;
}

}  // namespace cohort
