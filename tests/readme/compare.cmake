# SPDX-License-Identifier: Apache-2.0
file(READ ${ROOT}/README.md readme)
file(READ ${ROOT}/examples/minimal.cpp program)
# The two-line head stays in the file.
string(REGEX REPLACE "^// SPDX[^\n]*\n" "" program "${program}")
string(FIND "${readme}" "```cpp\n${program}```" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md does not contain examples/minimal.cpp as it is")
endif()
