// Side streams of the stand-in's cards (stand_in.h): a thread each, which does its work late, so that a sum that is
// used without a wait for its point has the wrong values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/side_streams.h"

namespace cohort::gpu {

// Makes streams of so many cards. A wait for a point ends after 30 s, with an exception.
std::unique_ptr<SideStreams> make_late_streams(std::size_t cards);

// Returns how often work of such streams has been done.
int64_t late_works();

// Each work begins so late, while it lives.
class Late {
 public:
  explicit Late(std::chrono::milliseconds delay);
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  ~Late();
};

}  // namespace cohort::gpu
