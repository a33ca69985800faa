"""The `menagerie` command: pull, verify, run, bench and transcribe, with numpy alone.

Only what a command needs is imported when it runs, so that `menagerie --help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from menagerie.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_EPILOG = """\
examples:
  menagerie pull resnet18 --store https://models.example/zoo -o resnet18
  menagerie pull resnet18 --store https://models.example/zoo --standalone -o alone
  menagerie verify resnet18
  menagerie run resnet18 --input x.npy --output y.npy
  menagerie bench resnet18 --threads 2
  menagerie bench resnet18 --profile
  menagerie transcribe spoken_digits recording.wav

exit codes: 0 done, 1 it failed, 2 misuse. A bundle is native code: run only what you trust.
"""
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code."""
    order = _parser().parse_args(arguments)
    try:
        if getattr(order, "allow_unsigned", False):
            from menagerie.trust.roots import ALLOW_UNSIGNED, WARNING

            os.environ[ALLOW_UNSIGNED] = "1"
            sys.stderr.write(f"{WARNING}\n")
        code: int = order.command(order)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MenagerieError, OSError) as error:
        if os.environ.get("MENAGERIE_DEBUG"):
            raise
        sys.stderr.write(f"{_told(error)}\n")
        return error.exit_code if isinstance(error, MenagerieError) else 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="menagerie",
        description="Runs PyTorch models that Menagerie converted, without PyTorch.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show it and exit")
    named = "pull|verify|run|bench|transcribe|trust|version"
    commands = parser.add_subparsers(required=True, metavar=named)
    pull = _command(commands, "pull", "download a release; every file's sha256 is checked", _pull)
    pull.add_argument("model", help="name of a published model")
    pull.add_argument("--target", "-t", default="cpu", help="cpu or metal (default: cpu)")
    pull.add_argument("--output", "-o", type=Path, metavar="DIR", help="default: MODEL-TARGET")
    pull.add_argument(
        "--platform", help="for another machine, e.g. cpu-linux-arm64; default: what this one runs"
    )
    pull.add_argument(
        "--build", metavar="KEY", help="not the latest, but this build, or its beginning"
    )
    pull.add_argument(
        "--store",
        default=os.environ.get("MENAGERIE_STORE"),
        metavar="URL",
        help="folder, https://host/path or s3://bucket/prefix (default: $MENAGERIE_STORE)",
    )
    pull.add_argument(
        "--standalone",
        action="store_true",
        help="with the runtime and menagerie-run: runs on any Linux with glibc 2.28, no Python",
    )
    pull.add_argument(
        "--runtime", type=Path, metavar="WHEEL", help="of another platform, for --standalone"
    )
    _unsigned(pull)
    verify = _command(commands, "verify", "prove a bundle again on this machine", _verify)
    _bundle(verify)
    verify.add_argument("--threads", type=_threads, default=1, help="default: 1")
    run = _command(commands, "run", "run a program on numpy files", _run)
    _bundle(run)
    run.add_argument(
        "--input", "-i", action="append", default=[], metavar="[NAME=]FILE.npy", help="an input"
    )
    run.add_argument("--output", "-o", type=Path, metavar="FILE", help=".npy, or .npz for several")
    run.add_argument("--program", default="main", help="default: main")
    run.add_argument("--threads", type=_threads, help="default: one a processor")
    bench = _command(commands, "bench", "measure latency on the largest golden input", _bench)
    _bundle(bench)
    bench.add_argument("--program", default="main", help="default: main")
    bench.add_argument("--threads", type=_threads, default=1, help="default: 1")
    bench.add_argument(
        "--seconds", type=float, default=3.0, help="how long to measure (default: 3)"
    )
    bench.add_argument("--profile", action="store_true", help="say where the time goes, by kernel")
    trust = _command(
        commands, "trust", "trust a publisher's root.json; without one, say who is", _trust
    )
    trust.add_argument(
        "root", nargs="?", metavar="root.json", help="a file, or https://: from its publisher"
    )
    _transcription(_command(commands, "transcribe", "text of recordings", _transcribe))
    _command(commands, "version", "what is installed, and what it can run", _version)
    return parser


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"menagerie {version('menagerie')}\n")
        parser.exit()


