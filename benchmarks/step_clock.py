"""What steps are timed by. COHORT_BENCH_CLOCK=processor takes the processor time of all threads of the process, which other programs do not
lengthen, where it has one core (as bench.h does)."""
import os
import time

clock = time.process_time if os.environ.get("COHORT_BENCH_CLOCK") == "processor" else time.perf_counter
