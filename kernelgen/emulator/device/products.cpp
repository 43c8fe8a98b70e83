// Matrix instructions: ldmatrix, stmatrix, movmatrix, mma.sync, and wgmma.
//
// A product of wgmma is computed at some time between its issue and the wait for its group. From the first issue to
// that wait, the registers of the sum hold poison.

#include <deque>

#include "accesses.h"
#include "language/half.h"
#include "ptx.h"

namespace emulator {

namespace {

float half_to_float(uint16_t bits, bool is_bfloat16) {
  static const std::vector<float> halves = [] {
    std::vector<float> table(1 << 16);
    for (uint32_t i = 0; i < table.size(); ++i) table[i] = __half2float(__ushort_as_half(i));
    return table;
  }();
  return is_bfloat16 ? std::bit_cast<float>(uint32_t(bits) << 16) : halves[bits];
}

// A row of an 8x8 matrix in shared memory.
uint16_t* row_at(const Call& call, size_t operand) {
  return reinterpret_cast<uint16_t*>(shared_address(call.get(operand), 16, 16).pointer());
}

const Call& call_of(void* const* arguments, int lane) {
  if (!arguments[lane]) fail("a matrix instruction of a warp in which lane %d has ended", lane);
  return *static_cast<const Call*>(arguments[lane]);
}

void execute_by_warp(const Call& call, void (*action)(Warp&, void* const*)) {
  execute_together(kAllLanes, call.instruction.text.c_str(), const_cast<Call*>(&call), action);
}

template <typename F>
void for_each_matrix_element(void* const* arguments, size_t registers_operand, size_t row_operand, const F& visit) {
  const Call& first = call_of(arguments, 0);
  const size_t matrices = first.words(registers_operand);
  for (size_t matrix = 0; matrix < matrices; ++matrix) {
    for (int row = 0; row < 8; ++row) {
      uint16_t* elements = row_at(call_of(arguments, matrix * 8 + row), row_operand);
      for (int column = 0; column < 8; ++column) {
        const bool transposed = first.has("trans");
        const int i = transposed ? column : row, j = transposed ? row : column;
        visit(matrix, call_of(arguments, i * 4 + j / 2), j % 2, elements[column]);
      }
    }
  }
}

// Notes the accesses to the matrices' rows.
void note_rows(Warp& warp, void* const* arguments, size_t registers_operand, size_t row_operand, bool writes) {
  const size_t rows = 8 * call_of(arguments, 0).words(registers_operand);
  for (size_t lane = 0; lane < rows; ++lane) {
    note_warp_access(warp, row_at(call_of(arguments, lane), row_operand), 16, writes);
  }
}

}  // namespace

void ldmatrix(const Call& call) {
  execute_by_warp(call, [](Warp& warp, void* const* arguments) {
    note_rows(warp, arguments, 0, 1, false);
    for_each_matrix_element(arguments, 0, 1, [](size_t matrix, const Call& lane, int half, uint16_t element) {
      memcpy(static_cast<char*>(lane.target(0, matrix)) + 2 * half, &element, 2);
    });
  });
}

void stmatrix(const Call& call) {
  execute_by_warp(call, [](Warp& warp, void* const* arguments) {
    note_rows(warp, arguments, 1, 0, true);
    for_each_matrix_element(arguments, 1, 0, [](size_t matrix, const Call& lane, int half, uint16_t& element) {
      element = lane.get(1, matrix) >> (16 * half);
    });
  });
}

void movmatrix(const Call& call) {
  if (!call.has("m8n8") || !call.has("trans")) fail("the emulator does not know '%s'", call.instruction.text.c_str());
  execute_by_warp(call, [](Warp&, void* const* arguments) {
    uint32_t moved[kLanes] = {};
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        const uint32_t pair = call_of(arguments, row * 4 + column / 2).get(1);
        moved[column * 4 + row / 2] |= (pair >> (column % 2 * 16) & 0xffff) << (row % 2 * 16);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) call_of(arguments, lane).set(0, moved[lane]);
  });
}

namespace {

// Reads the 16x16 operand that a warp's lanes hold in four registers each: see mma.cuh.
void read_a(void* const* arguments, size_t operand, bool is_bfloat16, float (&a)[16][16]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const Call& call = call_of(arguments, lane);
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = call.get(operand, i);
      float* target = &a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
      target[0] = half_to_float(pair, is_bfloat16);
      target[1] = half_to_float(pair >> 16, is_bfloat16);
    }
  }
}

}  // namespace

