"""What people pass beside tensors: constants, nested containers, and caches of transformers."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils._pytree import tree_leaves

from menagerie.session import Session
from transforms import Program, convert
from zoo.errors import ExportError, UsageError
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    import transformers
    from torchvision.models import detection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class _Nested(nn.Module):
    """Pictures in a list, tensors in a dictionary, and constants that choose what is computed."""

    def forward(
        self,
        images: list[torch.Tensor],
        batch: dict[str, Any],
        scale: float = 1.0,
        mode: str = "add",
        double: bool = False,
        rest: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        y = images[0] * scale + batch["mask"] * batch["power"]
        y = y - images[1] if mode == "subtract" else y + images[1]
        y = y * 2 if double else y
        return {"y": y, "parts": [y + 1, {"sums": y.sum(1)}], "rest": rest}


def _assert_as_eager(folder: Path, program: str, given: Mapping[str, Any], eager: Any) -> None:
    """Run an artifact on tensors by name, and compare with the tensors of a result, in order."""
    with Session(folder, program=program) as session:
        assert [spec.name for spec in session.inputs] == list(given)
        found = session.run({name: tensor.numpy() for name, tensor in given.items()})
    wanted = [leaf for leaf in tree_leaves(eager) if isinstance(leaf, torch.Tensor)]
    assert len(found) == len(wanted)
    for value, expected in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(value), expected, rtol=1e-4, atol=1e-5)


def test_nested_tensors_are_named_and_constants_stay(tmp_path: Path) -> None:
    """Two programs of one module by other constants; sizes are dynamic within a list and a dict."""
    module, n = _Nested().eval(), Dim("n", min=2, max=9)

    def inputs(rows: int) -> tuple[list[torch.Tensor], dict[str, Any]]:
        return [torch.randn(rows, 3), torch.randn(rows, 3)], {"mask": torch.rand(rows, 3)}

    (images, batch), chosen = inputs(4), {"scale": 2.5, "mode": "subtract", "double": True}
    exported = torch.export.export(
        module,
        (images, {**batch, "power": 2}, 0.5, "add", True),
        {"rest": torch.zeros(4, 3)},
        strict=False,
    )
    shapes = {"images": [{0: n}, {-2: n}], "batch": {"mask": {0: n}}}
    call = (images, {**batch, "power": 3}), {**chosen, "rest": None}
    bundle = convert(
        {"main": Program(module, *call, shapes), "fixed": Program(exported)},
        out=tmp_path / "made",
        measure_seconds=0,
    )
    first, fixed = bundle.manifest.programs
    assert [spec.name for spec in first.outputs] == ["y", "parts_0", "parts_1_sums"]
    assert [spec.shape for spec in first.inputs] == [("n", 3)] * 3
    assert bundle.sizes == ("n from 2 to 9",)
    assert [spec.name for spec in fixed.inputs] == ["images_0", "images_1", "batch_mask", "rest"]
    for rows in (2, 7):
        images, batch = inputs(rows)
        given = {"images_0": images[0], "images_1": images[1], "batch_mask": batch["mask"]}
        eager = module(images, {**batch, "power": 3}, **chosen)
        _assert_as_eager(bundle.folder, "main", given, eager)
    images, batch = inputs(4)
    given = {"images_0": images[0], "images_1": images[1], "batch_mask": batch["mask"]}
    given["rest"] = images[0] + 1
    eager = module(images, {**batch, "power": 2}, 0.5, "add", True, rest=given["rest"])
    _assert_as_eager(bundle.folder, "fixed", given, eager)


@pytest.mark.parametrize(
    "shapes",
    [
        {"images": [{0: Dim("n", min=2, max=9)}], "batch": None},
        {"batch": {"no": {0: Dim("n", min=2, max=9)}}},
        {"batch": {"mask": {5: Dim("n", min=2, max=9)}}},
    ],
)
def test_sizes_that_fit_no_container_are_refused(shapes: Any, tmp_path: Path) -> None:
    """Too few for a list, a key that a dictionary lacks, and an axis that a tensor lacks."""
    x = torch.randn(4, 3)
    with pytest.raises(UsageError, match="`dynamic_shapes` does not fit its inputs: images of 2 v"):
        convert(
            _Nested(), ([x, x], {"mask": x, "power": 1}), dynamic_shapes=shapes, out=tmp_path / "m"
        )


class _Difference(nn.Module):
    """What shows inputs that changed places."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - 2 * b


