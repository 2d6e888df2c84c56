#include "collective/local/alone.h"

#include "base/fail.h"

namespace cohort {

namespace {

class Alone final : public Wire {
 public:
  std::string_view name() const override { return "alone"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  Ticket send(int to, std::span<const std::byte> /*bytes*/) override { no_rank(to); }
  Ticket receive(int from, std::span<std::byte> /*bytes*/) override { no_rank(from); }
  void wait(Ticket /*ticket*/) override {}
  void drop() noexcept override {}
  void abort() noexcept override {}

 private:
  [[noreturn]] static void no_rank(int rank) {
    fail<InvalidArgument>("[collective] a message between this process, which is alone, and rank ", rank);
  }
};

}  // namespace

std::unique_ptr<Wire> make_alone() {
  return std::make_unique<Alone>();
}

}  // namespace cohort
