// The forms of cp.async, and what the runtime refuses.

#include "counted_copies.h"
#include "ptx.h"

namespace emulator {

// cp.async.ca.shared.global{hints} [shared], [global], bytes{, bytes to read | whether to ignore the source}{, policy}
void cp_async(const Call& call) {
  const size_t bytes = call.get(2);
  if (bytes != 4 && bytes != 8 && bytes != 16) fail("'%s' copies %zu bytes", call.instruction.text.c_str(), bytes);
  if (call.has("cg") && bytes != 16) fail("'%s' copies %zu bytes; .cg takes 16", call.instruction.text.c_str(), bytes);
  size_t read = bytes;
  const size_t last = call.operands() - call.has("L2::cache_hint");
  if (last > 3) {
    const Word& word = call.instruction.operands[3].at(0);
    read = word.is_predicate || word.is_negated ? (call.get(3) ? 0 : bytes) : uint32_t(call.get(3));
  }
  if (read > bytes) fail("'%s' reads %zu bytes of %zu", call.instruction.text.c_str(), read, bytes);
  copy_async(shared_address(call.get(0), bytes, bytes).pointer(), call.pointer<void>(1), bytes, read);
}

// cp.async.mbarrier.arrive{.noinc} [barrier]
void cp_async_arrive(const Call& call) {
  count_copies(shared_address(call.get(0), 8, 8), !call.has("noinc"), take_copies());
}

void refuse(const char* what, const char* file, int line) {
  fail("%s:%d: the emulator has no %s", file, line, what);
}

cudaError_t refuse_launch(const char* what) {
  machine.failure = text("the emulator has no %s", what);
  return cudaErrorNotSupported;
}

Configuration configuration_of(const cudaLaunchConfig_t& config) {
  Configuration configuration(config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    const auto& size = attribute.val.clusterDim;
    if (attribute.id == cudaLaunchAttributeClusterDimension) configuration.cluster = dim3(size.x, size.y, size.z);
    if (attribute.id == cudaLaunchAttributeCooperative) configuration.is_cooperative = attribute.val.cooperative != 0;
  }
  return configuration;
}

bool is_in_kernel() {
  return machine.current != nullptr;
}

}  // namespace emulator
