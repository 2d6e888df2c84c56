// The ignored signals have to be noted before the first library is initialised, so the function stands in
// .preinit_array. No library and no sanitizer is initialised when it runs.
#include "ignored_signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

namespace cohort::cli {

namespace {

constexpr int kSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2};

bool ignored_at_start[NSIG];

// The structure of the system call itself, because a sanitizer intercepts the library's sigaction().
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

__attribute__((no_sanitize("address", "thread", "undefined"))) void note_ignored(int /*argc*/, char** /*argv*/,
                                                                                 char** /*environment*/) {
  for (const int signal : kSignals) {
    KernelAction now;
    if (::syscall(SYS_rt_sigaction, signal, nullptr, &now, sizeof(now.mask)) == 0) {
      ignored_at_start[signal] = now.handler == SIG_IGN;
    }
  }
}

__attribute__((section(".preinit_array"), used)) void (*const note_first)(int, char**, char**) = note_ignored;

}  // namespace

void ignore_signals_again() {
  for (const int signal : kSignals) {
    if (ignored_at_start[signal]) ::signal(signal, SIG_IGN);
  }
}

}  // namespace cohort::cli
