# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts: the one list of packages that they need, and their installation.
# shellcheck shell=bash

# One line each: group | Debian package | program it brings, <header> or -llibrary that the compiler must find, or file
# | what needs it
zoadam_requirements='
base   | cmake                | cmake                      | configuring
base   | ninja-build          | ninja                      | building
base   | g++                  | g++                        | compiling
tests  | doctest-dev          | <doctest/doctest.h>        | the tests
thrust | libthrust-dev        | <thrust/version.h>         | the tests of what uses Thrust
gpt    | libopenblas-dev      | -lopenblas                 | the GPT example
gpt    | libcli11-dev         | <CLI/CLI.hpp>              | the flags of the GPT example
images | dataset-fashion-mnist | /usr/share/datasets/fashion-mnist | the images of the MLP example
text   | bible-kjv            | bible                      | the King James text
picture | gnuplot-nox         | gnuplot                    | the picture of the loss curves
picture | jq                  | jq                         | the table of results
json   | nlohmann-json3-dev   | <nlohmann/json.hpp>        | the conformance cases and the metrics of the GPT example
mpi    | libopenmpi-dev       | mpicxx                     | the MPI transport
mpi    | openmpi-bin          | mpirun                     | the MPI tests
mpich  | libmpich-dev         | mpicxx.mpich               | the tests under MPICH
mpich  | mpich                | mpiexec.mpich              | the tests under MPICH
clang  | clang                | clang++                    | the build with clang
format | clang-format         | clang-format               | the format check
tidy   | clang-tidy           | clang-tidy                 | the static checks
'

_zoadam_has() {
  local probe=$1
  if [[ $probe == \<* ]]; then
    # A CUDA toolkit holds headers of other packages too, where nvcc alone looks.
    local toolkit
    toolkit=$(dirname "$(readlink -m "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")/../include
    echo "#include $probe" | g++ -std=c++20 -fsyntax-only -idirafter "$toolkit" -idirafter "$toolkit/cccl" -x c++ - \
      2>/dev/null
  elif [[ $probe == -l* ]]; then
    echo 'int main() {}' | g++ -x c++ - -o /dev/null "$probe" 2>/dev/null
  elif [[ $probe == /* ]]; then
    [[ -e $probe ]]
  else
    command -v "$probe" >/dev/null
  fi
}

# zoadam_require GROUP...: installs what is missing of these groups when root; otherwise says per package what to
# install, and returns non-zero.
zoadam_require() {
  local group package probe purpose missing=()
  local -A why=()
  while IFS='|' read -r group package probe purpose; do
    read -r group <<<"$group"
    read -r package <<<"$package"
    read -r probe <<<"$probe"
    read -r purpose <<<"$purpose"
    [[ -n $group && " $* " == *" $group "* ]] || continue
    if ! _zoadam_has "$probe"; then
      missing+=("$package")
      why[$package]=$purpose
    fi
  done <<<"$zoadam_requirements"
  ((${#missing[@]} > 0)) || return 0

  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing: ${missing[*]}"
    local log
    log=$(mktemp)
    if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}"; } >"$log" 2>&1; then
      rm -f "$log"
      return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
  fi
  for package in "${missing[@]}"; do
    echo "The package $package, for ${why[$package]}, is missing: install it with 'sudo apt-get install $package'" \
      "(or your system's equivalent)." >&2
  done
  return 1
}

# Compiled objects are shared between builds where ccache is there.
if [[ -z ${CMAKE_CXX_COMPILER_LAUNCHER:-} ]] && command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
