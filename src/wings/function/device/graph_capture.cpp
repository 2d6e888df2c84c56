#include "wings/function/device/graph_capture.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "device/backend.h"
#include "wings/function/device/watched_operations.h"

namespace cohort {

// The calling thread captures while it lives.
class GraphCapture::Watching {
 public:
  Watching(GraphCapture& capture, const std::shared_ptr<WatchedOperations>& operations) : watch_(operations) {
    make_current(&capture);
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  ~Watching() { make_current(nullptr); }

 private:
  OperationWatch watch_;
};

void CapturedWork::act(const std::vector<HostStage>& all) {
  for (const HostStage& each : all) each.act();
}

// All that the segment needs has been given to the device before others wait for it there.
void CapturedWork::launch(const Stage& stage) const {
  if (!stage.segment) return;
  const auto replay = [&] { graph_->replay(*stage.segment); };
  stage.company ? stage.company->launch(replay) : replay();
}

bool CapturedWork::run() {
  const auto first =
      std::find_if(stages_.begin(), stages_.end(), [](const Stage& stage) { return stage.company != nullptr; });
  if (first != stages_.end() && !first->company->agree()) return false;
  for (const Stage& stage : stages_) {
    act(stage.before);
    launch(stage);
    act(stage.behind);
    if (stage.host.act) stage.host.act();
  }
  return true;
}

bool CapturedWork::is_current() const {
  const auto is_gone = [](const HostStage& host) { return host.owner && host.owner->expired(); };
  const auto has_gone = [&](const Stage& stage) {
    if (stage.company && !stage.company->is_whole()) return true;
    return is_gone(stage.host) || std::any_of(stage.before.begin(), stage.before.end(), is_gone) ||
           std::any_of(stage.behind.begin(), stage.behind.end(), is_gone);
  };
  return std::none_of(stages_.begin(), stages_.end(), has_gone) && found_.are_as_they_were();
}

GraphCapture::GraphCapture(torch::Device device, const std::vector<at::Generator>& generators, std::string what,
                           const StepEngine* steps)
    : device_(device), what_(std::move(what)), steps_(steps), operations_(std::make_shared<WatchedOperations>(device)) {
  work_.graph_ = backend_of(device).make_graph(device, generators);
  if (work_.graph_ == nullptr) {
    fail<Unimplemented>("[device] ", what_, " was to be captured as a graph, but ", device.str(), " has none");
  }
  work_.marker_ = at::zeros({1}, torch::dtype(torch::kFloat).device(device));
  begin();
}

GraphCapture::~GraphCapture() {
  watching_.reset();
  if (work_.graph_ != nullptr) work_.graph_->abandon();
}

GraphCapture* GraphCapture::current() {
  return dynamic_cast<GraphCapture*>(Tracer::current());
}

void GraphCapture::outside(const std::function<void()>& act) {
  Tracer* const tracer = make_current(nullptr);
  try {
    act();
  } catch (...) {
    make_current(tracer);
    throw;
  }
  make_current(tracer);
}

void GraphCapture::refuse(std::string_view what) const {
  fail<NotCapturable>("[function] ", what_, " cannot be captured as a graph of ", device_.str(), ": ", what,
                      " is what the host does with other replicas or processes");
}

void GraphCapture::begin() {
  work_.graph_->begin();
  watching_ = std::make_unique<Watching>(*this, operations_);
}

void GraphCapture::require_no_copies() const {
  const std::string copied = operations_->copied();
  if (copied.empty()) return;
  fail<NotCapturable>(
      "[function] ", what_, " cannot be captured as a graph of ", device_.str(), ": it copies ", copied,
      ", which a graph would do with the memory of now; make the tensor on the device, or give it as an "
      "argument");
}

void GraphCapture::end(HostStage host) {
  const bool has_work = operations_->take_count() > 0;
  {
    // A segment without work is none for LibTorch, which warns of it, and views are no work.
    const torch::NoGradGuard no_grad;
    if (segments_ > 0) work_.marker_.zero_();
  }
  (void)operations_->take_count();
  watching_.reset();
  work_.graph_->end();
  const std::size_t segment = segments_++;
  require_no_copies();
  if (const std::string changed = operations_->changed(); !changed.empty()) {
    fail<NotCapturable>("[function] ", what_, " cannot be captured as a graph of ", device_.str(), ": it changes ",
                        changed, ", whose value an operation of the device takes, which a graph would do with the one ",
                        "of now; keep the tensor on the device");
  }
  CapturedWork::Stage stage{.before = std::exchange(before_, {}),
                            .segment = has_work ? std::optional(segment) : std::nullopt,
                            .company = std::exchange(company_, nullptr),
                            .behind = std::exchange(behind_, {}),
                            .host = std::move(host)};
  act(stage.before);
  work_.launch(stage);
  act(stage.behind);
  work_.stages_.push_back(std::move(stage));
}

void GraphCapture::act(const std::vector<HostStage>& all) {
  in_part_ = true;
  CapturedWork::act(all);
  in_part_ = false;
}

void GraphCapture::part(HostStage host) {
  const std::vector<HostStage> own{host};
  end(std::move(host));
  act(own);
  begin();
}

void GraphCapture::join(std::shared_ptr<const GraphCompany> company) {
  company_ = std::move(company);
  has_joined_ = true;
}

void GraphCapture::before(HostStage host) {
  before_.push_back(std::move(host));
}

void GraphCapture::behind(HostStage host) {
  behind_.push_back(std::move(host));
}

std::shared_ptr<const void> GraphCapture::token() const {
  return operations_;
}

void GraphCapture::note_kernel(std::span<const torch::Tensor> tensors) {
  operations_->note_kernel(tensors);
}

torch::Tensor GraphCapture::number(const std::function<double()>& value, torch::ScalarType dtype,
                                   std::optional<std::weak_ptr<const void>> owner) {
  const auto number = std::make_shared<torch::Tensor>();
  const auto options = torch::dtype(dtype).device(device_);
  const auto set = [number, value, options] {
    const torch::NoGradGuard no_grad;
    const double now = value();
    if (number->defined()) {
      number->fill_(now);
    } else {
      *number = at::full({}, now, options);
    }
  };
  part({.act = set, .owner = std::move(owner)});
  return *number;
}

CapturedWork GraphCapture::finish() {
  end({});
  work_.found_ = operations_->take_found();
  return std::move(work_);
}

void GraphCapture::explain(const c10::Error& error) const {
  if (in_part_) return;
  require_no_copies();  // which LibTorch refuses, from some version on
  const std::string failed = operations_->failed();
  std::string reason = error.what_without_backtrace();
  reason.resize(std::min(reason.size(), reason.find('\n')));
  fail<NotCapturable>("[function] ", what_, " cannot be captured as a graph of ", device_.str(), ": ",
                      failed.empty() ? "an operation" : failed, " is refused there (", reason,
                      "); what waits for a value of the device, or takes one of the host, cannot be in a graph");
}

}  // namespace cohort
