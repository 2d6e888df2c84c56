#include "wings/pipeline/strategy/passage_threads.h"

#include <ATen/autocast_mode.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/traced_elsewhere.h"

namespace cohort {

struct PassageThreads::Desk {
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::shared_ptr<Passage> passage;
  bool busy = false;
  bool stop = false;
};

PassageThreads::~PassageThreads() {
  for (std::size_t i = 0; i < desks_.size(); ++i) {
    bool idle = false;
    {
      const std::lock_guard lock(desks_[i]->mutex);
      desks_[i]->stop = true;
      idle = !desks_[i]->busy;
    }
    desks_[i]->wake.notify_all();
    if (idle && threads_[i].get_id() != std::this_thread::get_id()) {
      threads_[i].join();
    } else {
      threads_[i].detach();
    }
  }
}

void PassageThreads::begin(std::size_t number, std::shared_ptr<Passage> passage) {
  while (desks_.size() <= number) {
    auto desk = std::make_shared<Desk>();
    desks_.reserve(desks_.size() + 1);
    try {
      threads_.emplace_back(serve, desk);
    } catch (const std::system_error& error) {
      fail<Unavailable>("[pipeline] there is no thread for microbatch ", number, ": ", error.what());
    }
    desks_.push_back(std::move(desk));
  }
  const std::lock_guard lock(desks_[number]->mutex);
  desks_[number]->passage = std::move(passage);
  desks_[number]->busy = true;
  desks_[number]->wake.notify_all();
}

bool PassageThreads::wait(std::size_t count, std::chrono::milliseconds limit) {
  const Deadline deadline(limit);
  for (std::size_t i = 0; i < count; ++i) {
    std::unique_lock lock(desks_[i]->mutex);
    if (!desks_[i]->idle.wait_until(lock, deadline.when(), [&] { return !desks_[i]->busy; })) return false;
  }
  return true;
}

void PassageThreads::serve(const std::shared_ptr<Desk>& desk) {
  constexpr std::chrono::minutes kIdle(1);  // every wait has an end
  leave_out_own_spans();
  // From 2.0 on LibTorch keeps casts for all threads: a microbatch would get one that is in another one's graph.
  at::autocast::set_autocast_cache_enabled(false);
  while (true) {
    std::shared_ptr<Passage> passage;
    {
      std::unique_lock lock(desk->mutex);
      desk->wake.wait_for(lock, kIdle, [&] { return desk->passage != nullptr || desk->stop; });
      passage = std::move(desk->passage);
      if (passage == nullptr && desk->stop) return;
    }
    if (passage == nullptr) continue;
    passage->serve();
    {
      const std::lock_guard lock(desk->mutex);
      desk->busy = false;
    }
    desk->idle.notify_all();
  }
}

}  // namespace cohort
