"""The description of constants, written shorter."""

from __future__ import annotations

from transforms.lowering.cpp_codegen import with_constants_described_by_calls

_FIELDS = {
    "name": '"constant_a"',
    "dtype": "cached_torch_dtype_float32",
    "device_type": "cached_torch_device_type_cpu",
    "offset": "0",
    "data_size": "64",
    "from_folded": "false",
    "type": "static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter)",
    "shape": "{2, 8}",
    "stride": "{8, 1}",
    "layout": "static_cast<int32_t>(cached_torch_layout_strided)",
    "original_fqn": '"a = {b}; c"',
}


def _assigned(number: int, **more: str) -> str:
    fields = {**_FIELDS, **more}
    return "\n".join(f"    constants_info_[{number}].{k} = {v};" for k, v in fields.items())


def test_each_constant_becomes_a_call_where_it_stood() -> None:
    """All that is around them stays."""
    text = f"Model() {{\n{_assigned(0)}\n{_assigned(12)}\n    update();\n}}"
    arguments = ", ".join(_FIELDS.values())
    assert with_constants_described_by_calls(text) == (
        "Model() {\n"
        f"    describe(constants_info_[0], {arguments});\n"
        f"    describe(constants_info_[12], {arguments});\n"
        "    update();\n}"
    )


def test_what_is_not_known_stays() -> None:
    """A field more, or one less: another torch, whose meaning we do not guess."""
    more = _assigned(0, opaque_metadata="{1}")
    less = more.split("\n", 1)[1]
    for text in (more, less, "", "inputs_info_[0].name = x;"):
        assert with_constants_described_by_calls(text) == text
