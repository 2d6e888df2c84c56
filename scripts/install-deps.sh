#!/usr/bin/env bash
# Installs what Cohort needs, from the packages of Debian 12 or newer. Does nothing, quickly, when all of it is there.
#   scripts/install-deps.sh [build|test|lint|docs|cluster|kit|package|fresh|image|xla|tpu|oracles|all]      default: all
# With TORCH set, LibTorch comes from there. The sets xla, tpu and oracles are no part of all: they come from PyPI. The first two
# bring XLA's plugin for CPUs (63 MB) and libtpu (137 MB) into build/plugins, where the tests and the programs of a build folder
# find them. The third one makes build/oracles, a virtual environment (770 MB) with the programs of scripts/oracles.txt.
set -euo pipefail

# Nothing of protobuf-compiler-grpc is called, but the CMake package of libgrpc++-dev fails without its files.
build="g++ cmake ninja-build ccache make pkg-config libtorch-dev libopenblas0-pthread libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libjpeg-dev libpng-dev libyaml-cpp-dev libcurl4-openssl-dev libssl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libgloo-dev libisal-dev libhdf5-dev libarchive-dev prometheus-cpp-dev libcpp-httplib-dev mold"
[ -z "${TORCH:-}" ] || build=${build/libtorch-dev libopenblas0-pthread /}
test="$build iproute2 openssl libopenmpi-dev openmpi-bin mpich libgtest-dev libgmock-dev python3 python3-torch python3-numpy python3-pil python3-torchvision python3-prometheus-client libonnx-dev chromium graphviz etcd-server etcd-client"
lint="$build libopenmpi-dev libgtest-dev libgmock-dev python3 clang clang-format clang-tidy libclang-rt-dev libomp-dev"
docs="doxygen python3"

# The wheels: name==version, the tag of the platform, the tag of Python, the hash.
case "$(uname -m)" in
  aarch64) cpu_plugin="xla-cpu-pjrt==0.0.1 manylinux_2_27_aarch64 py3 8f613be6e891858f40d64f9799319502fff42689661944fc18a6ffd8210b30c9" ;;
  *) cpu_plugin="xla-cpu-pjrt==0.0.1 manylinux_2_27_x86_64 py3 55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc" ;;
esac
libtpu="libtpu==0.0.52 manylinux_2_31_x86_64 cp311 f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140"
wheel="" oracles=""

case "${1:-all}" in
  build) wanted=$build ;;
  test) wanted=$test ;;
  kit) wanted="$build libgtest-dev libgmock-dev python3 python3-venv patchelf" ;;
  lint) wanted=$lint ;;
  docs) wanted=$docs ;;
  all) wanted="$test $lint $docs" ;;
  cluster) wanted="$test openssh-client openssh-server slurm-wlm munge" ;;
  package) wanted="$build libopenmpi-dev dpkg-dev file" ;;
  fresh) wanted="debootstrap debian-archive-keyring ca-certificates git util-linux mount" ;;
  image) wanted="mmdebstrap debian-archive-keyring dpkg-dev python3" ;;
  xla) wanted="python3 python3-venv" wheel=$cpu_plugin ;;
  tpu) wanted="python3 python3-venv" wheel=$libtpu ;;
  oracles) wanted="python3 python3-venv" oracles=yes ;;
  *)
    echo "install-deps: \"$1\" is not known, only build, test, lint, docs, cluster, kit, package, fresh, image, xla, tpu, oracles and all are" >&2
    exit 2
    ;;
esac

install_packages() {
  local missing=() package status sudo=""
  for package in $wanted; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return

  echo "install-deps: installing ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "install-deps: needs root or sudo to install ${missing[*]}" >&2; exit 1; }
    sudo=sudo
  fi
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get update -q
  $sudo apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# Brings a wheel, which has to have the hash, and unpacks it in build/plugins. A fetch that was interrupted leaves no plugin.
install_wheel() {
  local name=$1 platform=$2 python=$3 hash=$4 folder abi=none version=3
  folder=$(cd "$(dirname "$0")/.." && pwd)/build/plugins
  [ -e "$folder/$name.complete" ] && return
  [ "$python" = py3 ] || { abi=$python version=${python#cp}; }
  echo "install-deps: fetching $name into $folder"
  mkdir -p "$folder"
  work=$(mktemp -d "$folder/fetch.XXXXXX")  # not local: the trap needs it
  trap 'rm -rf "$work"' EXIT
  python3 -m venv "$work/venv"
  echo "$name --hash=sha256:$hash" >"$work/requirements.txt"
  "$work/venv/bin/pip" --disable-pip-version-check download --quiet --no-cache-dir --no-deps --only-binary=:all: --require-hashes \
    --platform "$platform" --python-version "$version" --abi "$abi" --dest "$work" -r "$work/requirements.txt"
  python3 -m zipfile -e "$work"/*.whl "$work/unpacked"
  for part in "$work"/unpacked/*; do
    rm -rf "${folder:?}/${part##*/}"
    mv "$part" "$folder"
  done
  touch "$folder/$name.complete"
  case $name in libtpu*)
    echo "install-deps: libtpu is Google's, under the Google Cloud Platform Terms of Service: use it, and do not pass it on" ;;
  esac
}

# Makes the virtual environment of the oracles, whose Keras computes with JAX. One that was interrupted is made again.
install_oracles() {
  local root folder
  root=$(cd "$(dirname "$0")/.." && pwd)
  folder=$root/build/oracles
  cmp -s "$root/scripts/oracles.txt" "$folder/complete.txt" && return
  echo "install-deps: fetching the oracles of scripts/oracles.txt into $folder"
  rm -rf "$folder"
  mkdir -p "$root/build"
  /usr/bin/python3 -m venv "$folder"
  "$folder/bin/pip" --disable-pip-version-check install --quiet --no-cache-dir --no-deps --only-binary=:all: --require-hashes \
    -r "$root/scripts/oracles.txt"
  echo 'import os; os.environ.setdefault("KERAS_BACKEND", "jax")' >"$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')/keras_backend.pth"
  cp "$root/scripts/oracles.txt" "$folder/complete.txt"
}

install_packages
[ -z "$oracles" ] || install_oracles
# shellcheck disable=SC2086  # the words of a wheel
[ -z "$wheel" ] || install_wheel $wheel
