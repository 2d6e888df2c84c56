// Loading plugins, and their errors. What a plugin exports is one table of functions; here is where each of its entries
// is looked at before it is called, and where each PJRT_Error becomes one of ours.
#include "wings/xla/device/plugin.h"

#include <dlfcn.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

#include "base/fail.h"
#include "base/log.h"
#include "wings/xla/device/within.h"

namespace cohort {

namespace {

// Puts the handlers of signals back to what they were when it was made. SIGPROF is not among them: libtpu runs a timer
// that sends it.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &handlers_[i]);
  }
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;
  ~KeptSignalHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &handlers_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                          SIGFPE, SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};

  std::array<struct sigaction, kSignals.size()> handlers_{};
};

// The plugins of this process. The loader has each library once, so this is one list, too.
struct LoadedPlugins {
  std::mutex mutex;
  std::map<std::filesystem::path, XlaPluginPtr> by_path;
};

LoadedPlugins& loaded_plugins() {
  static LoadedPlugins plugins;
  return plugins;
}

struct CodeRow {
  pjrt::ErrorCode code;
  const char* name;
  std::exception_ptr (*make)(const std::string&);
};

template <typename Kind>
std::exception_ptr made(const std::string& message) {
  return std::make_exception_ptr(Kind(message));
}

constexpr std::array kCodes = {
    CodeRow{pjrt::kCancelled, "CANCELLED", made<Cancelled>},
    CodeRow{pjrt::kUnknown, "UNKNOWN", made<Internal>},
    CodeRow{pjrt::kInvalidArgument, "INVALID_ARGUMENT", made<InvalidArgument>},
    CodeRow{pjrt::kDeadlineExceeded, "DEADLINE_EXCEEDED", made<DeadlineExceeded>},
    CodeRow{pjrt::kNotFound, "NOT_FOUND", made<NotFound>},
    CodeRow{pjrt::kAlreadyExists, "ALREADY_EXISTS", made<FailedPrecondition>},
    CodeRow{pjrt::kPermissionDenied, "PERMISSION_DENIED", made<FailedPrecondition>},
    CodeRow{pjrt::kResourceExhausted, "RESOURCE_EXHAUSTED, out of memory", made<FailedPrecondition>},
    CodeRow{pjrt::kFailedPrecondition, "FAILED_PRECONDITION", made<FailedPrecondition>},
    CodeRow{pjrt::kAborted, "ABORTED", made<Unavailable>},
    CodeRow{pjrt::kOutOfRange, "OUT_OF_RANGE", made<InvalidArgument>},
    CodeRow{pjrt::kUnimplemented, "UNIMPLEMENTED", made<Unimplemented>},
    CodeRow{pjrt::kInternal, "INTERNAL", made<Internal>},
    CodeRow{pjrt::kUnavailable, "UNAVAILABLE", made<Unavailable>},
    CodeRow{pjrt::kDataLoss, "DATA_LOSS", made<DataLoss>},
    CodeRow{pjrt::kUnauthenticated, "UNAUTHENTICATED", made<FailedPrecondition>},
};

// Returns the first word of a file of sysfs.
std::string word_of(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// Returns the plugin's table.
const pjrt::Api* table_of(const XlaPluginPlace& place) {
  // The handle is not closed: the library stays.
  void* const library = ::dlopen(place.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail<InvalidArgument>("[xla] ", place.path, " cannot be loaded: ", ::dlerror());
  const auto entry = reinterpret_cast<pjrt::GetPjrtApi>(::dlsym(library, "GetPjrtApi"));
  if (entry == nullptr) {
    fail<InvalidArgument>("[xla] ", place.path, " is not a plugin: it does not export GetPjrtApi");
  }
  const pjrt::Api* const api = entry();
  if (api == nullptr) fail<InvalidArgument>("[xla] ", place.path, " is not a plugin: GetPjrtApi returned null");
  const pjrt::ApiVersion& version = api->pjrt_api_version;
  if (version.major_version != pjrt::kMajor || version.minor_version < pjrt::kOldestMinor) {
    fail<Unimplemented>("[xla] the plugin ", place.name, " (", place.path.string(), ") has PJRT ",
                        version.major_version, ".", version.minor_version, ", wanted ", pjrt::kMajor, ".",
                        pjrt::kOldestMinor, " or a later ", pjrt::kMajor, ".x");
  }
  return api;
}

}  // namespace

bool may_have_tpu(const std::filesystem::path& devices) {
  constexpr std::string_view kGoogle = "0x1ae0";
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator(devices, none)) {
    if (word_of(device.path() / "vendor") != kGoogle) continue;
    const std::string kind = word_of(device.path() / "class");
    if (!kind.starts_with("0x01") && !kind.starts_with("0x02")) return true;  // neither a disk nor a network card
  }
  return false;
}

XlaPluginPtr XlaPlugin::load(const XlaPluginPlace& place, std::chrono::milliseconds limit) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(place.path, none)) {
    fail<NotFound>("[xla] there is no plugin ", place.path, place.source.empty() ? "" : ", which ", place.source,
                   place.source.empty() ? "" : " names");
  }
  XlaPluginPlace found = place;
  found.path = std::filesystem::canonical(place.path);
  if (!may_have_tpu()) {
    ::setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    ::setenv("TPU_WORKER_HOSTNAMES", "localhost", 0);
    ::setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
  }
  ::setenv("TF_CPP_MIN_LOG_LEVEL", "1", 0);
  return within<XlaPluginPtr>(limit, "the plugin " + found.path.string() + " to load", [found] { return open(found); });
}

