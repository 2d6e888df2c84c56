// Gloo sums, gathers and copies; messages between two ranks, among them those by which all agree on a call, go over the
// core's own connections. So a call of Gloo's begins when all ranks have come to it, and what Gloo lacks (names of who
// is late, half types that are added up in float32) is there as over any other transport.
#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "collective/tcp/tcp.h"
#include "wings/gloo/collective/gloo.h"

namespace cohort {

namespace {

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(const Meeting& meeting)
      : meeting_(meeting), messages_(make_tcp(meeting)), engine_(make_gloo_engine(meeting)) {}

  std::string_view name() const override { return "gloo"; }
  int rank() const override { return meeting_.rank; }
  int size() const override { return meeting_.size; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    return messages_->send(to, bytes, lane);
  }
  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    return messages_->receive(from, bytes, lane);
  }

  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    Meeting meeting = meeting_;
    meeting.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    meeting.size = static_cast<int>(ranks.size());
    meeting.prefix += name + "/";
    return std::make_unique<GlooTransport>(meeting);
  }

  Engine* engine() override { return engine_.get(); }

  void abort() noexcept override {
    messages_->abort();
    engine_->abort();
  }

 private:
  Meeting meeting_;
  std::unique_ptr<Transport> messages_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

std::unique_ptr<Transport> make_gloo(const Meeting& meeting) {
  if (meeting.identity) {
    fail<InvalidArgument>("[collective] gloo: this job has a secret or certificates, and Gloo would take what any ",
                          "stranger sends it, because it comes without TLS; wanted implementation \"ring\", or a job ",
                          "without them (--insecure)");
  }
  return std::make_unique<GlooTransport>(meeting);
}

}  // namespace cohort
