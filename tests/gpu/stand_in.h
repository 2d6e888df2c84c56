// Cards that stand in for GPUs where there are none: devices of a type of LibTorch's that nobody else uses here (VE),
// in the host's memory, whose operations are the CPU's. To a program they are what cards are: tensors of theirs do not
// go together with tensors of the host, backward has threads of its own for each of them, and a value that the host
// wants has to be waited for. They count how often that happens. Kernels
// of ours that a card has are the host's here.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::gpu {

// A type that LibTorch does not count among its accelerators. Autograd takes the streams of those from CUDA, if it was
// built with it, whether there is a driver or not.
constexpr c10::DeviceType kCard = c10::DeviceType::VE;

// Returns why this LibTorch cannot train on the stand-in, or nothing if it can. Tries it in a process of its own.
std::string what_refuses_stand_in();

// Makes `cards` devices of the type "GPU", in the place of those that the machine has. The first call decides how many
// there are. Has to come before the first backward of the process, and before its devices are asked for.
void stand_in_for_cards(int cards);

// Returns how often the host has waited for a card: for a value (item(), nonzero(), a mask as an index), for a number
// that was fetched (DeviceBackend) before the card had work of the next step, for a copy between host and card that was
// not said to be non_blocking, or for the copies of a stream (DeviceStream::synchronize).
int64_t synchronisations();

// Returns how much the cards were given to do so far: operations, also those that make views, kernels, copies, and
// segments of graphs, of which each is one.
int64_t works_given();
// Returns how many of them were segments of graphs.
int64_t segments_given();

// Returns how often memory of the host was page-locked for copies to a card.
int64_t page_locks();

// Strategies made from now on find card i near processor i of the host; or, with false, near all alike.
void put_cards_near_processors(bool near);

// Notes which streams the calling thread has wait for which others, while it lives; 0 is the default stream.
class StreamWaits {
 public:
  StreamWaits();
  StreamWaits(const StreamWaits&) = delete;
  StreamWaits& operator=(const StreamWaits&) = delete;
  ~StreamWaits();

  // Returns them in order, the one that waits first.
  const std::vector<std::pair<int64_t, int64_t>>& list() const { return list_; }

 private:
  std::vector<std::pair<int64_t, int64_t>> list_;
};

// A card has so many bytes more than it holds now, while it lives; an operation that wants more throws.
class FewBytesMore {
 public:
  explicit FewBytesMore(int64_t bytes);
  FewBytesMore(const FewBytesMore&) = delete;
  FewBytesMore& operator=(const FewBytesMore&) = delete;
  ~FewBytesMore();
};

// Writes each synchronisation to the standard error stream, with the operation and where it was called, while it lives.
class TellsSynchronisations {
 public:
  TellsSynchronisations();
  TellsSynchronisations(const TellsSynchronisations&) = delete;
  TellsSynchronisations& operator=(const TellsSynchronisations&) = delete;
  ~TellsSynchronisations();
};

}  // namespace cohort::gpu
