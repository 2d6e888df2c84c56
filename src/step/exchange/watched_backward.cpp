#include "step/exchange/watched_backward.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace cohort {

namespace {

// Called when the gradient of one parameter is complete.
class Hook final : public torch::autograd::FunctionPostHook {
 public:
  explicit Hook(std::function<void()> fn) : fn_(std::move(fn)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    fn_();
    return outputs;
  }

 private:
  std::function<void()> fn_;
};

}  // namespace

WatchedBackward::WatchedBackward(FlatParameters& flat, Came came) : watch_(std::make_shared<Watch>()) {
  watch_->came = std::move(came);
  watch_->on.assign(flat.groups().front().copies.size(), 0);
  for (std::size_t r = 0; r < watch_->on.size(); ++r) {
    const auto local_id = static_cast<int>(r);
    const std::vector<torch::Tensor>& tensors = flat.tensors(local_id);
    for (std::size_t p = 0; p < tensors.size(); ++p) {
      compat::GradAccumulator accumulator = torch::autograd::impl::grad_accumulator(tensors[p]);
      accumulator->add_post_hook(std::make_unique<Hook>([watch = std::weak_ptr(watch_), local_id, p] {
        const auto alive = watch.lock();
        if (alive && alive->on[static_cast<std::size_t>(local_id)] != 0) alive->came(local_id, p);
      }));
      accumulators_.push_back(std::move(accumulator));
    }
  }
}

void WatchedBackward::run(int local_id, const torch::Tensor& loss) {
  char& on = watch_->on[static_cast<std::size_t>(local_id)];
  on = 1;
  try {
    loss.backward();
  } catch (...) {
    on = 0;
    throw;
  }
  on = 0;
}

}  // namespace cohort
