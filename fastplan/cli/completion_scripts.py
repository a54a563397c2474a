"""Completion scripts, one function per shell. They hold words only and never run fastplan."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fastplan.cli.completion import Node, Value


def bash(nodes: list[Node]) -> str:
    """For bash 4 and later, with or without the bash-completion package."""
    return f"""# bash completion for fastplan
_fastplan_paths() {{
    # `filenames` quotes them, and puts a slash after folders.
    compopt -o filenames 2>/dev/null
    mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -f -- "$1")
}}

_fastplan() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local place='' skip='' word i
    COMPREPLY=()
    # bash takes the `=` of `--option=value` for a word.
    if [[ $current == = ]]; then
        current=''
    elif [[ $previous == = ]]; then
        previous=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        if [[ $word == = ]]; then continue; fi
        if [[ -n $skip ]]; then skip=''; continue; fi
        case "$place $word" in
{_bash_steps(nodes)}
        esac
    done
    case "$place $previous" in
{_bash_values(nodes)}
    esac
    if [[ $current == -* ]]; then
        case "$place" in
{_bash_words(nodes, options=True)}
        esac
        return
    fi
    case "$place" in
{_bash_words(nodes, options=False)}
    esac
}}
complete -F _fastplan fastplan
"""


def _bash_steps(nodes: Iterable[Node]) -> str:
    """Which word leads from which place to which, and which takes the next word with it."""
    lines = []
    for node in nodes:
        place = _place(node)
        for name in node.below:
            inner = " ".join((*node.words, name))
            lines.append(f"            {_quoted(f'{place} {name}')}) place={_quoted(inner)} ;;")
        if node.values:
            flags = "|".join(_quoted(f"{place} {flag}") for flag in node.values)
            lines.append(f"            {flags}) skip=1 ;;")
    return "\n".join(lines)


def _bash_values(nodes: Iterable[Node]) -> str:
    lines = []
    for node in nodes:
        for flag, value in node.values.items():
            reply = _bash_reply(value)
            lines.append(f"        {_quoted(f'{_place(node)} {flag}')}) {reply}return ;;")
    return "\n".join(lines)


def _bash_words(nodes: Iterable[Node], *, options: bool) -> str:
    lines = []
    for node in nodes:
        if options:
            replies = _bash_reply(Value(tuple(node.options)))
        else:
            replies = _bash_reply(_argument(node))
        lines.append(f"            {_quoted(_place(node))}) {replies};;")
    return "\n".join(lines)


def _bash_reply(value: Value) -> str:
    reply = ""
    if value.words:
        reply += f'COMPREPLY+=($(compgen -W {_quoted(" ".join(value.words))} -- "$current")); '
    if value.path:
        reply += '_fastplan_paths "$current"; '
    return reply


def zsh(nodes: list[Node]) -> str:
    """For zsh's completion system; works as a file of `fpath` and sourced."""
    functions = "\n\n".join(_zsh_function(node) for node in reversed(nodes))
    return f"""#compdef fastplan
# zsh completion for fastplan

{functions}

if [[ ${{zsh_eval_context[-1]}} == loadautofunc ]]; then
    _fastplan "$@"
else
    compdef _fastplan fastplan
fi
"""


def _zsh_function(node: Node) -> str:
    specs = []
    for flag, told in node.options.items():
        text = _zsh_text(told)
        value = node.values.get(flag)
        specs.append(_quoted(f"{flag}[{text}]" + (_zsh_action(value) if value else "")))
    lines = [f"{_function(node.words)}() {{"]
    if node.below:
        names = " ".join(_quoted(f"{name}:{told}") for name, told in node.below.items())
        specs += [_quoted("1: :->word"), _quoted("*:: :->rest")]
        cases = "\n".join(
            f"            {name}) {_function((*node.words, name))} ;;" for name in node.below
        )
        lines += [
            "    local state line curcontext=$curcontext",
            f"    local -a names=({names})",
            f"    _arguments -C {' '.join(specs)}",
            '    if [[ $state == word ]]; then _describe "word" names; fi',
            "    if [[ $state == rest ]]; then",
            '        case "${line[1]}" in',
            cases,
            "        esac",
            "    fi",
        ]
    else:
        argument = _argument(node)
        if argument.words or argument.path:
            specs.append(_quoted(f"*{_zsh_action(argument)}"))
        lines.append(f"    _arguments {' '.join(specs)}")
    return "\n".join([*lines, "}"])


def _zsh_action(value: Value) -> str:
    words = f"({' '.join(value.words)})" if value.words else "_files" if value.path else " "
    return f":value:{words}"


def _zsh_text(told: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", told)


def fish(nodes: list[Node]) -> str:
    """For fish 3 and later."""
    lines = ["# fish completion for fastplan", "complete -c fastplan -f"]
    for node in nodes:
        here = _fish_condition(node)
        for name, told in node.below.items():
            lines.append(f"complete -c fastplan {here} -a {name} -d {_fish_quoted(told)}")
        for flag, told in node.options.items():
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            value = node.values.get(flag)
            takes = f" -x -a {_fish_quoted(' '.join(value.words))}" if value else ""
            if value and value.path:
                takes = " -r -F"
            lines.append(f"complete -c fastplan {here} {kind}{takes} -d {_fish_quoted(told)}")
        argument = _argument(node)
        if argument.path:
            lines.append(f"complete -c fastplan {here} -F")
        elif argument.words and not node.below:
            words = _fish_quoted(" ".join(argument.words))
            lines.append(f"complete -c fastplan {here} -a {words}")
    return "\n".join(lines) + "\n"


def _fish_condition(node: Node) -> str:
    """Holds while the command line has got to the node and no further."""
    parts = [f"__fish_seen_subcommand_from {word}" for word in node.words]
    if not node.words:
        parts = ["__fish_use_subcommand"]
    elif node.below:
        parts.append(f"not __fish_seen_subcommand_from {' '.join(node.below)}")
    return f"-n {_fish_quoted('; and '.join(parts))}"


def _argument(node: Node) -> Value:
    """What can stand here without a flag."""
    if node.below:
        return Value(tuple(node.below))
    words = [word for value in node.arguments for word in value.words]
    return Value(tuple(dict.fromkeys(words)), any(value.path for value in node.arguments))


def _place(node: Node) -> str:
    return " ".join(node.words)


def _function(words: tuple[str, ...]) -> str:
    return "_".join(("_fastplan", *words))


def _quoted(text: str) -> str:
    """For bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