def test_names_bind_to_keywords(tmp_path: Path) -> None:
    """The keywords' own names name these, in whichever order dictionary and list have them."""
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    programs = {
        "turned": Program(_Difference(), (), {"b": b, "a": a}, names={"inputs": ["a", "b"]}),
        "renamed": Program(_Difference(), (a,), {"b": b}, names={"inputs": ["left", "b"]}),
        "others": Program(_Difference(), (), {"a": a, "b": b}, names={"inputs": ["l", "r"]}),
    }
    folder = convert(programs, out=tmp_path / "made", measure_seconds=0).folder
    _assert_as_eager(folder, "turned", {"b": b, "a": a}, a - 2 * b)
    _assert_as_eager(folder, "renamed", {"left": a, "b": b}, a - 2 * b)
    _assert_as_eager(folder, "others", {"l": a, "r": b}, a - 2 * b)


@pytest.mark.parametrize(
    ("inputs", "kwargs", "names"),
    [((), "ba", ["left", "right"]), (("a",), "b", ["b", "a"]), ((), "ab", ["b", "c"])],
)
def test_names_that_could_be_meant_otherwise_are_refused(
    inputs: Any, kwargs: str, names: list[str], tmp_path: Path
) -> None:
    """Others than forward's in another order, and a keyword's own name in another's place."""
    given = {"a": torch.ones(2), "b": torch.zeros(2)}
    with pytest.raises(UsageError, match="could be meant for its inputs in another order"):
        convert(
            _Difference(),
            tuple(given[name] for name in inputs),
            kwargs={name: given[name] for name in kwargs},
            names={"inputs": names},
            out=tmp_path / "made",
        )


def test_keywords_that_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    """Torch would call them x and x_1, in an order of its own."""

    class Cases(nn.Module):
        def forward(self, *, X: torch.Tensor, x: torch.Tensor) -> torch.Tensor:  # noqa: N803
            return X + 2 * x

    kwargs = {"X": torch.ones(2), "x": torch.zeros(2)}
    with pytest.raises(UsageError, match="the keywords X and x differ in case alone"):
        convert(Cases(), (), kwargs=kwargs, out=tmp_path / "made")


def _tokens(length: int) -> torch.Tensor:
    return torch.randint(2, 50, (2, length))


@pytest.mark.sweep
def test_models_of_transformers_convert_as_they_come(tmp_path: Path) -> None:
    """GPT-2 that returns a cache and one that is given one of any length, T5, and BERT's mask.

    All take transformers' own attention and masks, which are made by torch.vmap.
    """
    torch.manual_seed(0)
    special = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 1}
    gpt = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**special, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    ).eval()
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    ).eval()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    bert = transformers.BertModel(
        transformers.BertConfig(vocab_size=50, intermediate_size=32, **sizes)
    ).eval()
    mask, past = torch.tensor([[1] * 7, [1] * 4 + [0] * 3]), Dim("past", min=2, max=9)
    with torch.no_grad():
        cache = gpt(_tokens(5)).past_key_values
        step = Program(
            gpt,
            kwargs={"input_ids": _tokens(1), "past_key_values": cache},
            dynamic_shapes={"past_key_values": [[{2: past}] * 2] * 2},
        )
        programs = {
            "prefill": Program(gpt, (_tokens(7),)),
            "step": step,
            "t5": Program(t5, kwargs={"input_ids": _tokens(7), "decoder_input_ids": _tokens(3)}),
            "bert": Program(bert, (_tokens(7), mask)),
        }
        folder = convert(programs, out=tmp_path / "made", measure_seconds=0).folder
        ids, last = _tokens(7), _tokens(1)
        _assert_as_eager(folder, "prefill", {"input_ids": ids}, gpt(ids))
        cache = gpt(ids).past_key_values
        names = [f"past_key_values_{kind}_cache_{n}" for kind in ("key", "value") for n in (0, 1)]
        tensors = [*(layer.keys for layer in cache.layers), *(v.values for v in cache.layers)]
        given = {"input_ids": last, **dict(zip(names, tensors, strict=True))}
        _assert_as_eager(folder, "step", given, gpt(last, past_key_values=cache))
        given = {"input_ids": ids, "decoder_input_ids": last.expand(2, 3).contiguous()}
        _assert_as_eager(folder, "t5", given, t5(**given))
        _assert_as_eager(
            folder,
            "bert",
            {"input_ids": ids, "attention_mask": mask.flip(0)},
            bert(ids, mask.flip(0)),
        )


