// SPDX-License-Identifier: Apache-2.0
// Fibers: a stack and a place to continue, known to the address and thread sanitizers.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#if defined(__x86_64__) && !defined(SIMT_UCONTEXT)
#define SIMT_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#endif
#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(SIMT_OWN_SWITCH)
// Saves the callee-saved registers on the stack and the stack pointer in *save, then continues at load.
extern "C" void simt_switch_stack(void** save, void* load);
asm(R"(
.pushsection .text.simt_switch_stack,"axG",@progbits,simt_switch_stack,comdat
.weak simt_switch_stack
.type simt_switch_stack,@function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size simt_switch_stack, .-simt_switch_stack
.popsection
)");
#endif

namespace simt {

/// Where a fiber, or the thread that runs them, continues.
struct context {
#if defined(SIMT_OWN_SWITCH)
  void* stack_pointer = nullptr;
#else
  ucontext_t machine;
#endif
  void const* bottom = nullptr;  // of its stack, for the address sanitizer
  std::size_t size = 0;
  void* fake_stack = nullptr;
  void* shadow = nullptr;  // the thread sanitizer's
};

[[gnu::noinline]] inline void switch_context(context& from, context& to) {
#if defined(SIMT_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
#endif
#if defined(SIMT_TSAN)
  __tsan_switch_to_fiber(to.shadow, 0);
#endif
#if defined(SIMT_OWN_SWITCH)
  simt_switch_stack(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.machine, &to.machine);
#endif
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

/// The first thing a fiber's entry function does; `back` is who resumed it.
inline void arrive_in_fiber([[maybe_unused]] context& back) {
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &back.bottom, &back.size);
#endif
}

/// A stack with a guard page below it.
class fiber {
 public:
#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
  static constexpr std::size_t stack_bytes = 256 * 1024;
#else
  static constexpr std::size_t stack_bytes = 64 * 1024;
#endif
  static constexpr std::size_t guard_bytes = 4096;

  fiber() {
    memory_ = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory_, guard_bytes, PROT_NONE);
    place.bottom = static_cast<char*>(memory_) + guard_bytes;
    place.size = stack_bytes;
  }
  fiber(fiber const&) = delete;
  fiber& operator=(fiber const&) = delete;
  ~fiber() {
    forget();
    munmap(memory_, stack_bytes + guard_bytes);
  }

  /// The next switch to `place` calls entry, which must not return. What ran on the stack before is abandoned.
  void start(void (*entry)()) {
    forget();
#if defined(SIMT_TSAN)
    place.shadow = __tsan_create_fiber(0);
#endif
#if defined(SIMT_OWN_SWITCH)
    void** top = reinterpret_cast<void**>(static_cast<char*>(memory_) + guard_bytes + stack_bytes);
    *--top = nullptr;  // entry's return address, which also aligns its frame
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    place.stack_pointer = top;
#else
    getcontext(&place.machine);
    place.machine.uc_stack.ss_sp = const_cast<void*>(place.bottom);
    place.machine.uc_stack.ss_size = stack_bytes;
    place.machine.uc_link = nullptr;
    makecontext(&place.machine, entry, 0);
#endif
    started = true;
  }
  void abandon() { started = false; }

  context place;
  bool started = false;

 private:
  void forget() {
#if defined(SIMT_ASAN)
    __asan_unpoison_memory_region(place.bottom, stack_bytes);
#endif
#if defined(SIMT_TSAN)
    if (place.shadow != nullptr) __tsan_destroy_fiber(place.shadow);
    place.shadow = nullptr;
#endif
    place.fake_stack = nullptr;
  }
  void* memory_ = nullptr;
};

}  // namespace simt