namespace {

// Whether an instruction multiplies 16-bit floating-point numbers and sums in float32: other types are not known, and
// would be read as these.
bool multiplies_halves(const Call& call) {
  int sums = 0, factors = 0, others = 0;
  for (const std::string& part : call.instruction.parts) {
    const bool is_type = part.size() > 1 && std::string_view("fbesut").find(part[0]) != std::string_view::npos &&
                         part.find_first_of("0123456789") != std::string::npos;
    if (part == "f32")
      ++sums;
    else if (part == "f16" || part == "bf16")
      ++factors;
    else if (is_type)
      ++others;
  }
  return sums >= 1 && factors == 2 && others == 0 && !(call.has("f16") && call.has("bf16"));
}

}  // namespace

void mma(const Call& call) {
  if (!call.has("m16n8k16") || !call.has("row") || !call.has("col") || call.words(0) != 4 || !multiplies_halves(call)) {
    fail("the emulator does not know '%s'", call.instruction.text.c_str());
  }
  execute_by_warp(call, [](Warp&, void* const* arguments) {
    const bool is_bfloat16 = call_of(arguments, 0).has("bf16");
    float a[16][16], b[16][8];
    read_a(arguments, 1, is_bfloat16, a);
    for (int lane = 0; lane < kLanes; ++lane) {
      const Call& call = call_of(arguments, lane);
      for (int i = 0; i < 4; ++i) {
        b[lane % 4 * 2 + i / 2 * 8 + i % 2][lane / 4] = half_to_float(call.get(2, i / 2) >> (i % 2 * 16), is_bfloat16);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const Call& call = call_of(arguments, lane);
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = call.get_float(3, i);
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
        call.set(0, i, std::bit_cast<uint32_t>(sum));
      }
    }
  });
}

// ---- wgmma ----------------------------------------------------------------------------------------------------

namespace {

// An operand in shared memory, 16 long in the inner dimension (k), by its 64-bit matrix descriptor. PTX ISA: "Matrix
// Descriptor Format" and the canonical layouts.
struct SharedMatrix {
  Block* block;
  uint32_t start, leading, stride, swizzle_bits, width;
  bool mn_major;  // Rows, not k, are adjacent in memory.

  SharedMatrix(uint64_t descriptor, bool mn_major) : block(&emulator::block()), mn_major(mn_major) {
    start = (descriptor & 0x3fff) << 4;
    leading = (descriptor >> 16 & 0x3fff) << 4;
    stride = (descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 49 & 7) fail("the emulator knows matrix descriptors with base offset 0 only");
    constexpr int kBits[] = {0, 3, 2, 1};
    swizzle_bits = kBits[descriptor >> 62];
    width = 16u << swizzle_bits;
  }

  uint16_t element(int row, int k) const {
    uint16_t bits;
    memcpy(&bits, block->async_shared + address_of(row, k), 2);
    return bits;
  }

  uint32_t address_of(int row, int k) const {
    uint32_t offset;
    if (mn_major) {
      const int chunk = row / 8, chunks = width / 16;
      offset = row % 8 * 2 + k % 8 * width;
      // Without swizzling, the two strides are exchanged.
      offset += chunks == 1 ? chunk * stride + k / 8 * leading
                            : chunk % chunks * 16 + chunk / chunks * leading + k / 8 * stride;
    } else {
      offset = row % 8 * width + row / 8 * stride + k / 8 * (swizzle_bits ? 16 : leading) + k % 8 * 2;
    }
    uint32_t address = start + offset;
    address ^= (address >> 7 & ((1u << swizzle_bits) - 1)) << 4;
    return address;
  }

  // Calls visit(address) for the pieces of 16 bytes that some rows from `first` on lie in.
  template <typename F>
  void for_each_chunk(int first, int rows, const F& visit) const {
    for (int row = first; row < first + rows; row += mn_major ? 8 : 1) {
      for (int k = 0; k < 16; k += mn_major ? 1 : 8) visit(block->shared + address_of(row, k));
    }
  }
};

// A warp's part of an accumulator, 16 rows, and the registers that it is written to.
struct Accumulator {
  std::vector<float> values;     // Register by register, lane by lane.
  std::vector<void*> registers;  // Likewise.
  int products = 0;              // That have not been waited for.
};

constexpr int kWarps = 4;  // In a warpgroup.

// A product is under way once all warps of the warpgroup have issued it.
struct Product {
  uint64_t descriptor_a, descriptor_b;
  bool is_bfloat16, adds, negates;
  int columns, issued = 0;
  Stamp stamp;  // Its number in the warpgroup.
  Gathering issuers;
  ViewPointer checked_for;             // The last warp's, on whose behalf its reads of `b` were checked.
  std::unique_ptr<SharedMatrix> a, b;  // `a` is null where registers hold that operand.
  struct Part {
    std::shared_ptr<Accumulator> sum;
    float a[16][16];
  } parts[kWarps];
  bool is_done = false;

