"""Whisper's rules and windows, against transformers' own processors and by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype
from menagerie.speech.decoding import Decoder as Steps
from menagerie.speech.decoding import Emission, Rules, Segment, emissions, greedy_whisper, segments
from menagerie.speech.recipe import Recipe, Vocabulary, WhisperHead
from menagerie.speech.recogniser import Program, Recogniser
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers.generation.logits_process import (
        SuppressTokensAtBeginLogitsProcessor,
        SuppressTokensLogitsProcessor,
        WhisperTimeStampLogitsProcessor,
    )
    from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

if TYPE_CHECKING:
    from collections.abc import Mapping

# Text 0 to 9, the end, four of a prompt, no timestamps, and times of 0 to 30 steps.
END, START, STAMP, STEPS = 10, 11, 16, 30
TOKENS = STAMP + STEPS + 1
HEAD = WhisperHead(
    kind="whisper", listen="listen", emit="emit", start=START, languages={"en": 12, "de": 13},
    task=14, end=END, no_timestamps=STAMP - 1, latest_start=9, suppress=(3, START, 900),
    begin_suppress=(4, END), most_tokens=20,
)  # fmt: skip


def library_choice(scores: np.ndarray, said: list[int], head: WhisperHead) -> int:
    """What transformers' processors leave as the best token."""
    ids, row = torch.tensor([[START, *said]]), torch.from_numpy(scores)[None]
    config = SimpleNamespace(
        no_timestamps_token_id=head.no_timestamps,
        eos_token_id=head.end,
        bos_token_id=head.end,
        max_initial_timestamp_index=head.latest_start,
    )
    processors: list[Any] = [
        SuppressTokensAtBeginLogitsProcessor(head.begin_suppress, begin_index=1),
        SuppressTokensLogitsProcessor(head.suppress),
    ]
    if head.timestamps:
        processors.append(WhisperTimeStampLogitsProcessor(config, begin_index=1))  # type: ignore[arg-type]
    for processor in processors:
        row = processor(ids, row)
    return int(row.argmax())


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31), timestamps=st.booleans(), latest=st.sampled_from([None, 0, 9]),
    wide=st.sampled_from([0.3, 3.0]),
)  # fmt: skip
def test_every_token_is_the_librarys_choice(
    seed: int, timestamps: bool, latest: int | None, wide: float
) -> None:
    """A window of any scores, token by token: suppressed, paired, growing, likely in sum."""
    rng = np.random.default_rng(seed)
    head = replace(HEAD, timestamps=timestamps, latest_start=latest)
    rules, said = Rules(head, TOKENS), list[int]()
    for _ in range(16):
        scores = rng.normal(0.0, wide, TOKENS).astype(np.float32)
        token = rules.choose(scores, said)
        assert token == library_choice(scores, said, head)
        if token == END:
            break
        said.append(token)


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 2**31), steps=st.sampled_from([10, 25, STEPS]))
def test_segments_are_the_librarys(seed: int, steps: int) -> None:
    """Whatever the rules let a model say: the same segments, and the same next window."""
    rng = np.random.default_rng(seed)
    rules, said = Rules(HEAD, TOKENS), list[int]()
    while len(said) < 14:
        scores = rng.normal(0.0, 3.0, TOKENS).astype(np.float32)
        scores[END] -= 4.0
        if (token := rules.choose(scores, said)) == END:
            break
        said.append(token)
    found, advance = segments(said, HEAD, steps)
    theirs, offset = WhisperGenerationMixin._retrieve_segment(
        seek_sequence=torch.tensor(said),
        seek_outputs=[None],
        time_offset=torch.zeros(1, dtype=torch.float64),
        timestamp_begin=STAMP,
        seek_num_frames=torch.tensor([2 * steps]),
        time_precision=0.02,
        time_precision_features=0.01,
        input_stride=2,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.tensor([[START]]),
    )
    assert advance == int(offset) / 2
    assert [list(each.tokens) for each in found] == [each["tokens"].tolist() for each in theirs]
    assert [each.start * 0.02 for each in found] == pytest.approx(
        [float(e["start"]) for e in theirs]
    )
    assert [each.end * 0.02 for each in found] == pytest.approx([float(e["end"]) for e in theirs])


