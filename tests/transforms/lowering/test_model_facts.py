"""What is a model's own in its constructor, as data."""

from __future__ import annotations

import pytest

from transforms.lowering.cpp_codegen import model_facts
from zoo.errors import LoweringError

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


def test_constants_become_rows_in_their_order() -> None:
    """Functions of the runtime for what torch keeps; sizes and strides one after another."""
    scalar = _assigned(12, shape="{}", stride="{}")
    text = f"Model() {{\n{_assigned(0)}\n{scalar}\n    update();\n}}"
    written = model_facts(text, ["x", 'a "b"'], 1)
    row = (
        '{"constant_a", aoti_torch_dtype_float32, aoti_torch_device_type_cpu, 0, 64, false, '
        "static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter), {axes}, "
        'aoti_torch_layout_strided, "a = {b}; c"}'
    )
    assert f"{row.replace('{axes}', '2')},\n  {row.replace('{axes}', '0')},\n  {{}}\n" in written
    assert "model_extents[] = {2, 8, 8, 1, 0};" in written
    assert 'model_names[] = {"x", "a \\"b\\"", "output0", nullptr};' in written
    assert "  2, 1, 2, model_names," in written


def test_a_model_may_have_no_constants() -> None:
    """No array of C++ is empty."""
    written = model_facts("Model() {}", [], 1)
    assert "model_constants[] = {\n  {}\n};" in written
    assert "model_extents[] = {0};" in written


@pytest.mark.parametrize("more", [{"opaque_metadata": "{1}"}, {"colour": "3"}])
def test_what_is_not_known_is_refused(more: dict[str, str]) -> None:
    """A field more, or one less: another torch, whose meaning we do not guess."""
    text = _assigned(0, **more)
    for wrong in (text, _assigned(0).split("\n", 1)[1]):
        with pytest.raises(LoweringError, match="torch describes a constant by"):
            model_facts(wrong, [], 1)
