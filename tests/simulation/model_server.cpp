#include "tests/simulation/model_server.h"

#include <utility>

#include "base/fail.h"

namespace cohort::simulation {

using model::Holding;

void ModelServer::answer(const Message& request, Flight& flight, const Holding& state) {
  if (request.awaited) flight.push_back(model::answer_to(request, /*ok=*/true, /*refused=*/false, state));
}

void ModelServer::handle(const Message& message, Flight& flight) {
  try {
    switch (message.kind) {
      case Message::Kind::kPush:
        return push(message, flight);
      case Message::Kind::kReplicate:
        return replicate(message, flight);
      case Message::Kind::kSetView:
        set_view(message.view);
        return answer(message, flight);
      default:
        return obey_order(message, flight);
    }
  } catch (const FailedPrecondition&) {
    if (message.awaited) flight.push_back(model::answer_to(message, /*ok=*/false, /*refused=*/true));
  } catch (const Error&) {
    if (message.awaited) flight.push_back(model::answer_to(message, /*ok=*/false));
  }
}

void ModelServer::obey_order(const Message& message, Flight& flight) {
  fence_.obey(message.order);
  if (message.kind == Message::Kind::kFill || message.kind == Message::Kind::kInstall) {
    fence_.require_fill(message.order, message.home, message.term);
    homes_[message.home] = message.state;
    return answer(message, flight);
  }
  if (message.kind == Message::Kind::kCopy) return copy(message, flight);
  fence_.require_view(message.order.epoch(), message.order.view());
  if (message.kind == Message::Kind::kState) {
    (void)fence_.require_primary(message.home);
    if (!homes_.contains(message.home)) fail<Unavailable>("it is not here");
    return answer(message, flight, homes_.at(message.home));
  }
  for (auto& [home, holding] : homes_) {
    if (fence_.has(fence_.view().homes(home))) holding.log.forget_below(message.closure);
  }
  answer(message, flight);
}

void ModelServer::set_view(const model::View& view) {
  fence_.obey(model::order_of(view.epoch(), view.number()));
  if (!fence_.is_later(view)) return;
  for (int home = 0; home < view.homes_size(); ++home) {
    if (fence_.has(view.homes(home)) && !homes_.contains(home)) fail<FailedPrecondition>("it is not here");
  }
  for (int home = 0; home < view.homes_size(); ++home) {
    if (!fence_.stays(view, home)) homes_.erase(home);
  }
  fence_.take(view);
}

// Begins a copy. Updates of the home wait until it has ended.
void ModelServer::copy(const Message& request, Flight& flight) {
  const model::View::Home place = fence_.require_copy(request.order, request.home, request.term);
  if (copying_ >= 0 || !homes_.contains(request.home)) fail<Unavailable>("it is busy, or not here");
  copying_ = request.home;
  copy_for_ = request.awaited ? request.from : -1;
  Message install{.kind = Message::Kind::kInstall,
                  .from = number(),
                  .to = model::kFirstServer + place.joining(),
                  .home = request.home,
                  .term = request.term,
                  .order = model::order_of(request.order.epoch(), /*view=*/0, place.joining_process()),
                  .state = homes_.at(request.home)};
  install.order.set_serial(serial_);
  flight.push_back(std::move(install));
}

void ModelServer::push(const Message& request, Flight& flight) {
  fence_.require_view(request.order.epoch(), request.order.view());
  const model::View::Home place = fence_.require_primary(request.home);
  if (copying_ == request.home && without_ != Mend::kWaitForCopy) fail<Unavailable>("it is being copied");
  if (!homes_.contains(request.home)) fail<Unavailable>("it is not here");
  homes_.at(request.home).add(request.closure);
  int left = 0;
  for (const int other : {place.backup(), place.joining()}) {
    if (other < 0 || (other == place.joining() && without_ == Mend::kPassOn)) continue;
    ++left;
    flight.push_back({.kind = Message::Kind::kReplicate,
                      .from = number(),
                      .to = model::kFirstServer + other,
                      .awaited = request.awaited,
                      .home = request.home,
                      .closure = request.closure,
                      .order = request.order});
  }
  if (left == 0 || !request.awaited) return answer(request, flight);
  left_ = left;
  failed_ = false;
}

void ModelServer::replicate(const Message& request, Flight& flight) {
  fence_.require_view(request.order.epoch(), request.order.view());
  const bool is_here = homes_.contains(request.home);
  if (fence_.require_backup(request.home) && (is_here || !fence_.joins(fence_.view().homes(request.home)))) {
    if (!is_here) fail<Unavailable>("it is not here");
    homes_.at(request.home).add(request.closure);
  }
  answer(request, flight);
}

void ModelServer::hear(const Message& answer, Flight& flight) {
  if (answer.answered == Message::Kind::kInstall) {
    copying_ = -1;
    if (answer.given_up) ++serial_;
    if (copy_for_ < 0) return;
    flight.push_back({.answered = Message::Kind::kCopy, .from = number(), .to = copy_for_, .ok = answer.ok});
    copy_for_ = -1;
    return;
  }
  if (left_ == 0) return;
  failed_ = failed_ || !answer.ok;
  if (--left_ > 0) return;
  flight.push_back({.answered = Message::Kind::kPush, .from = number(), .to = model::kWorker, .ok = !failed_});
}

void ModelServer::end(Flight& flight) const {
  if (left_ > 0) flight.push_back({.answered = Message::Kind::kPush, .from = number(), .to = model::kWorker});
  if (copy_for_ >= 0) flight.push_back({.answered = Message::Kind::kCopy, .from = number(), .to = copy_for_});
}

bool ModelServer::is_dead(const Message& message, bool last) const {
  const model::Order& order = message.order;
  const model::View& view = fence_.view();
  if (order.process() != 0 && order.process() != fence_.process()) return true;
  if (!last) return false;
  const std::pair present(view.epoch(), view.number());
  if (message.kind == Message::Kind::kSetView) {
    const std::pair later(message.view.epoch(), message.view.number());
    return message.view.epoch() < fence_.epoch() || later <= present;
  }
  if (order.epoch() < fence_.epoch()) return true;
  if (message.kind == Message::Kind::kCopy || message.kind == Message::Kind::kInstall) {
    return order.epoch() == view.epoch() && view.homes(message.home).term() > message.term;
  }
  return std::pair(order.epoch(), order.view()) < present;
}

void ModelServer::put_in(KnownNumbers& numbers) const {
  numbers.add_copy_serial(serial_);
  model::put(numbers, copying_, copy_for_, left_, left_ > 0 && failed_, homes_.size());
  fence_.put_in(numbers);
  for (const auto& [home, holding] : homes_) {
    model::put(numbers, home);
    holding.put_in(numbers);
  }
}

}  // namespace cohort::simulation
