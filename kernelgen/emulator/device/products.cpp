// Products of a warpgroup: wgmma.
//
// A product is computed at some time between its issue and the wait for its group. From the first issue to that wait,
// the registers of the sum hold poison.

#include <algorithm>
#include <deque>

#include "accesses.h"
#include "matrices.h"

namespace emulator {

namespace {

// An operand in shared memory, 32 bytes long in the inner dimension (k), by its 64-bit matrix descriptor. PTX ISA:
// "Matrix Descriptor Format" and the canonical layouts.
struct SharedMatrix {
  Block* block;
  Type type;
  uint32_t size, start, leading, stride, swizzle_bits, width;
  bool mn_major;  // Rows, not k, are adjacent in memory: of 16-bit elements only.

  SharedMatrix(Type type, uint64_t descriptor, bool mn_major)
      : block(&emulator::block()), type(type), size(bits_of(type) / 8), mn_major(mn_major) {
    start = (descriptor & 0x3fff) << 4;
    leading = (descriptor >> 16 & 0x3fff) << 4;
    stride = (descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 49 & 7) fail("the emulator knows matrix descriptors with base offset 0 only");
    constexpr int kBits[] = {0, 3, 2, 1};
    swizzle_bits = kBits[descriptor >> 62];
    width = 16u << swizzle_bits;
  }

  // Calls visit(row, k, value) for the elements of some rows from `first` on, in pieces of 16 bytes.
  template <typename F>
  void for_each_element(int first, int rows, const F& visit) const {
    switch (type) {
      case Type::kF16:
        return for_each_decoded<uint16_t>(
            first, rows, visit, [values = half_values()](uint16_t bits) { return values[bits]; });
      case Type::kBf16:
        return for_each_decoded<uint16_t>(first, rows, visit, [](uint16_t bits) { return bfloat_value(bits); });
      case Type::kTf32:
        return for_each_decoded<uint32_t>(
            first, rows, visit, [](uint32_t bits) { return element_value(Type::kTf32, bits); });
      default:
        return for_each_decoded<uint8_t>(
            first, rows, visit, [this](uint8_t bits) { return element_value(type, bits); });
    }
  }

  template <typename Bits, typename F, typename Decode>
  void for_each_decoded(int first, int rows, const F& visit, const Decode& decode) const {
    constexpr int kElements = 16 / sizeof(Bits), kDepth = 32 / sizeof(Bits);
    for (int row = first; row < first + rows; row += mn_major ? 8 : 1) {
      for (int k = 0; k < kDepth; k += mn_major ? 1 : kElements) {
        Bits piece[kElements];
        memcpy(piece, block->async_shared + address_of(row, k), sizeof(piece));
        for (int i = 0; i < kElements; ++i) visit(mn_major ? row + i : row, mn_major ? k : k + i, decode(piece[i]));
      }
    }
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
      const int chunk = k * size / 16;
      offset = row % 8 * width + row / 8 * stride + chunk * (swizzle_bits ? 16 : leading) + k * size % 16;
    }
    uint32_t address = start + offset;
    address ^= (address >> 7 & ((1u << swizzle_bits) - 1)) << 4;
    return address;
  }

  // Calls visit(address) for the pieces of 16 bytes that some rows from `first` on lie in.
  template <typename F>
  void for_each_chunk(int first, int rows, const F& visit) const {
    for (int row = first; row < first + rows; row += mn_major ? 8 : 1) {
      for (uint32_t k = 0; k < 32 / size; k += mn_major ? 1 : 16 / size) visit(block->shared + address_of(row, k));
    }
  }
};

// A warp's part of an accumulator, 16 rows, and the registers that it is written to.
struct Accumulator {
  Type type;
  std::vector<double> values;    // Element by element, lane by lane.
  std::vector<void*> registers;  // Register by register, lane by lane.
  int products = 0;              // That have not been waited for.

  // The registers' elements: two of float16 lie in each.
  int count() const { return elements_of_register(type); }
  double read(uint32_t bits) const {
    if (type == Type::kF32) return std::bit_cast<float>(bits);
    if (type == Type::kS32) return int32_t(bits);
    return half_value(uint16_t(bits));
  }
  uint32_t bits(double value) const {
    if (type == Type::kF32) return std::bit_cast<uint32_t>(canonical(float(value)));
    return type == Type::kS32 ? uint32_t(int64_t(value)) : half_bits(value);
  }
  // Of whole numbers, or of float16.
  void add(double& value, double addend, bool saturates) const {
    double sum = value + addend;
    if (type == Type::kS32) {
      sum = saturates ? std::min(std::max(sum, double(INT32_MIN)), double(INT32_MAX)) : int32_t(uint32_t(int64_t(sum)));
    } else {
      sum = half_value(half_bits(sum));
    }
    value = sum;
  }
  void write() const {
    for (size_t i = 0; i < registers.size(); ++i) {
      uint32_t word = 0;
      for (int j = 0; j < count(); ++j) {
        word |= bits(values[(i / kLanes * count() + j) * kLanes + i % kLanes]) << (16 * j % 32);
      }
      memcpy(registers[i], &word, 4);
    }
  }
};

constexpr int kWarps = 4;  // In a warpgroup.
constexpr int kMostColumns = 256, kMostDepth = 32;

// What takes longest: as wide as the processor can. Products are not fused with sums, so all give the same bits.
#ifdef __x86_64__
#define AS_WIDE_AS_CAN_BE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define AS_WIDE_AS_CAN_BE
#endif
AS_WIDE_AS_CAN_BE void add_multiple(float* sums, const float* addends, float factor, int count) {
  for (int i = 0; i < count; ++i) sums[i] += factor * addends[i];
}
void add_multiple(double* sums, const double* addends, double factor, int count) {
  for (int i = 0; i < count; ++i) sums[i] += factor * addends[i];
}

// A product is under way once all warps of the warpgroup have issued it.
struct Product {
  uint64_t descriptor_a, descriptor_b;
  bool adds, negates, saturates;
  Type type_a;
  int columns, depth, issued = 0;  // m64n{columns}k{depth}.
  Stamp stamp;                     // Its number in the warpgroup.
  Gathering issuers;
  ViewPointer checked_for;             // The last warp's, on whose behalf its reads of `b` were checked.
  std::unique_ptr<SharedMatrix> a, b;  // `a` is null where registers hold that operand.
  struct Part {
    std::shared_ptr<Accumulator> sum;
    std::vector<double> a;
  } parts[kWarps];
  bool is_done = false;

