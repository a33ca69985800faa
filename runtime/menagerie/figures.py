"""Figures for people: few digits, a unit, and a word where a number has no meaning.

Only this module decides how a figure is rounded and which unit it has, for the command line, the
report pages, the Markdown on runs and the benchmarks. Bytes are decimal: 1 MB is 1000 kB. It also
makes foreign text safe for a terminal.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from typing import Any
from unicodedata import category
from urllib.parse import urlsplit, urlunsplit

_POWER = "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹"  # the sign precedes ¹²³, since Latin-1 has these but no signs
_SUPERSCRIPTS = str.maketrans("+-0123456789", _POWER)
_TIMES, _MINUS, _NO_BREAK = "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"
_PLAIN: dict[int, Any] = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−–×µ•\xa0\u202f", "-0123456789--xu*  ", "⁺")  # noqa: RUF001
_PLAIN |= {ord("→"): "->", ord("…"): "...", ord("∞"): "infinite", ord("≤"): "<=", ord("≥"): ">="}
_SAME_SPEED = 0.03  # two medians closer than this count as equal on a shared machine


def significant(value: float, digits: int = 3) -> str:
    """Return a finite value with `digits` significant digits, never in exponent form."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def scientific(value: float) -> str:
    """Return `2.1 × 10⁻⁶` with no-break spaces; powers of ten as `10⁻⁴` or `10⁺¹²`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = f"10{exponent.replace('+0', '').replace('-0', '-').translate(_SUPERSCRIPTS)}"
    return power if mantissa == "1.0" else f"{mantissa}{_NO_BREAK}{_TIMES}{_NO_BREAK}{power}"


def error(value: float) -> str:
    """Return an error: `exact` if there is none, plain digits if it is not small."""
    if value == 0:
        return "exact"
    small, large = 1e-2, 1e4
    return significant(value, 2) if small <= value < large else scientific(value)


def decibels(value: float) -> str:
    """Return a signal-to-noise ratio; an infinite one means equal bits."""
    if math.isinf(value) and value > 0:
        return "bit-equal"
    return f"{value:.1f} dB" if math.isfinite(value) else f"{scientific(value)} dB"


def milliseconds(value: float) -> str:
    """Return a latency: microseconds below one millisecond, seconds above a thousand of them."""
    if value < 1:
        return f"{significant(value * 1e3)} µs"
    thousand = 1e3
    return f"{significant(value)} ms" if value < thousand else f"{significant(value / 1e3)} s"


def seconds(value: float) -> str:
    """Return a duration: `0.42 s`, `31 s`, `2 min 05 s`."""
    ten, minute = 10, 60
    if value < ten:
        return f"{value:.2g} s" if value else "0 s"
    whole = round(value)
    return f"{whole} s" if whole < minute else f"{whole // minute} min {whole % minute:02d} s"


def moment(iso: str) -> str:
    """Return an ISO 8601 time as `2025-03-01 12:00 UTC`; leave other text unchanged."""
    try:
        when = datetime.fromisoformat(iso.replace("Z", "+00:00"))  # noqa: FURB162 - Python 3.10
    except ValueError:
        return iso
    return f"{when.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC" if when.tzinfo else iso


def size(value: int) -> str:
    """Return bytes in decimal units, like file managers and download pages."""
    step, amount = 1000, float(value)
    if amount < step:
        return f"{value} B"
    for unit in ("kB", "MB", "GB"):
        amount /= step
        if amount < step or unit == "GB":
            break
    return f"{significant(amount)} {unit}"


def percent(share: float) -> str:
    """Return a share of a whole: `99.5 %`; only nothing is `0 %`, and only the whole `100 %`."""
    least, most = 0.001, 0.999
    near = min(max(share, least), most) if 0 < share < 1 else share
    sign = "" if near == share else "<" if near > share else ">"
    return f"{sign}{100 * near:.{int(0 < share < 1)}f}{_NO_BREAK}%"


def thousands(value: int) -> str:
    """Return an integer with thin spaces between its thousands."""
    return f"{value:,}".replace(",", "\u202f")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 kernel`, `3 kernels`."""
    return f"{thousands(number)} {noun}{'' if number == 1 else 's'}"


def times(factor: float) -> str:
    """Return the ratio of two times: `1.35×`, and `13×` from ten on."""
    ten = 10
    return f"{factor:.0f}{_TIMES}" if factor >= ten else f"{factor:.2f}{_TIMES}"


def speed(ratio: float | None) -> str:
    """Return the artifact's time over eager's, as `1.35× faster than eager` or `not compared`."""
    if ratio is None or ratio <= 0:
        return "not compared"
    if abs(ratio - 1) < _SAME_SPEED:
        return "as fast as eager"
    if ratio < 1:
        return f"{times(1 / ratio)} faster than eager"
    return f"{times(ratio)} slower than eager"


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Escape everything in `text` that could steer a terminal."""
    letters = ((c, c.isprintable() or c in keep or category(c) == "Zs") for c in text)
    return "".join(c if safe else c.encode("unicode_escape").decode() for c, safe in letters)


def shown_json(value: Any, **options: Any) -> str:
    """Return a value as ASCII JSON, which cannot steer a terminal."""
    return json.dumps(value, **options).replace("\x7f", r"\u007f")


def in_ascii(error: Any) -> tuple[str, int]:
    """Return replacements of characters that an encoding lacks; an error handler of `codecs`."""
    rest = error.object[error.start :]
    power = rest[: len(rest) - len(rest.lstrip(_POWER))]  # all of it: some encodings only have ¹²³
    text = power or rest[0]
    shown = text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()
    return "^" * bool(power) + shown, error.start + len(text)


def shown_address(url: str) -> str:
    """Return `url` without possible secrets: user name, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0].rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
