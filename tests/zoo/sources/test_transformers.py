"""The transformers source: folders saved by the test, and everything that must be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import huggingface_hub.constants
import pytest
import torch

from zoo.errors import SourceError, SourceRefused
from zoo.sources import transformers
from zoo.sources.context import Context
from zoo.spec import TransformersSource

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = {
    "vocab_size": 9,
    "encoder_config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "subsampling_conv_channels": 4,
    },
}


def _source(**changes: Any) -> TransformersSource:
    entry = {"kind": "transformers", "architecture": "ParakeetForCTC", "config": _CONFIG}
    return TransformersSource.model_validate(entry | changes)


@pytest.fixture
def saved(tmp_path: Path) -> torch.nn.Module:
    """A tiny Parakeet, saved in `tmp_path/saved` as safetensors."""
    module: Any = transformers.untrained(_source(), Context("m", tmp_path))
    module.save_pretrained(tmp_path / "saved")
    loaded: torch.nn.Module = module
    return loaded


def test_configuration_makes_the_structure(tmp_path: Path) -> None:
    """The entry's `config` reaches the class, nested configurations included."""
    module: Any = transformers.untrained(_source(), Context("m", tmp_path))
    assert module.ctc_head.weight.shape == (9, 16, 1)
    assert len(module.encoder.layers) == 1


def test_experts_are_plain_products(tmp_path: Path) -> None:
    """A mixture of experts exports without an operator of transformers' own."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 9, "num_local_experts": 2}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = {**sizes, **layers, "use_cache": False}
    source = _source(architecture="MixtralForCausalLM", config=config)
    module = transformers.untrained(source, Context("m", tmp_path)).eval()
    program = torch.export.export(module, (torch.zeros(1, 3, dtype=torch.int64),), strict=False)
    assert "transformers" not in {getattr(n.target, "namespace", "") for n in program.graph.nodes}


def test_folder_gives_its_weights(saved: torch.nn.Module, tmp_path: Path) -> None:
    """Every tensor of a folder that the library saved comes back bit for bit."""
    loaded = transformers.trained(_source(folder="saved"), Context("m", tmp_path)).state_dict()
    expected = saved.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)


@pytest.mark.usefixtures("saved")
def test_pickles_are_not_read(tmp_path: Path) -> None:
    """A folder whose weights are a .bin is refused, whatever is in it."""
    (tmp_path / "saved" / "model.safetensors").rename(tmp_path / "saved" / "pytorch_model.bin")
    with pytest.raises(SourceError, match="saved cannot be loaded"):
        transformers.trained(_source(folder="saved"), Context("m", tmp_path))


def test_an_archive_of_nemo_is_answered_with_what_to_use_instead(tmp_path: Path) -> None:
    """Hub repositories of NeMo's models may hold nothing but such an archive."""
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "parakeet.nemo").write_bytes(b"ustar")
    with pytest.raises(SourceError, match="convert_nemo_to_hf") as caught:
        transformers.trained(_source(folder="saved"), Context("m", tmp_path))
    assert "Name weights in the layout of transformers" in str(caught.value)


@pytest.mark.usefixtures("saved")
def test_parameters_without_a_value_are_refused(tmp_path: Path) -> None:
    """What transformers only warns of is an error, unless the entry says no program uses it."""
    from safetensors.torch import load_file, save_file

    file = tmp_path / "saved" / "model.safetensors"
    state = load_file(file)
    del state["ctc_head.bias"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(SourceError, match=r"no value for 1 parameter\(s\), first ctc_head\.bias"):
        transformers.trained(_source(folder="saved"), Context("m", tmp_path))
    lenient = _source(folder="saved", may_lack=["ctc_head.*"])
    first, second = (
        transformers.trained(lenient, Context("m", tmp_path)).state_dict() for _ in range(2)
    )
    assert torch.equal(first["ctc_head.bias"], second["ctc_head.bias"])


def test_folder_outside_is_refused(tmp_path: Path) -> None:
    """A folder is beside the manifest, like every file an entry names."""
    with pytest.raises(SourceRefused, match="leads out"):
        transformers.trained(_source(folder=".."), Context("m", tmp_path))


def test_hub_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, one line says what cannot be had and what else to do."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    source = _source(id="nobody/nothing", revision="1" * 40)
    with pytest.raises(SourceError, match="nobody/nothing at 1111") as caught:
        transformers.trained(source, Context("m", tmp_path))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("or give --random-weights SEED")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "ParakeetForCTX"}, "Did you mean 'ParakeetForCTC'"),
        ({"architecture": "pipeline"}, "has no model class pipeline"),
        ({"config": {"vocab_size": "many"}}, "refuses the entry's config"),
    ],
)
def test_mistaken_entries(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Only model classes are built, and the library's refusals come in one line."""
    with pytest.raises(SourceError, match=message) as caught:
        transformers.untrained(_source(**changes), Context("m", tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "parts"),
    [
        ("ParakeetForCTC", {"listen"}),
        ("ParakeetForTDT", {"listen", "emit"}),
        ("ParakeetForRNNT", {"listen", "emit"}),
    ],
)
def test_from_samples_a_parakeet_has_the_parts_of_a_recogniser(
    tmp_path: Path, architecture: str, parts: set[str]
) -> None:
    """A transducer's step is a program besides the encoder; CTC needs no step."""
    config = _CONFIG | {"decoder_hidden_size": 8} if architecture != "ParakeetForCTC" else _CONFIG
    source = _source(architecture=architecture, config=config, from_samples=True)
    module = transformers.untrained(source, Context("m", tmp_path))
    assert {name for name, _ in module.named_children()} == parts


@pytest.mark.parametrize(
    ("architecture", "config", "parts"),
    [
        ("Wav2Vec2ForCTC", {}, {"listen"}),
        ("HubertForCTC", {}, {"listen"}),
        ("MoonshineForConditionalGeneration", {"encoder_num_hidden_layers": 1}, {"listen", "emit"}),
    ],
)
def test_from_samples_other_families_have_them_too(
    tmp_path: Path, architecture: str, config: dict[str, Any], parts: set[str]
) -> None:
    """One program for CTC over samples; a decoder's step besides the encoder."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    source = _source(architecture=architecture, config=sizes | config, from_samples=True)
    module = transformers.untrained(source, Context("m", tmp_path))
    assert {name for name, _ in module.named_children()} == parts


def test_from_samples_nothing_but_a_recogniser(tmp_path: Path) -> None:
    """Another architecture has no such parts, and the message says what to leave out."""
    config = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    source = _source(architecture="BertModel", config=config, from_samples=True)
    with pytest.raises(SourceError, match="from_samples"):
        transformers.untrained(source, Context("m", tmp_path))
