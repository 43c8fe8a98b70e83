"""Instructions of inline assembly: what the emulated GPU takes, and what it refuses."""

import re

import pytest
import torch

from kernelgen.emulator.library import EmulatorError

from .instructions.forms import Form, forms, further_operands
from .standalone import build

FORMS = [form for form in forms() if not form.text.startswith("bra ")]
BY_NAME: dict[str, list[Form]] = {}
for _form in FORMS:
    for _name in _form.words()[0][0]:
        BY_NAME.setdefault(_name, []).append(_form)


@pytest.fixture(scope="module")
def kernels():
    return build("assembly")


def refusal(kernels, text: str, capability: int = 90) -> str:
    """What the emulator says of the assembly, or nothing. It is jumped over."""
    code = torch.tensor([*f"bra over; {text} over:".encode(), 0], dtype=torch.uint8)
    try:
        kernels("execute_text", code, capability=capability)
    except EmulatorError as error:
        return str(error)
    return ""


def statement(form: Form, parts: list[str]) -> str:
    count = form.operands + further_operands(parts)
    return f"{'.'.join(parts)} {', '.join(['%0'] * count)}".rstrip() + ";"


def test_the_table_of_forms_is_read_whole():
    assert len(FORMS) > 250
    assert {"add", "ld", "wgmma", "cp", "mbarrier"} <= {form.text.split()[0].split("|")[0] for form in FORMS}


def answers(kernels, names: list[list[str]]) -> list[str]:
    """What the emulator says of names of instructions: "known", or what is wrong."""
    text = " ".join(".".join(parts) for parts in names)
    out = torch.zeros(200 * len(names), dtype=torch.uint8)
    kernels("look_up", torch.tensor([*text.encode(), 0], dtype=torch.uint8), out)
    listed = bytes(out.tolist()).rstrip(b"\0").decode().splitlines()
    assert len(listed) == len(names)
    return listed


def test_every_form_is_known_with_each_of_its_qualifiers(kernels):
    names = [parts for form in FORMS for parts in form.spellings()]
    assert [n for n, answer in zip(names, answers(kernels, names), strict=True) if answer != "known"] == []


def test_a_qualifier_that_no_form_has_is_refused(kernels):
    names = []
    for form in FORMS:
        for place in range(1, len(form.longest) + 1):
            names.append([*form.longest[:place], "bogus", *form.longest[place:]])
    expected = "the emulator does not know the qualifier '.bogus' of the instruction"
    assert set(answers(kernels, names)) == {expected}


def test_a_qualifier_said_twice_is_refused(kernels):
    names = []
    for form in FORMS:
        for part in form.longest[1:]:
            if sum(part in alternatives for alternatives, _ in form.words()) == 1:
                names.append([*form.longest, part])
    assert "known" not in answers(kernels, names)


def spells(form: Form, parts: list[str]) -> bool:
    """Whether some order of the parts after the first is a name of the form."""
    left = list(parts)
    for alternatives, is_optional in form.words():
        taken = next((part for part in left if part in alternatives), None)
        if taken is None and not is_optional:
            return False
        if taken is not None:
            left.remove(taken)
    return not left


def test_a_name_without_a_mandatory_part_is_refused(kernels):
    names = []
    for form in FORMS:
        for place in range(1, len(form.shortest)):
            parts = form.shortest[:place] + form.shortest[place + 1 :]
            if not any(spells(other, parts) for other in BY_NAME[parts[0]]):
                names.append(parts)
    assert len(names) > 400
    assert "known" not in answers(kernels, names)


