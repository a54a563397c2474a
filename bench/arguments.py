"""Arguments that the command lines of benchmarks share."""

import argparse


def new_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the module's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_grid(parser: argparse.ArgumentParser, default: str, remark: str = "") -> None:
    parser.add_argument(
        "--grid",
        type=parse_grid,
        default=parse_grid(default),
        metavar="CELLS",
        help=f"tables x ranks, e.g. 26x8,100x16 (default {default}){remark}",
    )


def add_repetitions(parser: argparse.ArgumentParser, default: int, of: str) -> None:
    parser.add_argument(
        "--repetitions",
        type=at_least_one,
        default=default,
        metavar="N",
        help=f"{of} (default {default})",
    )


def add_torchrec_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--torchrec-limit",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="run TorchRec only if it is expected to take less than this (default 60)",
    )


def add_name(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--name", default=default, help=f"name of the result files (default {default})"
    )


def parse_grid(text: str) -> list[tuple[int, int]]:
    """Tables and ranks of each cell of `26x8,100x16`."""
    cells = []
    for cell in text.split(","):
        tables, _, ranks = cell.strip().partition("x")
        if not (tables.isdigit() and ranks.isdigit() and int(tables) and int(ranks)):
            raise argparse.ArgumentTypeError(f"{cell!r} must be TABLESxRANKS, e.g. 100x16")
        cells.append((int(tables), int(ranks)))
    return cells


def at_least_one(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, at least 1")
    return int(text)
