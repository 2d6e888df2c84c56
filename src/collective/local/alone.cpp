#include "collective/local/alone.h"

#include "base/fail.h"

namespace cohort {

namespace {

class Alone final : public Transport {
 public:
  std::string_view name() const override { return "alone"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> /*bytes*/, Lane /*lane*/) override { no_rank(to); }
  std::unique_ptr<Message> receive(int from, std::span<std::byte> /*bytes*/, Lane /*lane*/) override { no_rank(from); }
  std::unique_ptr<Transport> subset(std::span<const int> /*ranks*/, const std::string& /*name*/) override {
    return make_alone();
  }
  void abort() noexcept override {}

 private:
  [[noreturn]] static void no_rank(int rank) {
    fail<InvalidArgument>("[collective] a message between this process, which is alone, and rank ", rank);
  }
};

}  // namespace

std::unique_ptr<Transport> make_alone() {
  return std::make_unique<Alone>();
}

}  // namespace cohort
