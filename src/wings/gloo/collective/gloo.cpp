// Gloo's own algorithms, over connections of its own: a ring for sums, a ring for gathering, a tree for copies. Gloo
// takes pointers into CPU tensors.
#include "wings/gloo/collective/gloo.h"

#include <ATen/Functions.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"

namespace cohort {

namespace {

// Gloo may hold on to it for as long as its context lives.
class KeyValues final : public gloo::rendezvous::Store {
 public:
  explicit KeyValues(Meeting meeting) : meeting_(std::move(meeting)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    meeting_.put(meeting_.prefix + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = meeting_.get(meeting_.prefix + key, meeting_.timeout);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, meeting_.timeout); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) (void)meeting_.get(meeting_.prefix + key, timeout);
  }

 private:
  Meeting meeting_;
};

// Calls `with` with a number of the C++ type that has this dtype.
template <typename With>
void with_type_of(torch::ScalarType dtype, const With& with) {
  if (dtype == torch::kFloat) return with(float{});
  if (dtype == torch::kDouble) return with(double{});
  return with(int64_t{});
}

class GlooEngine final : public Engine {
 public:
  explicit GlooEngine(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  // Gloo adds halves as halves, which rounds every time.
  bool adds(torch::ScalarType dtype) const override {
    return dtype == torch::kFloat || dtype == torch::kDouble || dtype == torch::kLong;
  }

  void all_reduce(const torch::Tensor& flat) override {
    with_type_of(flat.scalar_type(), [&](auto number) {
      using Number = decltype(number);
      using Function = void (*)(void*, const void*, const void*, std::size_t);
      gloo::AllreduceOptions options(context_);
      options.setOutput(flat.data_ptr<Number>(), static_cast<std::size_t>(flat.numel()));
      options.setReduceFunction(static_cast<Function>(&gloo::sum<Number>));
      options.setTag(++tag_);
      gloo::allreduce(options);
    });
  }

  // As PyTorch's Gloo does: by an all-reduce. Gloo's ReduceScatterHalvingDoubling moves a rank's sum over numbers that
  // it may still have to send (its sends are not waited for), so that with bad luck another rank gets wrong ones.
  void reduce_scatter(const std::vector<torch::Tensor>& parts, const torch::Tensor& sum) override {
    const torch::Tensor all = at::cat(parts);
    all_reduce(all);
    int64_t begin = 0;
    for (int rank = 0; rank < context_->rank; ++rank) begin += parts[static_cast<std::size_t>(rank)].numel();
    sum.copy_(all.narrow(0, begin, sum.numel()));
  }

  void all_gather(const torch::Tensor& own, const std::vector<int64_t>& sizes, const torch::Tensor& all) override {
    gloo::AllgathervOptions options(context_);
    options.setInput(static_cast<char*>(own.data_ptr()), own.nbytes());
    options.setOutput(static_cast<char*>(all.data_ptr()), std::vector<std::size_t>(sizes.begin(), sizes.end()));
    options.setTag(++tag_);
    gloo::allgatherv(options);
  }

  void broadcast(const torch::Tensor& bytes, int root) override {
    gloo::BroadcastOptions options(context_);
    options.setOutput(static_cast<char*>(bytes.data_ptr()), bytes.nbytes());
    options.setRoot(root);
    options.setTag(++tag_);
    gloo::broadcast(options);
  }

  // Gloo ends all that is under way in a context when a wait in it is out of time, so this waits for a message that
  // nobody sends.
  void abort() noexcept override {
    if (context_->size == 1) return;
    try {
      char nothing = 0;
      const auto buffer = context_->createUnboundBuffer(&nothing, 1);
      buffer->recv((context_->rank + 1) % context_->size, kNeverSent);
      buffer->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {  // as it is meant
    }
  }

 private:
  static constexpr uint64_t kNeverSent = uint64_t{0x7f} << 56;  // no collective's prefix (gloo/types.h)

  std::shared_ptr<gloo::Context> context_;
  uint32_t tag_ = 0;  // tells a call's messages from those of others
};

// Gloo writes to connections that the other side may have closed, which ends a program that has not said otherwise.
void survive_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

std::shared_ptr<gloo::transport::Device> make_device(const std::string& host) {
  survive_closed_connections();
  gloo::transport::tcp::attr where;
  where.hostname = host;
  return gloo::transport::tcp::CreateDevice(where);
}

// Waits until all ranks have all their connections. One that is connected and leaves at once would be gone while
// another still waits for its connection to it, for which Gloo has no other word than that it cannot connect.
void meet_all(const Meeting& meeting) {
  const std::string key = meeting.prefix + "connected";
  if (meeting.rank != 0) {
    meeting.put(c10::str(key, "/", meeting.rank), "yes");
    (void)meeting.get(key, meeting.timeout);
    return;
  }
  for (int rank = 1; rank < meeting.size; ++rank) (void)meeting.get(c10::str(key, "/", rank), meeting.timeout);
  if (meeting.size > 1) meeting.put(key, "yes");
}

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(const Meeting& meeting) {
  try {
    std::shared_ptr<gloo::transport::Device> device = make_device(meeting.host);
    auto context = std::make_shared<gloo::rendezvous::Context>(meeting.rank, meeting.size);
    context->setTimeout(meeting.timeout);
    compat::connect_full_mesh(*context, std::make_shared<KeyValues>(meeting), device);
    meet_all(meeting);
    return std::make_unique<GlooEngine>(std::move(context));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail<Unavailable>("[collective] gloo: rank ", meeting.rank, " at ", meeting.host,
                      " cannot connect: ", error_text(error));
  }
}

}  // namespace cohort