def test_what_is_cut_by_a_windows_end_is_left_to_the_next() -> None:
    """By hand: two closed segments and a third that has begun; then one that is closed alone."""
    said = [STAMP, 1, 2, STAMP + 5, STAMP + 6, 5, STAMP + 9, STAMP + 9, 7]
    first, second = (STAMP, 1, 2, STAMP + 5), (STAMP + 6, 5, STAMP + 9, STAMP + 9)
    assert segments(said, HEAD, 30) == ([Segment(0, 5, first), Segment(6, 9, second)], 9)
    closed = [STAMP, 1, STAMP + 5, STAMP + 6, 2, STAMP + 8]
    found, advance = segments(closed, HEAD, 30)
    assert [(each.start, each.end) for each in found] == [(0, 5), (6, 8)]
    assert advance == 30


def test_text_is_spread_evenly_over_its_segment_and_not_past_the_end() -> None:
    """Timestamps and other tokens beyond the end's number are no text."""
    found = [Segment(2, 8, (STAMP + 2, 1, 5, 6, STAMP + 8)), Segment(20, 40, (2, 12))]
    assert emissions(found, HEAD, 30) == [
        Emission(1, 2, 4), Emission(5, 4, 6), Emission(6, 6, 8), Emission(2, 20, 30),
    ]  # fmt: skip


class Decoder:
    """Says the tokens that it is given, and keeps what it was fed."""

    def __init__(self, says: list[int], language: int = 12) -> None:
        self.says, self.language = says, language
        self.fed: list[tuple[int, int]] = []

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One step."""
        token, position = int(inputs["token"][0, 0]), int(inputs["position"][0])
        self.fed.append((token, position))
        scores = np.zeros((1, TOKENS), np.float32)
        if token == START:
            scores[0, self.language] = 5.0
        elif token == HEAD.task or (token not in {12, 13} and self.says):
            scores[0, self.says.pop(0)] = 50.0
        return {"logits": scores}


KEYS = np.zeros((1, 1, 30, 4), np.float32)


@pytest.mark.parametrize("language", [None, "de"])
def test_the_prompt_is_fed_token_by_token(language: str | None) -> None:
    """Start, language (that is given, or the likelier), task; positions count on."""
    decoder = Decoder([STAMP, 1, STAMP + 3, END])
    head = replace(HEAD, language=language)
    assert greedy_whisper(head, Steps(decoder, KEYS, KEYS)) == [STAMP, 1, STAMP + 3]
    spoken = 12 if language is None else 13
    assert decoder.fed == [(t, n) for n, t in enumerate([START, spoken, 14, STAMP, 1, STAMP + 3])]


def test_without_times_the_prompt_says_so_and_a_full_window_ends() -> None:
    """As many tokens as there are positions, prompt included; nothing is fed beyond."""
    decoder = Decoder([1] * 100)
    head = replace(HEAD, timestamps=False, languages={}, most_tokens=9)
    decoder.says = [9, *[1] * 100]  # the first answers the task
    said = greedy_whisper(head, Steps(decoder, KEYS, KEYS))
    assert len(said) == 9 - 3
    assert [token for token, _ in decoder.fed[:3]] == [START, 14, STAMP - 1]
    assert max(position for _, position in decoder.fed) == 7


def recogniser(decoder: Decoder, heard: list[int]) -> Recogniser:
    """Windows of 30 steps of 320 samples."""

    def listen(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        heard.append(int(np.count_nonzero(inputs["samples"])))
        return {"keys": KEYS, "values": KEYS}

    recipe = Recipe(
        rate=16_000, frame=320, overlap=0.0, heads={"only": HEAD},
        vocabulary=Vocabulary(kind="plain", pieces=tuple("abcdefghijkl")),
    )  # fmt: skip
    programs = {
        "listen": Program(listen, [TensorSpec("samples", Dtype.FLOAT32, (1, 9600))], {}),
        "emit": Program(decoder, [TensorSpec("position", Dtype.INT64, (1,))], {}),
    }
    return Recogniser(recipe, HEAD, programs, "test")


def test_long_recordings_go_on_where_a_window_closed() -> None:
    """The second window begins at the last closed segment's end; tokens' times count on."""
    first = [STAMP, 1, STAMP + 20, STAMP + 20, 2, END]
    second = [STAMP, 5, STAMP + 12, END]
    heard: list[int] = []
    found = recogniser(Decoder([*first, *second]), heard).recognise(
        np.ones(9600 + 1000, np.float32)
    )
    assert heard == [9600, 10_600 - 20 * 320]
    assert found == [Emission(1, 0, 20), Emission(5, 20, 32)]


def test_scores_that_are_no_numbers_end_all_the_same() -> None:
    """Broken weights make nonsense, not a recording that is heard for ever."""
    heard: list[int] = []

    class Broken(Decoder):
        def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"logits": np.full((1, TOKENS), np.nan, np.float32)}

    recogniser(Broken([]), heard).recognise(np.ones(12_000, np.float32))
    assert len(heard) == 2
