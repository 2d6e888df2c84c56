// The signals that were ignored when this program was started.
#pragma once

namespace cohort::cli {

// Ignores again the signals that were ignored when the program was started: SIGHUP under nohup, SIGINT in a script's
// background. main() calls it first, because libraries that are loaded with LibTorch set handlers (on Debian 13 for
// SIGHUP).
void ignore_signals_again();

}  // namespace cohort::cli