def _trust(order: argparse.Namespace) -> int:
    from menagerie.trust import add_root, trusted_roots

    if order.root is not None:
        root = add_root(_content(order.root), order.root)
        _say(
            order,
            f"trusted from now on: root {root.version}, {root.threshold} of "
            f"{len(root.keys)} keys must sign: {', '.join(sorted(root.keys))}",
            version=root.version,
            keys=sorted(root.keys),
        )
        return 0
    roots = trusted_roots()
    lines = [f"{root.place}: root {root.version}, keys {', '.join(root.keys)}" for root in roots]
    _say(order, "\n".join(lines or ["no root is trusted here"]), roots=[r.place for r in roots])
    return 0


def _content(place: str) -> bytes:
    from menagerie.trust.roots import MAX_ROOT_BYTES

    if "://" in place:
        from menagerie.store.http import read_address

        return read_address(place, MAX_ROOT_BYTES)
    with Path(place).open("rb") as file:
        return file.read(MAX_ROOT_BYTES + 1)


def _transcription(parser: argparse.ArgumentParser) -> None:
    _bundle(parser)
    parser.add_argument(
        "audio", nargs="+", help="WAV, FLAC, Ogg or MP3; `-`: raw 16-bit samples on standard input"
    )
    parser.add_argument("--format", "-f", default="txt", help="txt, srt, vtt or json")
    parser.add_argument("--output", "-o", type=Path, metavar="DIR", help="a file for each, here")
    parser.add_argument("--head", help="which of the model's decoders; default: its first")
    parser.add_argument(
        "--rate", type=int, default=16_000, metavar="HZ", help="of raw samples (default: 16000)"
    )
    parser.add_argument(
        "--chunk", type=float, metavar="SECONDS", help="how much to hear at once; default: the most"
    )
    parser.add_argument("--language", metavar="CODE", help="that is spoken: en; default: as heard")
    parser.add_argument("--threads", type=_threads, help="default: one a processor")


def _command(
    commands: Any, name: str, summary: str, work: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    made.add_argument("--json", action="store_true", help="machine-readable result")
    made.set_defaults(command=work)
    return made


def _bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="DIR", help="a bundle's folder")
    _unsigned(parser)


def _unsigned(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-unsigned",
        action="store_true",
        help="take what no trusted key has signed: native code that nobody vouches for",
    )