  void compute() {
    std::vector<float> right(16 * columns), result(columns);
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < columns; ++column) {
        right[k * columns + column] = half_to_float(b->element(column, k), is_bfloat16);
      }
    }
    for (int warp = 0; warp < kWarps; ++warp) {
      for (int row = 0; row < 16; ++row) {
        std::fill(result.begin(), result.end(), 0.0f);
        for (int k = 0; k < 16; ++k) {
          const float left = a ? half_to_float(a->element(warp * 16 + row, k), is_bfloat16) : parts[warp].a[row][k];
          for (int column = 0; column < columns; ++column) result[column] += left * right[k * columns + column];
        }
        add_row(*parts[warp].sum, row, result);
      }
    }
    is_done = true;
  }

  void add_row(Accumulator& sum, int row, const std::vector<float>& result) const {
    for (int column = 0; column < columns; ++column) {
      const int lane = row % 8 * 4 + column / 2 % 4, i = column / 8 * 4 + row / 8 * 2 + column % 2;
      float& value = sum.values[i * kLanes + lane];
      value = (adds ? value : 0) + (negates ? -result[column] : result[column]);
    }
  }
};

}  // namespace

// The products of a warp. The queue of its warpgroup is with the first of the four warps.
struct Products {
  std::vector<std::shared_ptr<Product>> open;
  std::deque<std::vector<std::shared_ptr<Product>>> groups;
  std::vector<std::shared_ptr<Accumulator>> sums;
  bool is_fenced = false;
  size_t issued = 0;

  std::deque<std::shared_ptr<Product>> queue;  // Not yet computed, in the order of issue.
  size_t done = 0;
  uint32_t engine = PhaseClock::kNone;  // Of the warpgroup, see clocks.h: the stamps count products from 1 on.

  void compute_next() {
    if (queue.empty() || queue.front()->issued < kWarps) return;
    queue.front()->compute();
    queue.pop_front();
    ++done;
  }
};

namespace {

Products& products_of(Warp& warp) {
  if (!warp.products) warp.products = std::make_shared<Products>();
  return *warp.products;
}

Warp& first_warp(Warp& warp) {
  return *warp.block->warps[warp.number / kWarps * kWarps];
}

// The accumulator in these registers, which hold poison from now on.
std::shared_ptr<Accumulator> sum_of(Products& products, void* const* arguments, size_t size) {
  void* const first = call_of(arguments, 0).target(0, 0);
  for (const auto& sum : products.sums) {
    if (sum->registers[0] == first && sum->registers.size() == size * kLanes) return sum;
  }
  if (!products.is_fenced) fail("wgmma without a wgmma.fence since its registers were last used");
  auto sum = std::make_shared<Accumulator>();
  for (size_t i = 0; i < size; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const Call& call = call_of(arguments, lane);
      sum->registers.push_back(call.target(0, i));
      sum->values.push_back(call.get_float(0, i));
      call.set(0, i, 0xffffffff);
    }
  }
  products.sums.push_back(sum);
  return sum;
}

// A product, as the first warp of the warpgroup issues it. The operands of wgmma are
// sum, a, b, whether to add to the sum, sign of a, sign of b{, whether a is MN-major}, whether b is.
std::shared_ptr<Product> make_product(const Call& call) {
  auto product = std::make_shared<Product>();
  product->columns = call.number("m64n");
  product->is_bfloat16 = call.has("bf16");
  const bool from_registers = call.words(1) == 4;
  const size_t last = call.operands() - 1;
  if (call.words(0) != size_t(product->columns) / 2 || last != (from_registers ? 6 : 7) || call.words(2) != 1) {
    fail("the emulator does not know '%s'", call.instruction.text.c_str());
  }
  product->adds = call.get(3);
  product->negates = call.get(4) != call.get(5);
  product->descriptor_a = from_registers ? 0 : call.get(1);
  product->descriptor_b = call.get(2);
  if (!from_registers) product->a = std::make_unique<SharedMatrix>(call.get(1), call.get(last - 1));
  product->b = std::make_unique<SharedMatrix>(call.get(2), call.get(last));
  return product;
}

