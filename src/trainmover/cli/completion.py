# SPDX-License-Identifier: Apache-2.0
"""`trainmover completion bash`: a script that has the shell complete commands and their flags."""

import argparse
from dataclasses import dataclass

from trainmover.cli.output import say
from trainmover.cli.verbs import VERBS, parser_of


@dataclass(frozen=True)
class Flag:
    """values: that it may have, where they are known; takes: whether it has one."""

    names: tuple[str, ...]
    help: str
    takes: bool
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """values: of its arguments, where they are known."""

    name: str
    summary: str
    flags: tuple[Flag, ...]
    values: tuple[str, ...] = ()


def main(options: argparse.Namespace) -> int:
    """0, and the script on stdout."""
    say(SCRIPTS[options.shell](commands()))
    return 0


def commands() -> list[Command]:
    """Return all commands, from their own parsers."""
    return [_command(verb, one.summary, parser_of(verb)) for verb, one in VERBS.items()]


def _command(verb: str, summary: str, of: argparse.ArgumentParser) -> Command:
    shown = [action for action in of._actions if action.help != argparse.SUPPRESS]
    flags = [
        Flag(
            tuple(dict.fromkeys(name for name in action.option_strings if "_" not in name)),
            (action.help or "").replace("%%", "%"),
            action.nargs != 0,
            tuple(map(str, action.choices or getattr(action, "words", ()) or ())),
        )
        for action in shown
        if action.option_strings
    ]
    values = tuple(
        str(value)
        for action in shown
        if not action.option_strings
        for value in action.choices or ()
    )
    return Command(verb, summary, tuple(flags), values)


def bash(known: list[Command]) -> str:
    cases = "\n".join(f"    {one.name}) words={_quoted(_words(one))} ;;" for one in known)
    with_values = "\n".join(
        f"    {one.name}:{name}) words={_quoted(flag.values)} ;;"
        for one in known
        for flag in one.flags
        for name in flag.names
        if flag.values
    )
    return f"""\
_trainmover() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {_quoted([*(one.name for one in known), "help"])} -- "$word"))
    return
  fi
  case "$verb" in
{cases}
  esac
  case "$verb:${{COMP_WORDS[COMP_CWORD-1]}}" in
{with_values or "    none) ;;"}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -o bashdefault -F _trainmover trainmover"""


def zsh(known: list[Command]) -> str:
    names = "\n".join(f"    {_quoted([f'{one.name}:{one.summary}'])}" for one in known)
    cases = "\n".join(
        f"    {one.name}) _arguments -S {' '.join(_zsh_flags(one))} {_zsh_values(one)} ;;"
        for one in known
    )
    return f"""\
#compdef trainmover
_trainmover() {{
  local -a known
  known=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command known
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{cases}
  esac
}}
if [ "$funcstack[1]" = "_trainmover" ]; then
  _trainmover "$@"
else
  compdef _trainmover trainmover
fi"""


def _zsh_flags(one: Command) -> list[str]:
    """Return a flag's name, what it is for, and what its value is."""
    said: list[str] = []
    for flag in one.flags:
        about = "".join("\\" + letter if letter in "[]:\\" else letter for letter in flag.help)
        values = f"({' '.join(flag.values)})" if flag.values else "_files"
        value = f":value:{values}" if flag.takes else ""
        said += [_quoted([f"{name}[{about}]{value}"]) for name in flag.names]
    return said


def _zsh_values(one: Command) -> str:
    return _quoted([f"*:value:({' '.join(one.values)})" if one.values else "*:file:_files"])


def fish(known: list[Command]) -> str:
    told = "not __fish_seen_subcommand_from " + " ".join(one.name for one in known)
    lines = ["complete -c trainmover -f -n " + _quoted([told])]
    for one in known:
        summary = _quoted([one.summary])
        lines.append(f"complete -c trainmover -n {_quoted([told])} -a {one.name} -d {summary}")
        seen = _quoted([f"__fish_seen_subcommand_from {one.name}"])
        for flag in one.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in flag.names
            )
            values = f" -x -a {_quoted(flag.values)}" if flag.values else " -r" * flag.takes
            about = _quoted([flag.help])
            lines.append(f"complete -c trainmover -n {seen} {names} -d {about}{values}")
        if one.values:
            lines.append(f"complete -c trainmover -n {seen} -f -a {_quoted(one.values)}")
    return "\n".join(lines)


def _words(one: Command) -> list[str]:
    return [name for flag in one.flags for name in flag.names] + list(one.values)


def _quoted(words: "list[str] | tuple[str, ...]") -> str:
    return "'" + " ".join(words).replace("'", "'\\''") + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
