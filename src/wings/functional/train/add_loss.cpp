#include "cohort/train/add_loss.h"

#include "base/fail.h"
#include "strategy/divided.h"
#include "train/model/model_state.h"

namespace cohort {

void add_loss(const torch::Tensor& term) {
  if (!term.defined() || !term.is_floating_point()) {
    fail<InvalidArgument>("[model] add_loss: the term is ",
                          term.defined() ? c10::str(term.scalar_type(), term.sizes()) : "undefined",
                          ", wanted a floating-point tensor");
  }
  LossTerms* const terms = LossTerms::innermost;
  if (terms == nullptr) return;
  if (terms->learns && !torch::GradMode::is_enabled()) {
    fail<FailedPrecondition>("[model] add_loss: the term would have no gradients: it is computed within Checkpointed, ",
                             "or under a NoGradGuard; add it outside of them");
  }
  terms->list.push_back(whole_of(term.dim() == 0 ? term : term.sum()));
}

}  // namespace cohort
