#!/usr/bin/env bash
# Installs what Cohort needs, from the packages of Debian 12 or newer. Does nothing, quickly, when all of it is there.
#   scripts/install-deps.sh [build|test|lint|docs|cluster|kit|package|fresh|image|all]      default: all
# With TORCH set, LibTorch comes from there.
set -euo pipefail

# Nothing of protobuf-compiler-grpc is called, but the CMake package of libgrpc++-dev fails without its files.
build="g++ cmake ninja-build ccache make pkg-config libtorch-dev libopenblas0-pthread libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libjpeg-dev libpng-dev libyaml-cpp-dev libcurl4-openssl-dev libssl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libgloo-dev libisal-dev"
[ -z "${TORCH:-}" ] || build=${build/libtorch-dev libopenblas0-pthread /}
test="$build openssl libopenmpi-dev openmpi-bin libgtest-dev libgmock-dev mold python3 python3-torch python3-numpy python3-pil python3-torchvision chromium"
lint="$test clang clang-format clang-tidy libclang-rt-dev libomp-dev"
docs="doxygen python3"

case "${1:-all}" in
  build) wanted=$build ;;
  test) wanted=$test ;;
  kit) wanted="$build libgtest-dev libgmock-dev python3 python3-venv patchelf" ;;
  lint) wanted=$lint ;;
  docs) wanted=$docs ;;
  all) wanted="$lint $docs" ;;
  cluster) wanted="$test iproute2 openssh-client openssh-server slurm-wlm munge" ;;
  package) wanted="$build libopenmpi-dev dpkg-dev file" ;;
  fresh) wanted="debootstrap debian-archive-keyring ca-certificates git util-linux mount" ;;
  image) wanted="mmdebstrap debian-archive-keyring dpkg-dev python3" ;;
  *)
    echo "install-deps: \"$1\" is not known, only build, test, lint, docs, cluster, kit, package, fresh, image and all are" >&2
    exit 2
    ;;
esac

missing=()
for package in $wanted; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "install-deps: installing ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps: needs root or sudo to install ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
$sudo apt-get install -y -q --no-install-recommends "${missing[@]}"
