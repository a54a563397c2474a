"""Tables, lists and units in Markdown."""

from collections.abc import Iterable, Sequence

from bench.text import duration


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---" for _ in header], *rows]
    return "\n".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in lines
    )


def size(count: int) -> str:
    """Bytes in the unit a reader would choose: 2.8 kB, 1.10 MB."""
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def spread(seconds: Sequence[float]) -> str:
    return f"{duration(min(seconds))} - {duration(max(seconds))}"


def part(value: float) -> str:
    """A fraction in per cent, with as many decimal places as it needs."""
    percent = 100 * value
    places = 0 if percent >= 10 else 1 if percent >= 1 else 2
    return f"{percent:.{places}f} %"