def _threads(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 256:  # noqa: PLR2004 - more cores than any machine's
        raise argparse.ArgumentTypeError("a number from 1 to 256")
    return count


def _pull(order: argparse.Namespace) -> int:
    from menagerie.store import open_releases
    from menagerie.store.pull import BlobCache

    if not order.store:
        raise UsageError("menagerie pull", "no store", "Name one by --store or MENAGERIE_STORE")
    releases = open_releases(order.store)
    release = releases.find(order.model, order.target, order.build, platform=order.platform)
    place = order.output or Path(f"{order.model}-{order.target}")
    bar, cache = _Bar(order.model), BlobCache.of_this_user()
    if order.standalone:
        from menagerie.standalone import make_standalone

        make_standalone(
            place, lambda at: releases.pull(release, at, bar, cache=cache), order.runtime
        )
    else:
        releases.pull(release, place, bar, cache=cache)
    line, facts = release.pulled_to(place)
    _say(order, line, **facts)
    return 0


def _verify(order: argparse.Namespace) -> int:
    from menagerie.figures import decibels, error
    from menagerie.typed_json import plain
    from menagerie.validation import Limits, validate

    report = validate(order.bundle, limits=Limits(threads=order.threads))
    lines = [
        f"{p.program}, case {o.case}, {o.output}: max abs error {error(o.max_abs)}, "
        f"SNR {decibels(o.snr_db)}, " + ("ok" if o.passed else o.fact)
        for p in report.programs
        for o in p.parity
    ]
    where = " on an emulated device" if report.emulated else ""
    lines.append(f"verified{where}" if report.passed else f"{report.verdict}: {report.detail}")
    _say(order, "\n".join(lines), **plain(report))
    return 0 if report.passed else 1


def _run(order: argparse.Namespace) -> int:
    from menagerie.session import Session
    from menagerie.tensor_files import read_inputs, readable, write_outputs

    with Session(order.bundle, order.program, order.threads) as session:
        given = session.run(read_inputs(order.input, session.inputs))
        dtypes = {spec.name: spec.dtype for spec in session.outputs}
    answers = {name: readable(given[name], dtype) for name, dtype in dtypes.items()}
    if order.output is not None:
        write_outputs(answers, order.output)
    lines = [f"{name}: {dtypes[name]} {list(value.shape)}" for name, value in answers.items()]
    described = {
        name: {"dtype": dtypes[name], "shape": value.shape, "values": value.tolist()}
        for name, value in (answers if order.json else {}).items()
    }
    _say(order, "\n".join(lines), **described)
    return 0


def _bench(order: argparse.Namespace) -> int:
    from menagerie.figures import count, milliseconds
    from menagerie.timing import EMULATED, is_emulated, measure, measure_kernels
    from menagerie.typed_json import plain

    if order.profile:
        from menagerie.profile import table, with_shares

        kernels = measure_kernels(
            order.bundle, order.program, threads=order.threads, seconds=order.seconds
        )
        _say(order, table(order.program, kernels), **with_shares(kernels))
        return 0
    found = measure(order.bundle, order.program, threads=order.threads, seconds=order.seconds)
    text = (
        f"{order.program}: minimum {milliseconds(found.minimum_ms)}, "
        f"median {milliseconds(found.median_ms)}, 90 % below {milliseconds(found.p90_ms)}"
    )
    if found.processor_ms is not None:
        text += f", processor {milliseconds(found.processor_ms)}"
    text += f", {count(found.runs, 'run')} on {count(found.threads, 'thread')}"
    emulated = is_emulated(order.bundle)
    if emulated:
        text += f"\n{EMULATED}"
    _say(order, text, **plain(found), emulated=emulated)
    return 0


def _transcribe(order: argparse.Namespace) -> int:
    from menagerie.speech import Transcriber
    from menagerie.speech.command import Order, transcribe

    form = "json" if order.json else order.format
    wanted = Order(order.audio, form, order.output, order.rate)
    given = {name: getattr(order, name) for name in ("head", "threads", "chunk", "language")}
    with Transcriber(order.bundle, **given) as transcriber:
        return transcribe(transcriber, wanted)


def _version(order: argparse.Namespace) -> int:
    from menagerie.library import available_targets, version

    found = {target: _version_of(target, version) for target in available_targets()}
    _say(order, "\n".join(found.values()), **found)
    return 0


def _version_of(target: str, version: Callable[[str], str]) -> str:
    try:
        return version(target)
    except MenagerieError as error:
        return f"menagerie-{target}: not usable here: {error}"


def _say(order: argparse.Namespace, text: str, **fields: Any) -> None:
    if order.json:
        from menagerie.typed_json import plain

        text = json.dumps(plain(fields), indent=2, allow_nan=False)
    from menagerie.figures import printable

    sys.stdout.write(printable(text) + "\n")


def _told(error: Exception) -> str:
    from menagerie.figures import printable

    if isinstance(error, OSError):
        return printable(f"{error.filename or 'system'}: {error.strerror or error}")
    return printable(str(error))


class _Bar:
    """Progress of a download, on a terminal alone."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        share = 100 * done // total if total else 100
        if share == self._shown or not sys.stderr.isatty():
            return
        self._shown = share
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{self._what} {share:3d} % of {total / 1e6:.1f} MB{end}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