// The warp issues the product as one, so what any of its lanes knows holds for all.
void note_reads(Warp& warp, Product& product, uint32_t engine) {
  ViewPointer view;
  for (Thread& thread : warp.threads) {
    view = join(view, thread.view);
    product.issuers.add(thread);
    ++thread.own.now;
  }
  const ProductReader reader(warp, view, engine, product.stamp);
  const auto note = [&](const char* chunk) { reader.note(chunk, 16); };
  if (product.a) product.a->for_each_chunk(warp.number % kWarps * 16, 16, note);
  // All four warps read b. Mostly they know the same.
  if (product.issued > 0 && product.checked_for == view) return;
  product.b->for_each_chunk(0, product.columns, note);
  product.checked_for = view;
}

void issue(Warp& warp, void* const* arguments) {
  const Call& call = call_of(arguments, 0);
  Products &products = products_of(warp), &warpgroup = products_of(first_warp(warp));
  const size_t position = products.issued++ - warpgroup.done;
  if (position == warpgroup.queue.size()) warpgroup.queue.push_back(make_product(call));
  if (warpgroup.engine == PhaseClock::kNone) warpgroup.engine = warp.block->engines++;
  const auto product = warpgroup.queue[position];
  const bool from_registers = !product->a;
  if (product->descriptor_b != call.get(2) || (!from_registers && product->descriptor_a != call.get(1)) ||
      product->columns != call.number("m64n")) {
    fail("warps of a warpgroup issue different products");
  }
  if (from_registers && !products.is_fenced) fail("wgmma without a wgmma.fence since its registers were last used");
  product->stamp = products.issued;
  note_reads(warp, *product, warpgroup.engine);
  Product::Part& part = product->parts[warp.number % kWarps];
  if (from_registers) read_a(arguments, 1, product->is_bfloat16, part.a);
  part.sum = sum_of(products, arguments, call.words(0));
  ++part.sum->products;
  products.open.push_back(product);
  if (++product->issued < kWarps) return;
  wake(product.get());
  const auto queue = first_warp(warp).products;
  later([queue] { queue->compute_next(); });
}

void finish(Warp& warp, Product& product) {
  while (!product.is_done) products_of(first_warp(warp)).compute_next();
  const auto sum = product.parts[warp.number % kWarps].sum;
  if (--sum->products) return;
  for (size_t i = 0; i < sum->registers.size(); ++i) memcpy(sum->registers[i], &sum->values[i], 4);
  std::erase(products_of(warp).sums, sum);
}

}  // namespace

void wgmma(const Call& call) {
  if (!multiplies_halves(call)) fail("the emulator does not know '%s'", call.instruction.text.c_str());
  execute_by_warp(call, issue);
}

void wgmma_fence(const Call& call) {
  execute_by_warp(call, [](Warp& warp, void* const*) { products_of(warp).is_fenced = true; });
}

void wgmma_commit(const Call& call) {
  execute_by_warp(call, [](Warp& warp, void* const*) {
    Products& products = products_of(warp);
    products.groups.push_back(std::move(products.open));
    products.open.clear();
  });
}

void wgmma_wait(const Call& call) {
  const auto& groups = products_of(warp()).groups;
  const size_t under_way = call.get(0), count = groups.size() > under_way ? groups.size() - under_way : 0;
  for (size_t group = 0; group < count; ++group) {
    // The groups do not change before all lanes have reached the collective below.
    for (const auto& product : groups[group]) {
      while (product->issued < kWarps) {
        sleep(product.get(), product->issued, [](const Thread& thread) {
          return text("a product that %d of 4 warps have issued", int(thread.detail));
        });
      }
    }
  }
  execute_by_warp(call, [](Warp& warp, void* const* arguments) {
    Products& products = products_of(warp);
    const size_t under_way = call_of(arguments, 0).get(0);
    Stamp done = 0;
    std::shared_ptr<Product> last;
    for (; products.groups.size() > under_way; products.groups.pop_front()) {
      for (const auto& product : products.groups.front()) {
        finish(warp, *product);
        done = product->stamp;
        last = product;
      }
    }
    if (done) {
      // A product begins when all four warps have issued it. What they read before, and have used, they have read; but
      // their writes need a barrier.
      auto view = std::make_shared<View>(*view_of_engine(warp.block->id, products_of(first_warp(warp)).engine, done));
      view->read = last->issuers.view()->known;
      for (Thread& thread : warp.threads) learn(thread, view);
    }
    products.is_fenced = false;
  });
}

void check_products_at_exit(Warp& warp) {
  if (!warp.products->groups.empty() || !warp.products->open.empty()) {
    fail("a warp ends without having waited for its products");
  }
}

}  // namespace emulator
