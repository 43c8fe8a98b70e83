// Failures: those that the emulator detects, and the CPU's signals where a kernel uses memory that it must not.

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

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

constexpr timespec kTimeLimit = {120, 0}, kRepeat = {1, 0};  // Of the thread's CPU time.

SignalGuard* guard = nullptr;

void on_signal(int number, siginfo_t* details, void*) {
  if (number == SIGVTALRM && !machine.current) return;  // The timer repeats soon.
  if (!guard->is_on_its_thread()) return guard->pass_on(number);
  if (!machine.may_leave) {
    const std::string message = text(
        "kernelgen: the emulated GPU itself crashed: %s at %p, while it ran the kernel %s. This is a fault of the "
        "emulator: please report it with the kernel's source.\n",
        strsignal(number),
        details->si_addr,
        current_launch->name);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message.data(), message.size());
    return guard->pass_on(number);
  }
  if (!machine.pending_report.empty()) fail_without_unwinding("");
  switch (number) {
    case SIGVTALRM: machine.failure = "the kernel does not end"; break;
    case SIGFPE: machine.failure = "an integer division by 0, or one whose quotient is too large"; break;
    case SIGILL:  // A failed alignment check: see KERNEL_FLAGS in compiler.py.
      machine.failure = "an access that is not aligned as its type has to be";
      if (machine.current && current_launch->dynamic % 128) {
        machine.failure += " (dynamic shared memory is aligned to 16 bytes unless its declaration asks for more)";
      }
      break;
    default:
      machine.failure = text("an access to %p", details->si_addr);
      if (machine.current && size_t(static_cast<char*>(details->si_addr) - machine.current->stack) < kStack) {
        machine.failure += ": a thread has 256 KB of stack on the emulated GPU, and this one needs more";
      }
  }
  machine.failure += machine.current ? location() : " by the copy engine";
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
  if (machine.current) fail_without_unwinding(message);  // What the kernel calls may be noexcept.
  throw Failure{message};
}

void fail_without_unwinding(const std::string& text) {
  machine.failure = machine.pending_report.empty() ? text + location() : machine.pending_report;
  leave_thread();
}

void fail_later(const std::string& text) {
  if (!machine.pending_report.empty()) return;
  machine.pending_report = text + location();
  machine.accused = &self();
  machine.block_of_accused = &block();
}

std::vector<void*> trace() {
  void* frames[24];
  return std::vector<void*>(frames, frames + backtrace(frames, 24));
}

SignalGuard::SignalGuard() : thread_(pthread_self()) {
  static char stack[1 << 16];  // A fiber's own stack may have overflowed.
  const stack_t signal_stack = {stack, 0, sizeof(stack)};
  sigaltstack(&signal_stack, &stack_before_);
  guard = this;
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < kSignals; ++i) sigaction(kNumbers[i], &action, &before_[i]);
  // To this thread alone: a timer of the process may interrupt any.
  struct sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGVTALRM;
  event._sigev_un._tid = syscall(SYS_gettid);
  has_timer_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
  const itimerspec limit = {kRepeat, kTimeLimit};
  if (has_timer_) timer_settime(timer_, 0, &limit, nullptr);
}

SignalGuard::~SignalGuard() {
  if (has_timer_) timer_delete(timer_);
  for (int i = 0; i < kSignals; ++i) sigaction(kNumbers[i], &before_[i], nullptr);
  guard = nullptr;
  sigaltstack(&stack_before_, nullptr);
}

bool SignalGuard::is_on_its_thread() const {
  return pthread_equal(pthread_self(), thread_);
}

// The faulty instruction is executed again, and the signal goes to whom it went before the guard.
void SignalGuard::pass_on(int number) const {
  for (int i = 0; i < kSignals; ++i) {
    if (kNumbers[i] == number) sigaction(number, &before_[i], nullptr);
  }
}

void check_bounds(int most_threads, int, int) {
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  if (threads > most_threads) fail("%d threads in a block of a kernel that is bound to %d", threads, most_threads);
}

void trap() {
  fail("the kernel called __trap");
}

}  // namespace emulator

// What assert calls, of kernels and of the functions that launch them.
extern "C" void __assert_fail(const char* expression, const char* file, unsigned line, const char* function) noexcept {
  const char* const slash = strrchr(file, '/');
  const std::string failure = emulator::text(
      "the assertion `%s` fails at %s:%u, in %s", expression, slash ? slash + 1 : file, line, function ? function : "");
  if (emulator::machine.current) emulator::fail_without_unwinding(failure);
  fprintf(stderr, "%s\n", failure.c_str());
  abort();
}
