#include "ptx_forms.h"

#include <algorithm>

#include "ptx.h"

namespace emulator {

namespace {

struct Alternatives {
  std::string_view name, parts;
};

constexpr Alternatives kLists[] = {
    {"<integer>", "u16|u32|u64|s16|s32|s64"},
    {"<small>", "u8|s8|u16|u32|u64|s16|s32|s64"},
    {"<wide>", "u32|u64|s32|s64"},
    {"<bits>", "b16|b32|b64"},
    {"<address>", "u32|u64"},
    {"<data>", "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"},
    {"<half>", "f16|f16x2"},
    {"<bfloat>", "bf16|bf16x2"},
    {"<round>", "rn|rz|rm|rp"},
    {"<whole>", "rni|rzi|rmi|rpi"},
    {"<equality>", "eq|ne"},
    {"<order>", "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"},
    {"<float_order>", "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"},
    {"<logic>", "and|or|xor"},
    {"<space>", "global|local|const|shared|shared::cta|shared::cluster@90"},
    {"<writable>", "global|local|shared|shared::cta|shared::cluster@90"},
    {"<atomic_space>", "global|shared|shared::cta|shared::cluster@90"},
    {"<shared>", "shared|shared::cta"},
    {"<window>", "shared|shared::cta|shared::cluster@90"},
    {"<scope>", "cta|cluster@90|gpu|sys"},
    {"<atomic_order>", "relaxed|acquire|release|acq_rel"},
    // What caches keep changes no result.
    {"<load_cache>", "ca|cg|cs|lu|cv"},
    {"<store_cache>", "wb|cg|cs|wt"},
    {"<evict>", "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"},
    {"<policy>", "L2::cache_hint@80"},
    {"<prefetch>", "L2::64B|L2::128B|L2::256B@80"},
    {"<dimensions>", "1d|2d|3d|4d|5d"},
    {"<reduction>", "add|min|max|inc|dec|and|or|xor"},
};

constexpr Form kForms[] = {
    {"mov <bits>", move, 2},
    {"mov <integer>", move, 2},
    {"mov f32|f64|pred", move, 2},
    {"mov b128", move, 2},
    // ---- Integers
    {"add|sub <integer>", add_or_subtract, 3},
    {"add u16x2|s16x2", add_or_subtract, 3, 3, 90},
    {"add|sub sat s32", add_or_subtract, 3},
    {"add|sub cc <wide>", add_or_subtract, 3},
    {"addc|subc cc? <wide>", add_or_subtract, 3},
    {"mul lo|hi <integer>", multiply, 3},
    {"mul wide u16|u32|s16|s32", multiply, 3},
    {"mul24 lo|hi u32|s32", multiply, 3},
    {"mad lo|hi <integer>", multiply_add, 4},
    {"mad wide u16|u32|s16|s32", multiply_add, 4},
    {"mad hi sat s32", multiply_add, 4},
    {"mad lo|hi cc <wide>", multiply_add, 4},
    {"madc lo|hi cc? <wide>", multiply_add, 4},
    {"mad24 lo|hi u32|s32", multiply_add, 4},
    {"mad24 hi sat s32", multiply_add, 4},
    {"sad <integer>", absolute_difference, 4},
    {"div|rem <integer>", divide_integers, 3},
    {"abs|neg s16|s32|s64", absolute_or_negated, 2},
    {"min|max <integer>", least_or_most, 3},
    {"min|max relu? s16x2", least_or_most, 3, 3, 90},
    {"min|max u16x2", least_or_most, 3, 3, 90},
    {"min|max relu s32", least_or_most, 3, 3, 90},
    {"and|or|xor pred|b16|b32|b64", bitwise, 3},
    {"not pred|b16|b32|b64", bitwise, 2},
    {"cnot <bits>", bitwise, 2},
    {"lop3 b32", logic_of_three, 5},
    {"shl <bits>", shift, 3},
    {"shr b16|b32|b64|u16|u32|u64|s16|s32|s64", shift, 3},
    {"shf l|r clamp|wrap b32", funnel_shift, 4},
    {"prmt b32 f4e|b4e|rc8|ecl|ecr|rc16?", permute_bytes, 4},
    {"popc|clz|brev b32|b64", count_bits, 2},
    {"bfind shiftamt? <wide>", count_bits, 2},
    {"fns b32", find_nth_set, 4},
    {"bfe <wide>", bit_field, 4},
    {"bfi b32|b64", bit_field, 5},
    {"bmsk clamp|wrap b32", bit_field, 3},
    {"szext clamp|wrap u32|s32", bit_field, 3},
    {"dp4a u32|s32 u32|s32", dot_product, 4},
    {"dp2a lo|hi u32|s32 u32|s32", dot_product, 4},
    // ---- Floating point
    {"add|sub <round>? ftz? sat? f32", add_floats, 3},
    {"add|sub <round>? f64", add_floats, 3},
    {"add|sub rn? ftz? sat? <half>", add_floats, 3},
    {"add|sub rn? <bfloat>", add_floats, 3, 3, 90},
    {"mul <round>? ftz? sat? f32", multiply_floats, 3},
    {"mul <round>? f64", multiply_floats, 3},
    {"mul rn? ftz? sat? <half>", multiply_floats, 3},
    {"mul rn? <bfloat>", multiply_floats, 3, 3, 90},
    {"fma|mad <round> ftz? sat? f32", fused_multiply_add, 4},
    {"fma|mad <round> f64", fused_multiply_add, 4},
    {"fma rn ftz? sat? <half>", fused_multiply_add, 4},
    {"fma rn ftz? relu <half>", fused_multiply_add, 4, 4, 80},
    {"fma rn relu? <bfloat>", fused_multiply_add, 4, 4, 80},
    {"div <round>|approx|full ftz? f32", divide_floats, 3},
    {"div <round> f64", divide_floats, 3},
    {"rcp|sqrt <round> ftz? f32", unary_floats, 2},
    {"rcp|sqrt <round> f64", unary_floats, 2},
    {"rcp|sqrt|rsqrt|ex2|lg2|sin|cos approx ftz? f32", approximate, 2},
    {"rcp approx ftz f64", approximate, 2},
    {"rsqrt approx ftz? f64", approximate, 2},
    {"tanh approx f32|f16|f16x2|bf16@90|bf16x2@90", approximate, 2},
    {"ex2 approx <half>", approximate, 2},
    {"ex2 approx ftz <bfloat>", approximate, 2, 2, 90},
    {"abs|neg ftz? f32|f16|f16x2", unary_floats, 2},
    {"abs|neg f64|bf16@80|bf16x2@80", unary_floats, 2},
    {"min|max ftz? f32", least_or_most_floats, 3},
    {"min|max ftz? NaN f32", least_or_most_floats, 3, 3, 80},
    {"min|max ftz? NaN? xorsign abs f32", least_or_most_floats, 3, 3, 86},
    {"min|max f64", least_or_most_floats, 3},
    {"min|max ftz? NaN? <half>", least_or_most_floats, 3, 3, 80},
    {"min|max NaN? <bfloat>", least_or_most_floats, 3, 3, 80},
    {"min|max ftz? NaN? xorsign abs <half>", least_or_most_floats, 3, 3, 86},
    {"min|max NaN? xorsign abs <bfloat>", least_or_most_floats, 3, 3, 86},
    {"copysign f32|f64", copy_sign, 3},
    {"testp finite|infinite|number|notanumber|normal|subnormal f32|f64", test_property, 2},
    // ---- Comparisons
    {"setp <order> <integer>", set_predicate, 3},
    {"setp <order> <logic> <integer>", set_predicate, 4},
    {"setp <equality> <bits>", set_predicate, 3},
    {"setp <equality> <logic> <bits>", set_predicate, 4},
    {"setp <float_order> ftz? f32|f16|f16x2", set_predicate, 3},
    {"setp <float_order> <logic> ftz? f32|f16|f16x2", set_predicate, 4},
    {"setp <float_order> f64|bf16@90|bf16x2@90", set_predicate, 3},
    {"setp <float_order> <logic> f64|bf16@90|bf16x2@90", set_predicate, 4},
    {"set <order> u32|s32|f32 <integer>", set_value, 3},
    {"set <order> <logic> u32|s32|f32 <integer>", set_value, 4},
    {"set <equality> u32|s32|f32 <bits>", set_value, 3},
    {"set <equality> <logic> u32|s32|f32 <bits>", set_value, 4},
    {"set <float_order> ftz? u32|s32|f32 f32|f64", set_value, 3},
    {"set <float_order> <logic> ftz? u32|s32|f32 f32|f64", set_value, 4},
    {"set <float_order> <logic> ftz? f16|u16|s16|u32|s32 f16", set_value, 4},
    {"set <float_order> <logic> ftz? f16x2|u32|s32 f16x2", set_value, 4},
    {"set <float_order> ftz? f16|u16|s16|u32|s32 f16", set_value, 3},
    {"set <float_order> ftz? f16x2|u32|s32 f16x2", set_value, 3},
    {"set <float_order> bf16|u16|s16|u32|s32 bf16", set_value, 3, 3, 90},
    {"set <float_order> bf16x2|u32|s32 bf16x2", set_value, 3, 3, 90},
    {"selp <bits>", select, 4},
    {"selp <integer>", select, 4},
    {"selp f32|f64", select, 4},
    {"slct <bits> s32", select_by_sign, 4},
    {"slct <integer> s32", select_by_sign, 4},
    {"slct f32|f64 s32", select_by_sign, 4},
    {"slct ftz? <bits> f32", select_by_sign, 4},
    {"slct ftz? <integer> f32", select_by_sign, 4},
    {"slct ftz? f32|f64 f32", select_by_sign, 4},
    // ---- Conversions
    {"cvt sat? <small> <small>", convert, 2},
    {"cvt <whole> ftz? sat? <small> f32", convert, 2},
    {"cvt <whole> sat? <small> f64|f16", convert, 2},
    {"cvt <whole> sat? <integer> bf16", convert, 2, 2, 90},
    {"cvt <round> sat? f64|f16 <small>", convert, 2},
    {"cvt <round> bf16 <integer>", convert, 2, 2, 90},
    {"cvt <round> ftz? sat? f32 <small>", convert, 2},
    {"cvt <whole>? ftz? sat? f32 f32", convert, 2},
    {"cvt <whole>? sat? f64 f64", convert, 2},
    {"cvt <whole>? sat? f16 f16", convert, 2},
    {"cvt <whole> bf16 bf16", convert, 2, 2, 90},
    {"cvt <round> ftz? sat? f32 f64", convert, 2},
    {"cvt <round> sat? f16 f64", convert, 2},
    {"cvt <round> ftz? sat? f16 f32", convert, 2},
    {"cvt ftz? sat? f64 f32", convert, 2},
    {"cvt ftz? sat? f32 f16", convert, 2},
    {"cvt sat? f64 f16", convert, 2},
    {"cvt ftz? f32 bf16", convert, 2, 2, 80},
    {"cvt <round> bf16 f16|f64", convert, 2, 2, 90},
    {"cvt <round> f16 bf16", convert, 2, 2, 90},
    {"cvt f64 bf16", convert, 2, 2, 90},
    {"cvt rn|rz relu satfinite? f16 f32", convert, 2, 2, 80},
    {"cvt rn|rz satfinite f16 f32", convert, 2, 2, 80},
    {"cvt rn|rz relu? satfinite? bf16 f32", convert, 2, 2, 80},
    {"cvt rn|rz relu? satfinite? f16x2|bf16x2 f32", convert, 3, 3, 80},
    {"cvt rna satfinite? tf32 f32", convert, 2, 2, 80},
    {"cvt rn|rz relu? satfinite? tf32 f32", convert, 2, 2, 90},
    {"cvt rn satfinite relu? e4m3x2|e5m2x2 f32", convert, 3, 3, 89},
    {"cvt rn satfinite relu? e4m3x2|e5m2x2 f16x2", convert, 2, 2, 89},
    {"cvt rn relu? f16x2 e4m3x2|e5m2x2", convert, 2, 2, 89},
    {"cvt pack sat u16|s16 s32", convert_packed, 3},
    {"cvt pack sat u8|s8 s32 b32", convert_packed, 4},
    {"cvta to? global|local|const|shared|shared::cta|shared::cluster@90 <address>", convert_address, 2},
    {"isspacep global|local|const|shared|shared::cta|shared::cluster@90", is_space, 2},
    // ---- Memory
    {"ld weak? <space>? <load_cache>? <evict>? <policy>? <prefetch>? v2|v4? <data>", load, 2},
    {"ld volatile <space>? <prefetch>? v2|v4? <data>", load, 2},
    {"ld relaxed|acquire <scope> <atomic_space>? <evict>? <policy>? <prefetch>? v2|v4? <data>", load, 2},
    {"ld weak? <space>? <load_cache>? <evict>? <policy>? <prefetch>? b128", load, 2},
    {"ld volatile <space>? <prefetch>? b128", load, 2},
    {"ld relaxed|acquire <scope> <atomic_space>? <evict>? <policy>? <prefetch>? b128", load, 2},
    {"ld mmio relaxed sys global? <data>", load, 2},
    {"ld global nc ca|cg|cs? <evict>? <policy>? <prefetch>? v2|v4? <data>", load, 2},
    {"ldu global? v2|v4? <data>", load, 2},
    {"st weak? <writable>? <store_cache>? <evict>? <policy>? v2|v4? <data>", store, 2},
    {"st volatile <writable>? v2|v4? <data>", store, 2},
    {"st relaxed|release <scope> <atomic_space>? <evict>? <policy>? v2|v4? <data>", store, 2},
    {"st weak? <writable>? <store_cache>? <evict>? <policy>? b128", store, 2},
    {"st volatile <writable>? b128", store, 2},
    {"st relaxed|release <scope> <atomic_space>? <evict>? <policy>? b128", store, 2},
    {"st mmio relaxed sys global? <data>", store, 2},
    {"atom <atomic_order>? <scope>? <atomic_space>? and|or|xor <policy>? b32|b64", atomic, 3},
    {"atom <atomic_order>? <scope>? <atomic_space>? exch <policy>? b32|b64", atomic, 3},
    {"atom <atomic_order>? <scope>? <atomic_space>? cas <policy>? <bits>", atomic, 4},
    {"atom <atomic_order>? <scope>? <atomic_space>? exch <policy>? b128", atomic, 3, 3, 90},
    {"atom <atomic_order>? <scope>? <atomic_space>? cas <policy>? b128", atomic, 4, 4, 90},
    {"atom <atomic_order>? <scope>? <atomic_space>? add <policy>? u32|s32|u64|f32|f64", atomic, 3},
    {"atom <atomic_order>? <scope>? <atomic_space>? inc|dec <policy>? u32", atomic, 3},
    {"atom <atomic_order>? <scope>? <atomic_space>? min|max <policy>? <wide>", atomic, 3},
    {"atom <atomic_order>? <scope>? <atomic_space>? add noftz <policy>? f16|f16x2|bf16@90|bf16x2@90", atomic, 3},
    {"atom <atomic_order>? <scope>? global? add <policy>? v2|v4 f32", atomic, 3, 3, 90},
    {"atom <atomic_order>? <scope>? global? add|min|max noftz <policy>? v2|v4|v8 f16|bf16", atomic, 3, 3, 90},
    {"atom <atomic_order>? <scope>? global? add|min|max noftz <policy>? v2|v4 f16x2|bf16x2", atomic, 3, 3, 90},
    {"red relaxed|release? <scope>? <atomic_space>? and|or|xor <policy>? b32|b64", atomic, 2},
    {"red relaxed|release? <scope>? <atomic_space>? add <policy>? u32|s32|u64|f32|f64", atomic, 2},
    {"red relaxed|release? <scope>? <atomic_space>? inc|dec <policy>? u32", atomic, 2},
    {"red relaxed|release? <scope>? <atomic_space>? min|max <policy>? <wide>", atomic, 2},
    {"red relaxed|release? <scope>? <atomic_space>? add noftz <policy>? f16|f16x2|bf16@90|bf16x2@90", atomic, 2},
    {"red relaxed|release? <scope>? global? add <policy>? v2|v4 f32", atomic, 2, 2, 90},
    {"red relaxed|release? <scope>? global? add|min|max noftz <policy>? v2|v4|v8 f16|bf16", atomic, 2, 2, 90},
    {"red relaxed|release? <scope>? global? add|min|max noftz <policy>? v2|v4 f16x2|bf16x2", atomic, 2, 2, 90},
    {"mapa shared::cluster? <address>", map_to_block, 3, 3, 90},
    {"getctarank shared::cluster? <address>", block_rank_of, 2, 2, 90},
    {"fence sc|acq_rel? <scope>", fence_memory, 0},
    {"fence mbarrier_init release cluster", fence_mbarriers, 0, 0, 90},
    {"fence proxy alias", no_operation, 0},
    {"fence proxy async", fence_async, 0, 0, 90},
    {"fence proxy async shared::cta|shared::cluster", fence_async, 0, 0, 90},
    {"fence proxy async global", no_operation, 0, 0, 90},  // The copy engine sees global memory as threads do.
    {"fence proxy tensormap::generic release <scope>", no_operation, 0, 0, 90},
    {"fence proxy tensormap::generic acquire <scope>", no_operation, 2, 2, 90},
    {"membar cta|gl|sys", fence_memory, 0},
    {"membar proxy alias", no_operation, 0},
    {"prefetch global|local? L1|L2", no_operation, 1},
    {"prefetch global L2::evict_last|L2::evict_normal", no_operation, 1, 1, 80},
    {"prefetch const|param? tensormap", no_operation, 1, 1, 90},
    {"prefetchu L1", no_operation, 1},
    {"applypriority global? L2::evict_normal", no_operation, 2, 2, 80},
    {"discard global? L2", discard, 2, 2, 80},
    {"createpolicy fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "L2::evict_first|L2::evict_unchanged? b64",
     make_policy,
     1,
     2,
     80},
    {"createpolicy range global? L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "L2::evict_first|L2::evict_unchanged? b64",
     make_policy,
     4,
     4,
     80},
    {"createpolicy cvt L2 b64", make_policy, 2, 2, 80},
    // ---- Control
    {"griddepcontrol launch_dependents|wait", no_operation, 0, 0, 90},
    {"nanosleep u32", pause_thread, 1},
    {"pmevent mask?", no_operation, 1},
    {"bra uni?", branch, 1},
    {"trap", trap_thread, 0},
    // ---- Warps and blocks
    {"shfl sync up|down|bfly|idx b32", shuffle, 5},
    {"vote sync all|any|uni pred", vote, 3},
    {"vote sync ballot b32", vote, 3},
    {"match any|all sync b32|b64", match, 3},
    {"redux sync add|min|max u32|s32", reduce, 3, 3, 80},
    {"redux sync and|or|xor b32", reduce, 3, 3, 80},
    {"activemask b32", active_mask, 1},
    {"elect sync", elect, 2, 2, 90},
    {"bar warp sync", warp_barrier, 1},
    {"bar cta? sync", named_barrier, 1, 2},
    {"bar cta? arrive", named_barrier, 2},
    {"barrier cta? sync aligned?", named_barrier, 1, 2},
    {"barrier cta? arrive aligned?", named_barrier, 2},
    {"bar cta? red popc u32", reduce_at_barrier, 3, 4},
    {"bar cta? red and|or pred", reduce_at_barrier, 3, 4},
    {"barrier cta? red popc aligned? u32", reduce_at_barrier, 3, 4},
    {"barrier cta? red and|or aligned? pred", reduce_at_barrier, 3, 4},
    {"barrier cluster arrive release|relaxed? aligned?", cluster_arrive, 0, 0, 90},
    {"barrier cluster wait acquire? aligned?", cluster_wait, 0, 0, 90},
    {"setmaxnreg inc|dec sync aligned u32", set_registers, 1, 1, 90},
    {"mbarrier init <shared>? b64", mbarrier_init, 2, 2, 80},
    {"mbarrier inval <shared>? b64", mbarrier_invalidate, 1, 1, 80},
    {"mbarrier arrive|arrive_drop <shared>? b64", mbarrier_arrive, 2, 3, 80},
    {"mbarrier arrive|arrive_drop release|relaxed? cta|cluster? <window>? b64", mbarrier_arrive, 2, 3, 90},
    {"mbarrier arrive|arrive_drop expect_tx release|relaxed? cta|cluster? <window>? b64", mbarrier_arrive, 3, 3, 90},
    {"mbarrier arrive|arrive_drop noComplete release? cta? <shared>? b64", mbarrier_arrive, 3, 3, 80},
    {"mbarrier expect_tx|complete_tx relaxed? cta|cluster? <window>? b64", mbarrier_expect, 2, 2, 90},
    {"mbarrier test_wait parity? <shared>? b64", mbarrier_wait, 3, 3, 80},
    {"mbarrier test_wait parity? acquire|relaxed? cta|cluster? <shared>? b64", mbarrier_wait, 3, 3, 90},
    {"mbarrier try_wait parity? acquire|relaxed? cta|cluster? <shared>? b64", mbarrier_wait, 3, 4, 90},
    // ---- Asynchronous copies
    {"cp async ca|cg <shared> global <policy>? <prefetch>?", cp_async, 3, 4, 80},
    {"cp async commit_group", cp_async_commit, 0, 0, 80},
    {"cp async wait_group", cp_async_wait, 1, 1, 80},
    {"cp async wait_all", cp_async_wait, 0, 0, 80},
    {"cp async mbarrier arrive noinc? <shared>? b64", cp_async_arrive, 1, 1, 80},
    {"cp async bulk shared::cta|shared::cluster global mbarrier::complete_tx::bytes <policy>?", bulk_load, 4, 4, 90},
    {"cp async bulk shared::cluster global mbarrier::complete_tx::bytes multicast::cluster <policy>?",
     bulk_load,
     4,
     4,
     90},
    {"cp async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes", bulk_send, 4, 4, 90},
    {"st async weak? shared::cluster? mbarrier::complete_tx::bytes v2|v4? b32|u32|s32|f32", send_registers, 3, 3, 90},
    {"st async weak? shared::cluster? mbarrier::complete_tx::bytes v2? b64|u64|s64|f64", send_registers, 3, 3, 90},
    {"cp async bulk global shared::cta bulk_group <policy>?", bulk_store, 3, 3, 90},
    {"cp reduce async bulk global shared::cta bulk_group <policy>? and|or|xor b32|b64", bulk_store, 3, 3, 90},
    {"cp reduce async bulk global shared::cta bulk_group <policy>? add u32|s32|u64|f32|f64", bulk_store, 3, 3, 90},
    {"cp reduce async bulk global shared::cta bulk_group <policy>? inc|dec u32", bulk_store, 3, 3, 90},
    {"cp reduce async bulk global shared::cta bulk_group <policy>? min|max <wide>", bulk_store, 3, 3, 90},
    {"cp reduce async bulk global shared::cta bulk_group <policy>? add noftz f16|bf16", bulk_store, 3, 3, 90},
    {"cp reduce async bulk global shared::cta bulk_group <policy>? min|max f16|bf16", bulk_store, 3, 3, 90},
    {"cp async bulk commit_group", bulk_commit, 0, 0, 90},
    {"cp async bulk wait_group read?", bulk_wait, 1, 1, 90},
    {"cp async bulk prefetch L2 global <policy>?", no_operation, 2, 2, 90},
    {"cp async bulk prefetch tensor <dimensions> L2 global tile? <policy>?", no_operation, 1, 1, 90},
    {"cp async bulk tensor <dimensions> shared::cta|shared::cluster global tile? mbarrier::complete_tx::bytes <policy>?",
     tensor_load,
     3,
     3,
     90},
    {"cp async bulk tensor <dimensions> shared::cluster global tile? mbarrier::complete_tx::bytes multicast::cluster "
     "<policy>?",
     tensor_load,
     3,
     3,
     90},
    {"cp async bulk tensor <dimensions> global shared::cta tile? bulk_group <policy>?", tensor_store, 2, 2, 90},
    {"cp reduce async bulk tensor <dimensions> global shared::cta <reduction> tile? bulk_group <policy>?",
     tensor_store,
     2,
     2,
     90},
    // ---- Matrices
    {"ldmatrix sync aligned m8n8 x1|x2|x4 trans? <shared>? b16", ldmatrix, 2, 2, 75},
    {"stmatrix sync aligned m8n8 x1|x2|x4 trans? <shared>? b16", stmatrix, 2, 2, 90},
    {"movmatrix sync aligned m8n8 trans b16", movmatrix, 2, 2, 75},
    {"mma sync aligned m16n8k8|m16n8k16@80 row col f16 f16 f16 f16", mma, 4},
    {"mma sync aligned m16n8k8|m16n8k16@80 row col f32 f16 f16 f32", mma, 4},
    {"mma sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32", mma, 4, 4, 80},
    {"mma sync aligned m16n8k4|m16n8k8 row col f32 tf32 tf32 f32", mma, 4, 4, 80},
    {"mma sync aligned m16n8k16|m16n8k32 row col f32 e4m3|e5m2 e4m3|e5m2 f32", mma, 4, 4, 89},
    {"mma sync aligned m16n8k16|m16n8k32 row col f16 e4m3|e5m2 e4m3|e5m2 f16", mma, 4, 4, 89},
    {"mma sync aligned m8n8k16|m16n8k16@80|m16n8k32@80 row col satfinite? s32 u8|s8 u8|s8 s32", mma, 4},
    {"mma sync aligned m8n8k32|m16n8k32@80|m16n8k64@80 row col satfinite? s32 u4|s4 u4|s4 s32", mma, 4},
    {"mma sync aligned m8n8k128|m16n8k128@80|m16n8k256@80 row col s32 b1 b1 s32 xor|and@80 popc", mma, 4},
    {"mma sync aligned m8n8k4|m16n8k4@90|m16n8k8@90|m16n8k16@90 row col <round>? f64 f64 f64 f64", mma, 4, 4, 80},
    {"wgmma mma_async sync aligned m64n#k16 f32|f16 f16 f16", wgmma, 7, 8, 90},
    {"wgmma mma_async sync aligned m64n#k16 f32 bf16 bf16", wgmma, 7, 8, 90},
    {"wgmma mma_async sync aligned m64n#k8 f32 tf32 tf32", wgmma, 6, 6, 90},
    {"wgmma mma_async sync aligned m64n#k32 f32|f16 e4m3|e5m2 e4m3|e5m2", wgmma, 6, 6, 90},
    {"wgmma mma_async sync aligned m64n#k32 satfinite? s32 s8|u8 s8|u8", wgmma, 4, 4, 90},
    {"wgmma fence sync aligned", wgmma_fence, 0, 0, 90},
    {"wgmma commit_group sync aligned", wgmma_commit, 0, 0, 90},
    {"wgmma wait_group sync aligned", wgmma_wait, 1, 1, 90},
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Whether a part is this alternative, in which `#` stands for a number.
bool is_part(std::string_view part, std::string_view alternative) {
  const size_t mark = alternative.find('#');
  if (mark == std::string_view::npos) return part == alternative;
  const std::string_view before = alternative.substr(0, mark), after = alternative.substr(mark + 1);
  if (part.size() <= before.size() + after.size() || !part.starts_with(before) || !part.ends_with(after)) return false;
  const std::string_view number = part.substr(before.size(), part.size() - before.size() - after.size());
  return number[0] != '0' && std::all_of(number.begin(), number.end(), isdigit);
}

// The capability that a part needs as one of a word's alternatives, or -1 where it is none of them.
int capability_of(std::string_view part, std::string_view word) {
  for (const std::string_view alternative : split(word, '|')) {
    if (alternative.starts_with('<')) {
      const auto list = std::find_if(
          std::begin(kLists), std::end(kLists), [&](const Alternatives& list) { return list.name == alternative; });
      if (list == std::end(kLists)) fail("the emulator's forms name %.*s", int(alternative.size()), alternative.data());
      if (const int capability = capability_of(part, list->parts); capability >= 0) return capability;
      continue;
    }
    const size_t mark = alternative.find('@');
    if (!is_part(part, alternative.substr(0, mark))) continue;
    return mark == std::string_view::npos ? 0 : atoi(alternative.data() + mark + 1);
  }
  return -1;
}

struct Fit {
  bool fits = false;
  int capability = 0;
  size_t taken = 0;         // Parts.
  std::string_view beside;  // The first part that the form does not take; empty where it lacks one.
};

Fit fit(const Form& form, const std::vector<std::string>& parts) {
  std::vector<bool> is_taken(parts.size());
  size_t next_type = 0;  // Types keep their order.
  bool is_whole = true;
  Fit result;
  for (std::string_view word : split(form.text, ' ')) {
    const bool is_optional = word.ends_with('?');
    if (is_optional) word.remove_suffix(1);
    const bool is_name = &word.front() == form.text;
    size_t place = 0, end = is_name ? 1 : parts.size();
    int capability = -1;
    for (; place < end; ++place) {
      if (is_taken[place] || (type_of(parts[place]) != Type::kNone && place < next_type)) continue;
      if ((capability = capability_of(parts[place], word)) >= 0) break;
    }
    if (capability < 0) {
      if (is_name) return {};
      is_whole = is_whole && is_optional;
      continue;
    }
    is_taken[place] = true;
    ++result.taken;
    if (type_of(parts[place]) != Type::kNone) next_type = place + 1;
    result.capability = std::max(result.capability, capability);
  }
  const auto beside = std::find(is_taken.begin(), is_taken.end(), false);
  if (beside != is_taken.end()) result.beside = parts[beside - is_taken.begin()];
  result.fits = is_whole && result.beside.empty();
  return result;
}

}  // namespace

Match form_of(const std::vector<std::string>& parts) {
  Match match;
  Fit best;
  for (const Form& form : kForms) {
    const Fit candidate = fit(form, parts);
    if (candidate.fits) return {&form, std::max(form.capability, candidate.capability), {}};
    if (candidate.taken > best.taken) best = candidate;
  }
  if (best.taken == 0) {
    match.fault = "the emulator does not know the instruction";
  } else if (best.beside.empty()) {
    match.fault = "the emulator does not know the instruction without a further qualifier or type,";
  } else {
    match.fault = "the emulator does not know the qualifier '." + std::string(best.beside) + "' of the instruction";
  }
  return match;
}

int further_operands(const std::vector<std::string>& parts) {
  constexpr std::string_view kTaking[] = {"L2::cache_hint", "multicast::cluster"};
  return int(std::count_if(parts.begin(), parts.end(), [&](const std::string& part) {
    return std::find(std::begin(kTaking), std::end(kTaking), part) != std::end(kTaking);
  }));
}

}  // namespace emulator
