// SPDX-License-Identifier: Apache-2.0
// Found instead of the CUDA toolkit's header of this name: the same names, running on the CPU with checks.
//
// Kernels:   written as for nvcc. simt::launch(kernel, grid, block, dynamic_shared_bytes, stream, arguments...) puts
// one
//            into a stream; simt::dynamic_shared() is its dynamic shared memory.
// Tests:     simt::reset() makes a new world with two devices and returns leaks and violations of the old one;
//            simt::violations(), expect_clean(), leaks(), default_stream_uses().
//            simt::fail_call("cudaMalloc" or "", nth, code), calls(), set_device_count(n), set_driver_error(code),
//            set_device_memory(bytes), break_device(device, code). Calls under an object of uncounted are left alone.
// Schedules: simt::set_thread_order(order, seed), is_racy(run), set_stream_order(stream_order::lazy).
#pragma once

#define ZOADAM_SIMT 1

#include "../simt/device.hpp"
#include "../simt/runtime_stream.hpp"
#include "../simt/vector.hpp"
