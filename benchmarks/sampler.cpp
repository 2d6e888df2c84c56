// A timer of real time for each thread sends it a signal at random moments; the handler keeps the addresses of the
// stack. Nobody looks at names before all is done, and then the driver does (profile_step.py).
#include "sampler.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>
#include <system_error>

namespace cohort::bench {

namespace {

constexpr int kFrames = 48;
constexpr int kHandlerFrames = 2;  // the handler's, and the one that returns from it
constexpr std::size_t kMostSamples = 100'000;
constexpr uint32_t kMeanNanoseconds = 500'000;

struct Sample {
  int frames = 0;
  std::array<void*, kFrames> addresses{};
};

// From half to one and a half of the mean, so that the samples do not keep step with what they look at.
itimerspec once(uint32_t random) {
  return {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kMeanNanoseconds / 2 + random % kMeanNanoseconds}};
}

void require(bool done, const char* what) {
  if (!done) throw std::system_error(errno, std::generic_category(), what);
}

// Returns the name of the file that an address comes from, and the address in that file.
std::pair<std::string, std::uintptr_t> place_of(void* address) {
  Dl_info info{};
  link_map* library = nullptr;
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0 || library == nullptr) {
    return {"", 0};
  }
  const std::string file = library->l_name[0] != '\0' ? library->l_name : "/proc/self/exe";
  return {file, reinterpret_cast<std::uintptr_t>(address) - library->l_addr};
}

}  // namespace

class Sampler::Impl {
 public:
  explicit Impl(const std::vector<pid_t>& threads) : timers_(threads.size()) {
    std::array<void*, 1> loads_what_it_needs{};
    ::backtrace(loads_what_it_needs.data(), 1);
    struct sigaction action {};
    action.sa_sigaction = &take_sample;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    require(::sigaction(SIGPROF, &action, &before_) == 0, "SIGPROF");
    for (std::size_t i = 0; i < threads.size(); ++i) {
      timers_[i].samples = this;
      sigevent event{};
      event.sigev_notify = SIGEV_THREAD_ID;
      event.sigev_signo = SIGPROF;
      event.sigev_value.sival_ptr = &timers_[i];
      event._sigev_un._tid = threads[i];  // glibc 2.36 has no other name for it
      require(::timer_create(CLOCK_MONOTONIC, &event, &timers_[i].id) == 0, "timer_create");
      timers_[i].made = true;
      start(timers_[i]);
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { end(); }

  void finish(std::ostream& out) {
    end();
    std::vector<std::string> libraries;
    out << "{\"stacks\": [";
    const std::size_t count = std::min(count_.load(), kMostSamples);
    for (std::size_t i = 0; i < count; ++i) {
      out << (i == 0 ? "[" : ", [");
      for (int frame = kHandlerFrames; frame < samples_[i].frames; ++frame) {
        const auto [file, address] = place_of(samples_[i].addresses[static_cast<std::size_t>(frame)]);
        const auto found = std::find(libraries.begin(), libraries.end(), file);
        const auto number = file.empty() ? -1 : found - libraries.begin();
        if (!file.empty() && found == libraries.end()) libraries.push_back(file);
        out << (frame == kHandlerFrames ? "[" : ", [") << number << ", " << address << "]";
      }
      out << "]";
    }
    out << "], \"libraries\": [";
    for (const std::string& file : libraries) out << (&file == libraries.data() ? "\"" : ", \"") << file << "\"";
    out << "]}\n";
  }

 private:
  struct Timer {
    Impl* samples = nullptr;
    timer_t id{};
    bool made = false;
  };

  // Does only what a signal may do at any moment.
  static void take_sample(int /*signal*/, siginfo_t* info, void* /*context*/) {
    const int error = errno;
    const Timer& timer = *static_cast<const Timer*>(info->si_value.sival_ptr);
    Impl& all = *timer.samples;
    if (const std::size_t at = all.over_ ? kMostSamples : all.count_.fetch_add(1); at < kMostSamples) {
      all.samples_[at].frames = ::backtrace(all.samples_[at].addresses.data(), kFrames);
      all.start(timer);
    }
    errno = error;
  }

  void start(const Timer& timer) {
    const itimerspec next = once(random_.fetch_add(2'654'435'769U) >> 4U);
    ::timer_settime(timer.id, 0, &next, nullptr);
  }

  void end() {
    if (over_.exchange(true)) return;
    for (const Timer& timer : timers_) {
      if (timer.made) ::timer_delete(timer.id);
    }
    ::usleep(10'000);  // for handlers that have begun
    ::sigaction(SIGPROF, &before_, nullptr);
  }

  std::vector<Timer> timers_;
  std::vector<Sample> samples_{kMostSamples};
  std::atomic<std::size_t> count_{0};
  std::atomic<uint32_t> random_{12'345};
  std::atomic<bool> over_{false};
  struct sigaction before_ {};
};

Sampler::Sampler(const std::vector<pid_t>& threads) : impl_(std::make_unique<Impl>(threads)) {}
Sampler::~Sampler() = default;

void Sampler::finish(std::ostream& out) {
  impl_->finish(out);
}

}  // namespace cohort::bench
