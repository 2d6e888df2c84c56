// The functions that a plugin calls: C functions, out of which no exception may come.
#include "wings/xla/device/processes.h"

#include <algorithm>
#include <string_view>

#include "cohort/error.h"

namespace cohort {

namespace {

constexpr const char* kPrefix = "xla/plugin/";  // of the plugin's keys among those of the cluster

template <typename Args>
XlaProcesses& processes_of(const Args& args) {
  return *static_cast<XlaProcesses*>(args.user_arg);
}

template <typename Args>
std::string key_of(const Args& args) {
  return kPrefix + std::string(args.key, args.key_size);
}

template <typename Args>
void give(Args& args, const std::string& value) {
  args.value = new char[std::max<std::size_t>(value.size(), 1)];  // NOLINT: the deleter below frees it
  std::copy(value.begin(), value.end(), args.value);
  args.value_size = value.size();
  args.value_deleter_callback = [](char* given) { delete[] given; };  // NOLINT
}

template <typename Args>
pjrt::Error* refuse(const Args& args, pjrt::ErrorCode code, std::string_view message) {
  return (*args.callback_error)(code, message.data(), message.size());
}

// Calls fn and makes the plugin's error of what it throws.
template <typename Args, typename Fn>
pjrt::Error* answer(Args& args, const Fn& fn) noexcept {
  try {
    return fn();
  } catch (const DeadlineExceeded& error) {
    return refuse(args, pjrt::kDeadlineExceeded, error.what());
  } catch (const Unavailable& error) {
    return refuse(args, pjrt::kUnavailable, error.what());
  } catch (const InvalidArgument& error) {
    return refuse(args, pjrt::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return refuse(args, pjrt::kInternal, error.what());
  }
}

pjrt::Error* get(pjrt::KeyValueGetCallbackArgs* args) {
  return answer(*args, [&]() -> pjrt::Error* {
    give(*args, processes_of(*args).get(key_of(*args), std::chrono::milliseconds(args->timeout_in_ms)));
    return nullptr;
  });
}

pjrt::Error* try_get(pjrt::KeyValueTryGetCallbackArgs* args) {
  return answer(*args, [&]() -> pjrt::Error* {
    const std::string key = key_of(*args);
    const std::optional<std::string> value = processes_of(*args).try_get(key);
    if (!value) return refuse(*args, pjrt::kNotFound, "[xla] nobody has put " + key);
    give(*args, *value);
    return nullptr;
  });
}

pjrt::Error* put(pjrt::KeyValuePutCallbackArgs* args) {
  return answer(*args, [&]() -> pjrt::Error* {
    processes_of(*args).put(key_of(*args), std::string(args->value, args->value_size));
    return nullptr;
  });
}

}  // namespace

void offer_store(XlaProcesses& processes, pjrt::ClientCreateArgs& args) {
  args.kv_get_callback = get;
  args.kv_put_callback = put;
  args.kv_try_get_callback = try_get;
  args.kv_get_user_arg = args.kv_put_user_arg = args.kv_try_get_user_arg = &processes;
}

}  // namespace cohort
