// Failures: those that the emulator detects, and the CPU's signals where a kernel uses memory that it must not.

#include <execinfo.h>
#include <signal.h>
#include <sys/time.h>

#include <cstdarg>
#include <cstdio>

#include "machine.h"

namespace emulator {

namespace {

std::string formatted(const char* format, va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  std::string text(vsnprintf(nullptr, 0, format, copy), 0);
  va_end(copy);
  vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

std::string location() {
  if (!machine.current) return "";
  const uint3 b = block().index, t = self().index;
  std::string place = text("\n  in block (%u, %u, %u), thread (%u, %u, %u):", b.x, b.y, b.z, t.x, t.y, t.z);
  for (void* frame : trace()) place += text(" [%p]", frame);
  return place;
}

constexpr timeval kTimeLimit = {120, 0}, kRepeat = {1, 0};  // Seconds of CPU time.

void on_signal(int number, siginfo_t* details, void*) {
  switch (number) {
    case SIGVTALRM:
      if (!machine.current) return;  // The timer repeats soon.
      machine.failure = "the kernel does not end";
      break;
    case SIGILL:  // A failed alignment check: see KERNEL_FLAGS in library.py.
      machine.failure = "an access that is not aligned as its type has to be";
      break;
    default: machine.failure = text("an access to %p", details->si_addr);
  }
  machine.failure += location();
  leave_thread();
}

}  // namespace

std::string text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string result = formatted(format, arguments);
  va_end(arguments);
  return result;
}

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string message = formatted(format, arguments);
  va_end(arguments);
  throw Failure{message + location()};
}

void fail_without_unwinding(const std::string& text) {
  machine.failure = text + location();
  leave_thread();
}

std::vector<void*> trace() {
  void* frames[24];
  return std::vector<void*>(frames, frames + backtrace(frames, 24));
}

SignalGuard::SignalGuard() {
  static char stack[1 << 16];  // A fiber's own stack may have overflowed.
  const stack_t signal_stack = {stack, 0, sizeof(stack)};
  sigaltstack(&signal_stack, &stack_before_);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < kSignals; ++i) sigaction(kNumbers[i], &action, &before_[i]);
  const itimerval timer = {kRepeat, kTimeLimit};
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

SignalGuard::~SignalGuard() {
  const itimerval off = {};
  setitimer(ITIMER_VIRTUAL, &off, nullptr);
  for (int i = 0; i < kSignals; ++i) sigaction(kNumbers[i], &before_[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

void check_bounds(int most_threads, int, int) {
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  if (threads > most_threads) fail("%d threads in a block of a kernel that is bound to %d", threads, most_threads);
}

void trap() {
  fail("the kernel called __trap");
}

}  // namespace emulator
