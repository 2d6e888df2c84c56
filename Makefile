# Everything is one command: each target installs what it needs (packages of Debian 12 or newer), configures and builds.
#   make demo    train and evaluate; DATA_DIR=folder for the real MNIST, drawn digits otherwise
#   make test    build and run the tests
#   make tutorial  build the programs of docs/tutorial
#   make docs    the documentation as a site, build/docs/index.html
#   make lint    clang-tidy; LINT="src/base src/device" for some folders
# TORCH=folder: with the LibTorch of PyPI's torch (python3 -c 'import torch; print(*torch.__path__)'), any target.
JOBS ?= $(shell nproc)
DATA_DIR ?=
EPOCHS ?= 5
REPLICAS ?= 2
TESTS ?=
TRIALS ?= 20
TORCH ?=

# Every LibTorch has build folders of its own.
ifeq ($(TORCH),)
B := build
else
ifeq ($(wildcard $(TORCH)/version.py),)
$(error TORCH=$(TORCH) has no version.py, wanted the folder that python3 -c 'import torch; print(*torch.__path__)' prints)
endif
B := build/torch-$(shell sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" $(TORCH)/version.py)-$(shell realpath $(TORCH) | cksum | cut -d' ' -f1)
endif
export TORCH

.PHONY: help demo tutorial docs options test test-slow simulate differ explore cuda gpu-kit gpu-check libtorch-matrix libtorch-row tpu-check parity bench step-profile lint lint-changed format format-check layers sizes asan tsan sanitizers wings cluster-test chaos etcd-trials fuzz install package package-check image fresh clean
help:
	@sed -n '1,7p' Makefile; echo "also: test-slow options simulate differ wings explore cuda gpu-kit gpu-check libtorch-matrix tpu-check bench step-profile parity lint format format-check layers sizes asan tsan sanitizers wings cluster-test chaos etcd-trials fuzz install package package-check image fresh clean"

# configure(preset): configures the build folder of the target $@.
define configure
	@mkdir -p $(B)
	@cmake --preset $(1) -B $(@D) $(if $(TORCH),-DCOHORT_TORCH=$(realpath $(TORCH))) $(CONFIGURE) > $(@D).log 2>&1 || { cat $(@D).log; exit 1; }
	@mv $(@D).log $(@D)/configure.log
	@touch $@
endef
$(B)/%/build.ninja: CMakeLists.txt CMakePresets.json
	$(call configure,$*)
# The demo and the tests share build/dev, so the library is compiled once. The demo needs no packages of the tests.
$(B)/dev/build.ninja: CMakeLists.txt CMakePresets.json
	$(call configure,demo)
WITH_TESTS := $(B)/dev/CTestTestfile.cmake
$(WITH_TESTS): CMakeLists.txt CMakePresets.json
	$(call configure,dev)

demo:
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory $(B)/dev/build.ninja
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli
	@$(B)/dev/bin/cohort train --experiment=mnist_mlp --mode=train_and_eval --distribution_strategy=mirrored \
	  --num_replicas=$(REPLICAS) --epochs=$(EPOCHS) --batch_size=128 --model_dir=$(B)/dev/demo --seed=1 \
	  $(if $(DATA_DIR),--data_dir=$(DATA_DIR))

tutorial:
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory $(B)/dev/build.ninja
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli tutorial
	@echo "The programs are in $(B)/dev/bin; docs/tutorial says what to do with them."

# The pages of docs/ and the reference from the public headers; a warning of Doxygen and a link that leads nowhere are errors.
docs:
	@scripts/install-deps.sh docs
	@scripts/make-docs build/docs

# The tables of flags and keys in docs/ and in the page of manual, as the command line describes them.
options:
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory $(B)/dev/build.ninja
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli
	@scripts/option-tables $(B)/dev/bin/cohort

# Tests run beside each other, in slots (tests/CMakeLists.txt): idle threads of OpenMP and OpenBLAS would spin on the core that the other test needs.
# test-slow has those that take minutes: processes killed over and over, whole trainings, other programs to compare with. TESTS picks from all.
test test-slow:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS)
	@OMP_WAIT_POLICY=passive OPENBLAS_THREAD_TIMEOUT=4 ctest --test-dir $(B)/dev --output-on-failure -j $$((2 * $(JOBS) + 2)) $(if $(TESTS),-R $(TESTS),$(if $(filter test-slow,$@),-L,-LE) '^slow$$')

