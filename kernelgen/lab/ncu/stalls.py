"""Why a warp that is there issues nothing: Nsight Compute's reasons, what each means, and what to look at next.

The reasons are those of the Kernel Profiling Guide of Nsight Compute (NVIDIA), in words of our own.
"""

# By the name in `smsp__average_warps_issue_stalled_<name>_per_issue_active`: what a warp waits for, and what may help.
STALLS = {
    "long_scoreboard": (
        "data from device memory, L2 or local memory",
        "have more independent loads in flight before the first use: unroll, load ahead into registers or shared "
        "memory (cp.async, TMA), widen loads to 16 bytes, or raise occupancy",
    ),
    "short_scoreboard": (
        "data from shared memory or from the special-function unit",
        "look at bank conflicts, keep values in registers, use shuffles for small exchanges, and fewer exp, rsqrt and "
        "divisions",
    ),
    "barrier": (
        "the other warps of its block at a barrier",
        "even out the work between warps, make blocks smaller, or replace __syncthreads by a named or an asynchronous "
        "barrier",
    ),
    "math_pipe_throttle": (
        "an arithmetic unit that is busy",
        "this is a good sign in a kernel that computes; else use fewer instructions of that kind",
    ),
    "wait": (
        "the fixed latency of its own last instruction",
        "interleave independent instructions: unroll, or give each thread more elements",
    ),
    "lg_throttle": (
        "room in the queue of loads and stores to memory",
        "issue fewer and wider ones: 16 bytes a thread, coalesced",
    ),
    "mio_throttle": (
        "room in the queue of shared memory, special functions and dynamic branches",
        "issue fewer and wider accesses to shared memory",
    ),
    "tex_throttle": ("room in the queue of the texture unit", "load through the ordinary path, or fewer and wider"),
    "gmma": (
        "a wgmma that runs",
        "that is where a matrix kernel should wait; if the tensor cores are not busy, keep more products in flight",
    ),
    "membar": ("a memory fence", "use fewer or narrower fences: block scope instead of device scope"),
    "drain": ("its last stores to leave", "store coalesced, and earlier"),
    "imc_miss": ("a constant that is not in its cache", "index constants alike in all threads of a warp"),
    "no_instruction": ("its next instruction to be fetched", "make the code shorter: unroll less"),
    "branch_resolving": ("a branch to be resolved", "use fewer branches: predicate, or unroll"),
    "dispatch_stall": ("the dispatcher", "look at register bank conflicts; rare otherwise"),
    "sleeping": ("the end of a __nanosleep", "poll less, or wait on a barrier instead"),
    "misc": ("something without a name of its own", "look at the source view of Nsight Compute"),
    "not_selected": (
        "its turn: another warp was chosen",
        "there are enough warps; fewer with more registers each may do as well",
    ),
    "selected": ("nothing: it issues", "nothing"),
}