@pytest.mark.parametrize("form", FORMS[::9], ids=lambda form: form.text)
def test_too_few_and_too_many_operands_are_refused(kernels, form):
    parts = form.shortest
    others = [other for other in BY_NAME[parts[0]] if spells(other, parts)]
    counts = [max(other.most for other in others) + further_operands(parts) + 1]
    if form.operands and len(others) == 1:
        counts.append(form.operands + further_operands(parts) - 1)
    assert not refusal(kernels, statement(form, parts))
    for count in counts:
        message = refusal(kernels, f"{'.'.join(parts)} {', '.join(['%0'] * count)};")
        assert "assembly.cu:7: wrong number of operands" in message


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1], [%2], {%3};",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%0], [%1], 16, %2;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::1 [%0], [%1], [%2];",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], 16, [%2];",
        "add.rn.f32x2 %0, %1, %2;",
        "fma.f32 %0, %1, %2, %3;",
        "cvt.f16.f32 %0, %1;",
        "cvt.rs.f16x2.f32 %0, %1, %2, %3;",
        "redux.sync.min.abs.f32 %0, %1, %2;",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0}, {%1}, {%2}, {%3}, %4, 0;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%0}, {%1}, {%2}, {%3};",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%0}, [%1];",
        "mul.u32 %0, %1, %2;",
        "ld.global.v8.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];",
        "atom.add.f16 %0, [%1], %2;",
        "fence.acquire.gpu;",
        "lop3.and.b32 %0|p, %1, %2, %3, 0x3f, q;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;",
    ],
)
def test_instructions_of_other_gpus_and_other_forms_are_refused(kernels, text):
    message = refusal(kernels, text)
    assert "the emulator does not know" in message
    assert text.removesuffix(";") in message


@pytest.mark.parametrize("operand", ["%1.lo", "%1.b0", "0f3f80", "1.0f", "12x", "%1*2", "-%1"])
def test_operands_that_are_not_read_whole_are_refused(kernels, operand):
    assert "does not know" in refusal(kernels, f"add.f32 %0, %1, {operand};")


def test_addresses_may_have_an_offset(kernels):
    for operand in ("[%1+4]", "[%1 + 4]", "[%1-4]", "[%1+-4]", "[%1]"):
        assert not refusal(kernels, f"ld.global.u32 %0, {operand};")


@pytest.mark.parametrize(
    "capability, text",
    [
        (75, "redux.sync.add.u32 %0, %1, %2;"),
        (80, "cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"),
        (86, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0}, {%1}, {%2}, {%3};"),
        (75, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0}, {%1}, {%2}, {%3};"),
        (80, "ld.shared::cluster.u32 %0, [%1];"),
        (75, "ld.global.L2::cache_hint.u32 %0, [%1], %2;"),
        (89, "add.rn.bf16 %0, %1, %2;"),
    ],
)
def test_what_a_gpu_lacks_is_refused(kernels, capability, text):
    needed = re.search(r"needs sm_(\d+); the emulated GPU is sm_(\d+)", refusal(kernels, text, capability))
    assert needed
    assert int(needed[1]) > capability == int(needed[2])
    assert not refusal(kernels, text, 90)


def test_edges_of_approximations_of_doubles_are_those_of_a_gpu(kernels):
    """An H100 gave these: a flushed result is zero, and operands that are not flushed count whole."""
    results = torch.zeros(3, dtype=torch.float64)
    low = torch.tensor([2**63 | 0x7FE << 52, 1, 1], dtype=torch.uint64).view(torch.float64)
    kernels("approximate", low, results)
    assert results.view(torch.int64).tolist() == [-(2**63), 0x6180000000000000, 0x7FF0000000000000]
    low[1] = torch.tensor([0x7FF0000000000001]).view(torch.float64).item()
    kernels("approximate", low, results)
    assert results[1].isnan()


@pytest.mark.parametrize("first, second", [(90, 75), (75, 90)])
def test_a_library_that_ran_on_one_gpu_is_refused_by_another(kernels, first, second):
    """Whichever ran first: an asm statement is parsed once."""
    sums = torch.zeros(32, dtype=torch.int32)
    for capability in (first, second, first):
        if capability == 90:
            kernels("reduce", sums, capability=90)
            assert (sums == 31 * 16).all()
        else:
            with pytest.raises(EmulatorError, match=r"redux.sync.add.s32.*needs sm_80; the emulated GPU is sm_75"):
                kernels("reduce", sums, capability=75)
