// SPDX-License-Identifier: Apache-2.0
// Entry point of every test program that brings none of its own.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
