// KnownNumbers: what decides what a part of the protocol does from now on, as numbers of several kinds. Numbers of most
// kinds are compared with others of their kind alone, and a new one is larger than all before it. So two clusters whose
// numbers differ, but neither in their order nor in what is plain, go on alike. The explorer of the tests tells states
// apart by this.
#pragma once

#include <cstdint>
#include <vector>

#include "messages.pb.h"

namespace cohort {

class KnownNumbers {
 public:
  static constexpr uint64_t kPlain = 0;
  struct Number {
    uint64_t kind = kPlain;  // kPlain: it counts as it is
    uint64_t value = 0;      // 0 stands for itself in all kinds
  };

  void add(int64_t value) { numbers_.push_back({.value = static_cast<uint64_t>(value)}); }
  void add_epoch(uint64_t epoch) { numbers_.push_back({kind_of(Family::kEpoch, 0), epoch}); }
  // Adds the number of a view of this epoch, or a term, which is such a number.
  void add_view(uint64_t epoch, uint64_t number) { numbers_.push_back({kind_of(Family::kView, epoch), number}); }
  // Adds the process of a server.
  void add_process(int server, uint64_t process) {
    numbers_.push_back({kind_of(Family::kProcess, static_cast<uint64_t>(server)), process});
  }
  // Adds the serial of a fill that the coordinator of this epoch orders.
  void add_fill_serial(uint64_t epoch, uint64_t serial) {
    numbers_.push_back({kind_of(Family::kFillSerial, epoch), serial});
  }
  // Adds the serial of a copy that a server makes.
  void add_copy_serial(uint64_t serial) { numbers_.push_back({kind_of(Family::kCopySerial, 0), serial}); }
  // Adds the roles of a view, without the rates that it carries.
  void add(const parameter_server::View& view) {
    add_epoch(view.epoch());
    add_view(view.epoch(), view.number());
    for (const auto& home : view.homes()) {
      add_server(home.primary(), home.primary_process());
      add_server(home.backup(), home.backup_process());
      add_server(home.joining(), home.joining_process());
      add_view(view.epoch(), home.term());
    }
  }

  const std::vector<Number>& list() const { return numbers_; }

 private:
  enum class Family : uint64_t { kEpoch = 1, kView, kProcess, kFillSerial, kCopySerial };
  static uint64_t kind_of(Family family, uint64_t member) { return static_cast<uint64_t>(family) << 56 | member; }

  void add_server(int server, uint64_t process) {
    add(server);
    if (server >= 0) add_process(server, process);
  }

  std::vector<Number> numbers_;
};

}  // namespace cohort