def test_a_result_that_holds_no_tensors_names_the_way_out(tmp_path: Path) -> None:
    """An object that torch's trees do not know, as a cache of a model's own is one."""

    class Kept(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, object]:
            return x + 1, object()

    with pytest.raises(ExportError, match=r"result output_1 is a object, not a.*use_cache ="):
        convert(Kept(), (torch.randn(2),), out=tmp_path / "made")


@pytest.mark.parametrize(
    ("builder", "options"),
    [
        ("ssdlite320_mobilenet_v3_large", {"topk_candidates": 5}),
        *(
            pytest.param(name, {"min_size": 64, "max_size": 64}, marks=pytest.mark.sweep)
            for name in ("fasterrcnn_mobilenet_v3_large_fpn", "retinanet_resnet50_fpn")
        ),
    ],
)
def test_detectors_are_refused_by_line(
    builder: str, options: dict[str, int], tmp_path: Path
) -> None:
    """How many boxes are left depends on the picture: said with the line, and what to convert."""
    options |= {"num_classes": 2}
    module = getattr(detection, builder)(weights=None, weights_backbone=None, **options).eval()
    with pytest.raises(ExportError) as error:
        convert(module, ([torch.rand(3, 64, 64)],), out=tmp_path / "made")
    text = str(error.value)
    assert "depends on values of a tensor at torchvision/ops/boxes.py:" in text
    assert "Convert what scores boxes (`backbone`, `head`)" in text
    assert "Could not guard" not in text


def test_a_sliding_cache_that_dropped_tokens_is_refused(tmp_path: Path) -> None:
    """Its tensors do not say at which position it goes on; one that holds all of them does."""
    from transformers import DynamicCache, MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 16}
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**sizes, **heads, sliding_window=4)).eval()
    made, ids = (DynamicCache(config=model.config), DynamicCache()), _tokens(6)
    with torch.no_grad():
        for cache in made:
            model(ids, past_key_values=cache)
    last = {"input_ids": _tokens(1)}
    with pytest.raises(
        UsageError, match=r"holds 3 of the 6 tokens that it has seen.*DynamicCache\(\)"
    ):
        convert(model, (), kwargs={**last, "past_key_values": made[0]}, out=tmp_path / "short")
    given = {**last, "past_key_values": made[1]}
    folder = convert(model, (), kwargs=given, out=tmp_path / "whole", measure_seconds=0).folder
    [layer] = made[1].layers
    tensors = {
        "past_key_values_key_cache_0": layer.keys,
        "past_key_values_value_cache_0": layer.values,
    }
    sliding = model(**last, past_key_values=made[0])  # as eager goes on, which dropped three
    with Session(folder) as session:
        found = session.run({n: t.numpy() for n, t in {**last, **tensors}.items()})
    np.testing.assert_allclose(found["logits"], sliding.logits.detach(), rtol=1e-4, atol=1e-5)


def test_a_cache_needs_no_model_of_transformers(tmp_path: Path) -> None:
    """A module of one's own takes a cache where no model of transformers was imported."""
    program = f"""
import torch
from transforms import convert
from transformers import DynamicCache
class Step(torch.nn.Module):
    def forward(self, x, cache):
        return torch.cat(cache.update(x, 2 * x, 0))
cache, x = DynamicCache(), torch.ones(1, 2, 1, 4)
cache.update(3 * x, 4 * x, 0)
convert(Step(), (x, cache), out={str(tmp_path / "out")!r}, measure_seconds=0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    with Session(tmp_path / "out") as session:
        assert [spec.shape for spec in session.inputs] == [(1, 2, 1, 4)] * 3
        names = [spec.name for spec in session.inputs]
        given = {n: np.full((1, 2, 1, 4), i + 1, np.float32) for i, n in enumerate(names)}
        (found,) = session.run(given).values()
    assert found[:, 0, :, 0].tolist() == [[2, 1], [3, 2]]  # keys, then values
