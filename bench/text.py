"""Plain-text tables and units."""


def duration(seconds: float) -> str:
    """Three significant digits in the unit a reader would choose: 812 us, 4.51 ms, 3.92 s."""
    if seconds >= 1:
        value, unit = seconds, "s"
    elif seconds >= 1e-3:
        value, unit = seconds * 1e3, "ms"
    else:
        value, unit = seconds * 1e6, "us"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {unit}"


def ratio(value: float) -> str:
    return f"{value:,.0f} x" if value >= 10 else f"{value:.2f} x"


def table(header: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,)) -> str:
    """A table with aligned columns: those in `left` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def verdicts(checks: dict[str, bool], separator: str = "\n") -> str:
    return separator.join(f"{what}: {'yes' if holds else 'NO'}" for what, holds in checks.items())


def rank_list(ranks: list[int]) -> str:
    """Ranks in order, runs shortened: [0, 1, 2, 3, 5] becomes 0-3,5."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)
