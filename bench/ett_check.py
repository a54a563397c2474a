"""Whether runs of a job are the same, by the losses of all of its steps."""

from pathlib import Path


def differing_losses(
    folders: dict[str, Path], ranks: int, steps: tuple[int, int, int]
) -> list[str]:
    """A line per difference: between variants, and between a step and the same one after a restart.

    `steps` are the saved, the killed and the last one.
    """
    saved, killed, last = steps
    wrong = []
    expected: dict[tuple[int, int], str] = {}
    for variant, folder in folders.items():
        for rank in range(ranks):
            first, second = (_losses(folder / f"losses.{i}.{rank}") for i in (0, 1))
            if sorted(first) != list(range(1, killed + 1)):
                wrong.append(f"{variant}, rank {rank}: the first attempt has other steps")
            if sorted(second) != list(range(saved + 1, last + 1)):
                wrong.append(f"{variant}, rank {rank}: the second attempt has other steps")
            for losses in (first, second):
                for step, loss in losses.items():
                    if expected.setdefault((rank, step), loss) != loss:
                        wrong.append(f"{variant}, rank {rank}, step {step}: another loss")
    return wrong


def _losses(path: Path) -> dict[int, str]:
    """By step; the line of a killed process may be half there."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.split() for line in lines]
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}