# The core alone, and with one wing beside it: WINGS=mesh, or none for the core alone.
WINGS ?= none $(sort $(notdir $(wildcard src/wings/* tools/cohort/wings/*)))
wings:
	@scripts/install-deps.sh test
	@scripts/wings-alone $(B)/wings $(JOBS) $(WINGS)

# Whole clusters in one thread, from SEEDS seeds, the first of which is FIRST; SIMULATE=elastic or multi_worker for others.
SIMULATE ?= parameter_servers
simulate:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target simulation_tests
	@COHORT_SEEDS=$(if $(SEEDS),$(SEEDS),1000000) COHORT_FIRST_SEED=$(if $(FIRST),$(FIRST),1) \
	  $(B)/dev/tests/simulation_tests --file=simulation/$(SIMULATE)_test.cpp

# Compares random programs (DIFFER=modules, layers or data) with an oracle: SEEDS seeds, beginning with FIRST.
DIFFER ?= modules
differ:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target differ_tests
	@COHORT_SEEDS=$(if $(SEEDS),$(SEEDS),2000) COHORT_FIRST_SEED=$(if $(FIRST),$(FIRST),1) \
	  $(B)/dev/tests/differ_tests --file=differ/$(DIFFER)_test.cpp

# Every state of a model of SERVERS parameter servers with FAULTS; COPIES=2 with backups. Minutes to hours, and gigabytes.
SERVERS ?= 3
FAULTS ?= 2
COPIES ?= 1
explore:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target simulation_tests
	@COHORT_SERVERS=$(SERVERS) COHORT_FAULTS=$(FAULTS) COHORT_REPLICAS=$(COPIES) \
	  $(B)/dev/tests/simulation_tests --file=simulation/explore_test.cpp

# The CUDA code compiled, linked and tested as far as that goes without a card, which only the tests labelled gpu need; they
# skip by themselves. CUDA's and NCCL's headers lie beside the torch, no toolkit is needed.
cuda:
	@$(if $(wildcard $(TORCH)/lib/libtorch_cuda.so),,$(error make cuda wants TORCH=folder of a torch with CUDA))
	@$(MAKE) --no-print-directory test

# Packs what runs beside a card, which may be elsewhere; then runs it.
TORCH_VERSION ?= 2.11.0
gpu-kit:
	@scripts/install-deps.sh kit
	@python3 scripts/gpu-kit $(TORCH_VERSION) --jobs $(JOBS)
gpu-check:
	@python3 scripts/gpu-check

# Builds and tests with every LibTorch and fills the table in docs/installing.md; hours. ROWS="trixie sid" for some.
libtorch-matrix:
	@python3 scripts/libtorch-matrix $(ROWS)
# What a row of that table stands for.
libtorch-row: test
	@$(MAKE) --no-print-directory $(B)/release/build.ninja
	@cmake --build $(B)/release -j $(JOBS) --target cohort_bench
	@$(B)/release/bin/cohort_bench --seconds 1 step
	@python3 scripts/libtorch-matrix --row $(B)

# Training steps, compiled for TPUs that are not here; fills the table in docs/tpu.md. ONLY="mnist_mlp" for some experiments.
tpu-check:
	@scripts/install-deps.sh build
	@scripts/install-deps.sh tpu
	@$(MAKE) --no-print-directory $(B)/dev/build.ninja
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli
	@scripts/tpu-check $(B)/dev/bin/cohort $(if $(ONLY),--only $(ONLY))

# Every model beside torchvision's, the large ones too, which `make test` leaves out.
parity:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target models_tests
	@COHORT_ALL_MODELS=1 $(B)/dev/tests/models_tests --file=models/zoo_test.cpp

# PEERS=all (or some of "tensorflow torch jax") instead compares with the newest of others, from PyPI; ROWS="mlp servers" for some rows,
# ARGS="--least --rounds 5" for more of benchmarks/peers.py.
bench:
	@scripts/install-deps.sh test
	@$(if $(PEERS),scripts/install-deps.sh xla)
	@$(MAKE) --no-print-directory $(B)/release/build.ninja
	@cmake --build $(B)/release -j $(JOBS) --target cohort_bench cohort_cli
	@python3 benchmarks/$(if $(PEERS),peers.py --peers $(PEERS) $(if $(ROWS),--rows $(ROWS)) $(ARGS),$(if $(BEFORE),compare.py --before $(BEFORE),run.py)) --bench $(B)/release/bin/cohort_bench

# Where the microseconds of a training step go, beside what LibTorch and its products need alone.
step-profile:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(B)/release/build.ninja
	@cmake --build $(B)/release -j $(JOBS) --target cohort_bench
	@python3 benchmarks/profile_step.py --bench $(B)/release/bin/cohort_bench $(if $(MODELS),--models $(MODELS))

# asan looks for wrong addresses, leaks and undefined behaviour, tsan for races.
asan tsan:
	@scripts/install-deps.sh lint
	@scripts/install-deps.sh test
	@rm -f $(B)/$@/sanitize-*.xml
	@$(MAKE) --no-print-directory $(B)/$@/build.ninja
	@cmake --build $(B)/$@ -j $(JOBS)
	@scripts/sanitize $(B)/$@ $(if $(TESTS),-R $(TESTS))

# Both, the second one whatever the first one found, and one report; hours on two cores.
sanitizers:
	@status=0; for each in asan tsan; do echo "== $$each"; $(MAKE) --no-print-directory $$each || status=1; done; \
	  scripts/sanitize-report $(B)/asan $(B)/tsan && exit $$status

# Real daemons, as root: sshd, Slurm.
cluster-test:
	@scripts/install-deps.sh cluster
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli
	@python3 tests/ssh/run.py $(B)/dev/bin/cohort && python3 tests/slurm/run.py $(B)/dev/bin/cohort

# Network namespaces, so as root; TRIALS of every disaster and nemesis. NEMESIS="one-way,full disk" (or all) for some nemeses and
# nothing else; SEED of the first trial, BESIDE each other.
NEMESIS ?=
SEED ?= 1
BESIDE ?= 1
chaos:
	@scripts/install-deps.sh cluster
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli examples chaos_counting chaos_switch chaos_disk
	@$(if $(NEMESIS),,python3 tests/chaos/run.py $(B)/dev/bin/cohort --trials $(TRIALS) && \
	  for replicas in 1 2; do python3 tests/chaos/parameter_servers.py $(B)/dev/bin/cohort $(B)/dev/bin/example_parameter_server \
	    --replicas $$replicas || exit 1; done && )\
	  python3 tests/chaos/nemesis.py $(B)/dev --nemesis "$(NEMESIS)" --trials $(TRIALS) --seed $(SEED) --beside $(BESIDE)

# TRIALS runs whose membership etcd keeps, beginning with SEED; each loses workers and a member of etcd at random moments.
etcd-trials:
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory $(WITH_TESTS)
	@cmake --build $(B)/dev -j $(JOBS) --target cohort_cli
	@python3 tests/chaos/etcd_trials.py $(B)/dev/bin/cohort --trials $(TRIALS) --seed $(SEED)

FUZZERS = config_fuzzer coordination_fuzzer dispatcher_fuzzer elastic_fuzzer host_list_fuzzer idx_fuzzer image_fuzzer \
  manifest_fuzzer parameter_server_fuzzer replies_fuzzer safetensors_fuzzer tf_config_fuzzer tfds_fuzzer tfrecord_fuzzer
fuzz:
	@scripts/install-deps.sh lint
	@$(MAKE) --no-print-directory $(B)/fuzz/build.ninja
	@cmake --build $(B)/fuzz -j $(JOBS) --target $(FUZZERS)
	@scripts/fuzz $(B)/fuzz $(if $(SECONDS_EACH),$(SECONDS_EACH),600) $(FUZZERS)

lint:
	@scripts/install-deps.sh lint
	@$(MAKE) --no-print-directory $(B)/lint/build.ninja
	@cmake --build $(B)/lint --target cohort_generated -- --quiet
	@scripts/lint $(B)/lint $(JOBS) $(if $(LINT),$$(git ls-files $(LINT) | grep 'cpp$$'))

lint-changed:
	@$(MAKE) --no-print-directory $(B)/lint/build.ninja
	@cmake --build $(B)/lint --target cohort_generated -- --quiet
	@scripts/lint $(B)/lint $(JOBS) $$(git diff --name-only HEAD -- '*.cpp')

format:
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i
format-check:
	@git ls-files '*.cpp' '*.h' | xargs clang-format --dry-run -Werror

layers:
	@python3 scripts/check_layers.py .
sizes:
	@python3 scripts/check_sizes.py .
	@python3 scripts/check_counts.py .

install:
	@scripts/install-deps.sh build
	@$(MAKE) --no-print-directory $(B)/install/build.ninja
	@cmake --build $(B)/install -j $(JOBS) --target cohort cohort_cli
	@cmake --install $(B)/install $(if $(PREFIX),--prefix $(PREFIX))

# build/package/cohort_X.Y_amd64.deb, for the Debian that it is made on.
package:
	@scripts/install-deps.sh package
	@$(MAKE) --no-print-directory $(B)/package/build.ninja
	@cmake --build $(B)/package -j $(JOBS) --target cohort cohort_cli
	@cd $(B)/package && rm -f cohort_*.deb && cpack -G DEB > cpack.log 2>&1 || { cat cpack.log; exit 1; }
	@ls $(B)/package/cohort_*.deb

# On a bare machine of the same Debian: apt installs the package, and programs are compiled with it and train.
package-check: package
	@mkdir -p $(B)/package/check && cp $(B)/package/cohort_*.deb $(B)/package/check/cohort.deb
	@scripts/fresh-machine --with=$(B)/package/check $$(. /etc/os-release; echo $$VERSION_CODENAME) tests/install/package.sh

# build/image/cohort.tar: an image for containers (OCI), made without an engine.
image: package
	@scripts/install-deps.sh image
	@scripts/make-image $$(ls $(B)/package/cohort_*.deb) $(B)/image/cohort.tar

# The first commands of a user, each on a bare machine.
fresh:
	@for suite in bookworm trixie; do for target in demo test; do \
	  echo "== $$suite: make $$target"; scripts/fresh-machine $$suite make $$target || exit 1; done; done

clean:
	@rm -rf build