XlaPluginPtr XlaPlugin::open(const XlaPluginPlace& place) {
  LoadedPlugins& loaded = loaded_plugins();
  const std::lock_guard lock(loaded.mutex);
  XlaPluginPtr& known = loaded.by_path[place.path];
  if (!known) {
    const KeptSignalHandlers kept;
    const std::shared_ptr<XlaPlugin> plugin(new XlaPlugin(place, table_of(place)));  // NOLINT: a private constructor
    plugin->initialize();
    known = plugin;
  }
  return known;
}

XlaPlugin::XlaPlugin(XlaPluginPlace place, const pjrt::Api* api)
    : name_(std::move(place.name)), path_(std::move(place.path)), api_(api) {
  const bool tells_errors = present(&api_->error_get_code) && api_->error_destroy != nullptr &&
                            api_->error_message != nullptr && api_->error_get_code != nullptr;
  if (!tells_errors) lacks("PJRT_Error_Message, or another one that tells errors");
}

void XlaPlugin::initialize() {
  pjrt::PluginInitializeArgs args;
  call(&pjrt::Api::plugin_initialize, "PJRT_Plugin_Initialize", args);
  if (!has(&pjrt::Api::plugin_attributes)) return;
  pjrt::PluginAttributesArgs told;
  call(&pjrt::Api::plugin_attributes, "PJRT_Plugin_Attributes", told);
  attributes_ = read_values(told.attributes, told.num_attributes);
}

std::string XlaPlugin::version() const {
  return c10::str(api_->pjrt_api_version.major_version, ".", api_->pjrt_api_version.minor_version);
}

bool XlaPlugin::present(const void* entry) const {
  const auto offset = static_cast<const char*>(entry) - reinterpret_cast<const char*>(api_);
  return static_cast<std::size_t>(offset) + sizeof(void*) <= api_->struct_size;
}

void XlaPlugin::lacks(std::string_view operation) const {
  fail<Unimplemented>(speaker(), " (PJRT ", version(), ") lacks the function ", operation);
}

std::exception_ptr XlaPlugin::error_of(pjrt::Error* error, const std::string& operation) const {
  if (error == nullptr) return nullptr;
  pjrt::ErrorMessageArgs told;
  told.error = error;
  api_->error_message(&told);
  const std::string message(told.message, told.message_size);
  pjrt::ErrorGetCodeArgs code;
  code.error = error;
  const bool known = api_->error_get_code(&code) == nullptr;
  pjrt::ErrorDestroyArgs destroyed;
  destroyed.error = error;
  api_->error_destroy(&destroyed);
  const std::string opening = speaker() + ": " + operation + " failed";
  for (const CodeRow& row : kCodes) {
    if (known && row.code == code.code) return row.make(c10::str(opening, " (", row.name, "): ", message));
  }
  return made<Internal>(c10::str(opening, " (code ", static_cast<int>(code.code), "): ", message));
}

void XlaPlugin::check(pjrt::Error* error, const char* operation) const {
  if (error != nullptr) std::rethrow_exception(error_of(error, operation));
}

void XlaPlugin::warn(pjrt::Error* error, const char* operation) const noexcept {
  if (error == nullptr) return;
  try {
    check(error, operation);
  } catch (const std::exception& failure) {
    log().warn("{}", failure.what());
  }
}

NamedValues::NamedValues(XlaOptions options) : options_(std::move(options)) {
  for (const auto& [name, value] : options_) {
    pjrt::NamedValue& each = values_.emplace_back();
    each.name = name.data();
    each.name_size = name.size();
    each.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&value)) {
      each.type = pjrt::kString;
      each.string_value = text->data();
      each.value_size = text->size();
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      each.type = pjrt::kInt64List;
      each.int64_array_value = list->data();
      each.value_size = list->size();
    } else if (const auto* whole = std::get_if<int64_t>(&value)) {
      each.type = pjrt::kInt64;
      each.int64_value = *whole;
    } else if (const auto* real = std::get_if<float>(&value)) {
      each.type = pjrt::kFloat;
      each.float_value = *real;
    } else {
      each.type = pjrt::kBool;
      each.bool_value = std::get<bool>(value);
    }
  }
}

XlaOptions read_values(const pjrt::NamedValue* values, std::size_t count) {
  XlaOptions read;
  for (std::size_t i = 0; i < count; ++i) {
    const pjrt::NamedValue& each = values[i];
    const std::string name(each.name, each.name_size);
    switch (each.type) {
      case pjrt::kString:
        read[name] = std::string(each.string_value, each.value_size);
        break;
      case pjrt::kInt64List:
        read[name] = std::vector<int64_t>(each.int64_array_value, each.int64_array_value + each.value_size);
        break;
      case pjrt::kInt64:
        read[name] = each.int64_value;
        break;
      case pjrt::kFloat:
        read[name] = each.float_value;
        break;
      case pjrt::kBool:
        read[name] = each.bool_value;
        break;
    }
  }
  return read;
}

}  // namespace cohort
