"""Log messages with names, paths and errors from outside."""

import logging
from pathlib import Path

import fastplan
from fastplan.model.log import escaped_logger

PACKAGE = Path(fastplan.__file__).parent


def test_a_message_can_not_move_the_cursor_or_turn_its_text(caplog):
    logger = escaped_logger("fastplan.tests.log")
    with caplog.at_level(logging.INFO, logger="fastplan"):
        logger.info("a %s b %d", "\x1b[2J\u202e", 7)
        logger.info("plain \x07")
    assert caplog.messages == ["a \\x1b[2J\\u202e b 7", "plain \\x07"]


def test_an_argument_without_text_does_not_raise_into_the_caller(capsys):
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    logger = escaped_logger("fastplan.tests.log")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    logger.propagate = False  # pytest's own handler raises
    try:
        logger.warning("%s", Broken())
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    assert "no text" in capsys.readouterr().err


def test_every_logger_of_a_module_escapes():
    plain = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "getLogger(__name__)" in path.read_text()
    ]
    assert plain == ["__init__.py"]  # which logs a representation