  void compute() {
    parts[0].sum->type == Type::kS32 ? compute_as<double>() : compute_as<float>();
    is_done = true;
  }

  // T is exact for the operands, and for sums of integers.
  template <typename T>
  void compute_as() {
    T left[64 * kMostDepth], right[kMostDepth * kMostColumns], result[kMostColumns];
    b->for_each_element(0, columns, [&](int column, int k, double value) { right[k * columns + column] = T(value); });
    if (a) a->for_each_element(0, 64, [&](int row, int k, double value) { left[row * depth + k] = T(value); });
    for (int warp = 0; warp < kWarps; ++warp) {
      if (!a) std::copy(parts[warp].a.begin(), parts[warp].a.end(), left + warp * 16 * depth);
      for (int row = 0; row < 16; ++row) {
        std::fill_n(result, columns, T(0));
        const T* const factors = left + (warp * 16 + row) * depth;
        for (int k = 0; k < depth; ++k) add_multiple(result, right + k * columns, factors[k], columns);
        add_row(*parts[warp].sum, row, result);
      }
    }
  }

  // Of eight columns in turn, each of four lanes has two.
  template <typename T>
  void add_row(Accumulator& sum, int row, const T* result) const {
    const bool is_float = sum.type == Type::kF32;
    for (int column = 0; column < columns; column += 8) {
      double* const values = &sum.values[(column / 8 * 4 + row / 8 * 2) * kLanes + row % 8 * 4];
      if (!adds) {
        std::fill_n(values, 4, 0);
        std::fill_n(values + kLanes, 4, 0);
      }
      for (int i = 0; i < 8; ++i) {
        double& value = values[i % 2 * kLanes + i / 2];
        const T addend = negates ? -result[column + i] : result[column + i];
        if (is_float) {
          value = float(value) + float(addend);
        } else {
          sum.add(value, addend, saturates);
        }
      }
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
  auto sum = std::make_shared<Accumulator>(call_of(arguments, 0).instruction.types[0]);
  sum->values.resize(size * sum->count() * kLanes);
  sum->registers.reserve(size * kLanes);
  for (size_t i = 0; i < size; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const Call& call = call_of(arguments, lane);
      sum->registers.push_back(call.target(0, i));
      const uint32_t word = call.get(0, i);
      for (int j = 0; j < sum->count(); ++j) {
        sum->values[(i * sum->count() + j) * kLanes + lane] = sum->read(word >> (16 * j % 32));
      }
      call.set(0, i, 0xffffffff);
    }
  }
  products.sums.push_back(sum);
  return sum;
}

// A product, as the first warp of the warpgroup issues it. The operands of wgmma are
// sum, a, b, whether to add to the sum{, sign of a, sign of b}{, whether a is MN-major}{, whether b is}: the signs of
// floating-point numbers, and the rest of 16-bit ones.
std::shared_ptr<Product> make_product(const Call& call) {
  auto product = std::make_shared<Product>();
  const auto& types = call.instruction.types;
  const bool from_registers = call.words(1) == 4, is_integer_type = types[0] == Type::kS32;
  const bool has_majors = bits_of(types[1]) == 16;
  const size_t operands = is_integer_type ? 4 : !has_majors ? 6 : from_registers ? 7 : 8;
  product->columns = call.number("m64n");
  product->depth = 256 / bits_of(types[1]);
  product->type_a = types[1];
  const size_t registers = size_t(product->columns) / 2 / elements_of_register(types[0]);
  const int step = is_integer_type && product->columns > 24 ? 16 : 8;
  if (product->columns % step || product->columns > 256 || call.words(0) != registers || call.operands() != operands ||
      call.words(2) != 1) {
    fail_unknown(call);
  }
  product->adds = call.get(3);
  product->negates = !is_integer_type && call.get(4) != call.get(5);
  product->saturates = call.has("satfinite");
  product->descriptor_a = from_registers ? 0 : call.get(1);
  product->descriptor_b = call.get(2);
  const auto is_mn_major = [&](size_t operand) { return has_majors && call.get(operand); };
  if (!from_registers) product->a = std::make_unique<SharedMatrix>(types[1], call.get(1), is_mn_major(6));
  product->b = std::make_unique<SharedMatrix>(types[2], call.get(2), is_mn_major(operands - 1));
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
  if (from_registers) part.a = left_matrix(arguments, 1, product->type_a, 16, product->depth);
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
  sum->write();
  std::erase(products_of(warp).sums, sum);
}

}  // namespace

void wgmma(const Call& call) {
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
