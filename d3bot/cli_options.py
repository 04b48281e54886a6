"""Options that several commands of the command line share."""

from pathlib import Path
from typing import Annotated

import typer

from d3bot.flow.listing import complete_settings

ConfigFile = Annotated[Path | None, typer.Option("--config", help="Configuration file (default: d3bot.toml).")]
Builds = Annotated[
    list[str] | None,
    typer.Option(
        "--build",
        "-b",
        metavar="SPEC",
        help="torch==2.13.0, torch@nightly, tf-nightly, a range, a wheel, python:/path, overlay:DIR+python:/path.",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for machines; everything else goes to stderr.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone.")]
SettingGlobs = Annotated[
    list[str] | None,
    typer.Option(
        "--settings",
        "-s",
        metavar="GLOB",
        help="Globs on settings or families, such as 'fsdp2*'.",
        autocompletion=complete_settings,
    ),
]
OneSetting = Annotated[
    str | None,
    typer.Option(
        "--setting", "-s", help="One setting (default: its own, or all that apply).", autocompletion=complete_settings
    ),
]
SeedsFolder = Annotated[str | None, typer.Option("--seeds", metavar="DIR", help="Folder of seed files, or none.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the fresh cases; the run prints the one it took.")]
Workers = Annotated[int | None, typer.Option("--workers", help="Trials at the same time (default: one a core).")]
