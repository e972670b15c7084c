"""How commands explain themselves."""

from __future__ import annotations

from collections.abc import Mapping

import typer

#: Tells the help not to join the lines of a paragraph.
_AS_WRITTEN = "\b\n"


def explained(text: str, examples: Mapping[str, str] | None = None) -> str:
    """Return a help text: paragraphs, then examples, each command with what it does."""
    paragraphs = [_AS_WRITTEN + part if "\n" in part else part for part in text.split("\n\n")]
    if examples:
        width = max(map(len, examples))
        if width > 60:
            lines = (f"  # {what}\n  {command}" for command, what in examples.items())
        else:
            lines = (f"  {command:<{width}}  # {what}" for command, what in examples.items())
        paragraphs.append(_AS_WRITTEN + "\n".join(["Examples:", *lines]))
    return "\n\n".join(paragraphs)


def show_help(context: typer.Context) -> None:
    """Show what there is where no command was given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
