#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh COMPILER SOURCE [FLAGS...]: the code of a composed step dispatches nothing at run time. It has no table of
# virtual functions and no type information but those of exceptions, and no indirect call: what remains are direct
# calls of the library's own functions and of the C and C++ libraries.
#
# The one indirect call of the CPU backend, by which a helper thread of thread_pool takes its part of a loop, is in
# the threads' own function, thread_pool::work: the rank's thread runs its part by a direct call, with one thread or
# with several. So nothing is exempt here.
set -euo pipefail

compiler=$1 source=$2
shift 2
# Jump tables of switch statements would look like indirect calls.
compile=("$compiler" -std=c++20 -O2 -fno-jump-tables -fcf-protection=none "$@" -c "$source")
object=$(mktemp --suffix=.o)
trap 'rm -f "$object"' EXIT

# Symbols _ZTV (tables) and _ZTI (type information) of the library's types, exceptions aside.
find_tables() {
  nm "$object" | grep -oE '_ZT[VI]\S*6zoadam\S*' | grep -vE '^_ZT[VI](N6zoadam)[0-9]+([a-z]+_)?errorE$' || true
}
# "function: instruction" of every call or jump through a register or memory.
find_indirect() {
  objdump -d --no-show-raw-insn "$object" |
    awk '/^[0-9a-f]+ <.*>:$/ { name = $2 } /\t(notrack )?(call|jmp)q? +\*/ { print name, $0 }'
}

"${compile[@]}" -DZOADAM_CODEGEN_CONTROL -o "$object"
if [[ $(find_tables) != *dispatching* || $(find_indirect | grep -cE 'through_(table|pointer)') -lt 2 ]]; then
  echo "the control's virtual call and call through a pointer were not found, so this check shows nothing"
  exit 1
fi

"${compile[@]}" -o "$object"
steps=$(nm -C "$object" | grep -cE ' [TW] .*one_step<' || true)
tables=$(find_tables)
indirect=$(find_indirect)
echo "$compiler: $steps steps, $(objdump -d "$object" | grep -cE '\scallq? ') direct calls"
if ((steps != 5)) || [[ -n $tables || -n $indirect ]]; then
  echo "tables: ${tables:-none}"
  echo "indirect calls: ${indirect:-none}"
  exit 1
fi
