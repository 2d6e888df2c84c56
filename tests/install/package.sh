#!/usr/bin/env bash
# Run on a bare machine with the package in /with (make package-check): apt installs it with all that it needs, the program of
# the README is compiled with CMake and with pkg-config, and trains.
set -euo pipefail
sources=$(pwd)
export DEBIAN_FRONTEND=noninteractive
apt-get update -q > /dev/null
apt-get install -y -q /with/cohort.deb > /tmp/apt.log 2>&1 || { tail -20 /tmp/apt.log >&2; exit 1; }

mkdir /tmp/program
cd /tmp/program
cp "$sources/examples/readme.cpp" .
cat > CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES CXX)
find_package(cohort REQUIRED)
add_executable(with_cmake readme.cpp)
target_link_libraries(with_cmake PRIVATE cohort::cohort)
CMAKE
cmake -S . -B build > /tmp/cmake.log 2>&1 || { cat /tmp/cmake.log >&2; exit 1; }
cmake --build build
# shellcheck disable=SC2046  # its words are arguments
g++ readme.cpp -o build/with_pkg_config $(pkg-config --cflags --libs cohort)
for program in with_cmake with_pkg_config; do
  ldd build/$program | grep -q 'libcohort\.so\.' || { echo "package: $program is not linked with libcohort.so" >&2; exit 1; }
  echo "== $program"
  build/$program
done

echo "== cohort train"
cohort train --experiment=mnist_mlp --distribution_strategy=mirrored --num_replicas=2 --train_steps=20 --model_dir=/tmp/run
test -s /tmp/run/model.safetensors
test -s /usr/share/man/man1/cohort.1 || test -s /usr/share/man/man1/cohort.1.gz
# shellcheck disable=SC1091
source /usr/share/bash-completion/completions/cohort
COMP_WORDS=(cohort train --num_rep) COMP_CWORD=2
_cohort
[ "${COMPREPLY[*]}" = --num_replicas ] || { echo "package: \"cohort train --num_rep\" is completed to: ${COMPREPLY[*]}" >&2; exit 1; }
echo "package: installed, compiled with CMake and pkg-config, trained"
