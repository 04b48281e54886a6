"""The index of the world outside: today's tf-nightly is resolved there, never another version, or it is said why not.

Nothing is installed.  Without a network the test is skipped, and the report of the tests says so.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from d3bot.builds import Index
from d3bot.builds.errors import UnavailableError
from d3bot.builds.nights import age_in_days
from d3bot.builds.resolve import Desk, chosen_night
from d3bot.builds.spec import Nightly, parse


def test_the_newest_complete_night_is_chosen_with_its_keras_and_each_that_is_not_is_told(tmp_path: Path) -> None:
    request = parse("tf-nightly")
    assert isinstance(request, Nightly)
    today = datetime.now(UTC).date()
    desk = Desk(Index(pip_config="machine"), tmp_path, print, today, stale_days=7)
    try:
        choice = chosen_night(request, desk)
    except UnavailableError as error:
        if error.outcome == "index-down":
            pytest.skip(f"NOT TESTED, no network: {error}")
        raise
    library, *others = choice.taken.wheels
    assert (library.name, choice.taken.state) == ("tf-nightly", "complete")
    assert {wheel.name for wheel in others} == {"keras-nightly"}
    assert all(wheel.fits and wheel.sha256 and wheel.version.is_devrelease for wheel in choice.taken.wheels)
    assert age_in_days(choice.taken.label, today) >= 0
    assert len(choice.notes) >= min(len(choice.passed_over), 1)
    print(f"{[f'{wheel.name}=={wheel.version}' for wheel in choice.taken.wheels]}, {choice.notes}")
