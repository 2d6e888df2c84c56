// What whoever started this program wants ignored.
#pragma once

namespace cohort::cli {

// Ignores again what was ignored when the program was started: SIGHUP under nohup, SIGINT in a script's background. For
// the beginning of main(): libraries that are loaded with LibTorch set handlers of their own (SIGHUP, by Debian 13's).
void ignore_signals_again();

}  // namespace cohort::cli
