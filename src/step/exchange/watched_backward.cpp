#include "step/exchange/watched_backward.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "strategy/own_hook.h"

namespace cohort {

namespace {

// Called when the gradient of one parameter is complete.
class Hook final : public OwnHook {
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

// LibTorch lets a gradient that leaves a pass be added on the stream that was current when its accumulator was made.
// One that is kept would take a backward pass that is captured in a graph to the default stream, where nothing can be
// captured. So on devices the accumulators are those of each pass, which its forward has made, or this makes.
WatchedBackward::WatchedBackward(FlatParameters& flat, Came came)
    : flat_(flat), watch_(std::make_shared<Watch>()), hooks_each_pass_(!flat.tensors(0).front().is_cpu()) {
  watch_->came = std::move(came);
  watch_->on.assign(flat.groups().front().copies.size(), 0);
  if (hooks_each_pass_) return;
  for (std::size_t r = 0; r < watch_->on.size(); ++r) {
    const Accumulators own = hook(static_cast<int>(r), watch_);
    accumulators_.insert(accumulators_.end(), own.begin(), own.end());
  }
}

WatchedBackward::Accumulators WatchedBackward::hook(int local_id, const std::shared_ptr<Watch>& watch) const {
  Accumulators made;
  const std::vector<torch::Tensor>& tensors = flat_.tensors(local_id);
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    compat::GradAccumulator accumulator = torch::autograd::impl::grad_accumulator(tensors[p]);
    accumulator->add_post_hook(std::make_unique<Hook>([weak = std::weak_ptr(watch), local_id, p] {
      const auto alive = weak.lock();
      if (alive && alive->on[static_cast<std::size_t>(local_id)] != 0) alive->came(local_id, p);
    }));
    made.push_back(std::move(accumulator));
  }
  return made;
}

void WatchedBackward::run(int local_id, const torch::Tensor& loss) {
  if (hooks_each_pass_) {
    const auto own = std::make_shared<Watch>(Watch{.came = watch_->came, .on = watch_->on});
    own->on[static_cast<std::size_t>(local_id)] = 1;
    const Accumulators held = hook(local_id, own);
    flat_.backward(local_id, loss);
    return;
  }
  char& on = watch_->on[static_cast<std::size_t>(local_id)];
  on = 1;
  try {
    flat_.backward(local_id, loss);
  } catch (...) {
    on = 0;
    throw;
  }
  on = 0;
}

}  // namespace cohort
