// PlanExtras: what a wing keeps with a plan and the core need not know, one value of each type.
#pragma once

#include <any>
#include <map>
#include <typeindex>

namespace cohort {

class PlanExtras {
 public:
  // Returns the value of a type, made with its defaults if there is none.
  template <typename T>
  T& get() {
    std::any& kept = kept_[typeid(T)];
    if (!kept.has_value()) kept = T{};
    return *std::any_cast<T>(&kept);
  }
  // Returns the value of a type; its defaults if there is none.
  template <typename T>
  const T& of() const {
    static const T defaults{};
    const auto found = kept_.find(typeid(T));
    return found == kept_.end() ? defaults : *std::any_cast<T>(&found->second);
  }

 private:
  std::map<std::type_index, std::any> kept_;
};

}  // namespace cohort
