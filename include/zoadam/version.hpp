// SPDX-License-Identifier: Apache-2.0
// Release of the library.
#pragma once

/// The wire and checkpoint formats carry versions of their own.
#define ZOADAM_VERSION_MAJOR 0
#define ZOADAM_VERSION_MINOR 1
#define ZOADAM_VERSION_PATCH 0
