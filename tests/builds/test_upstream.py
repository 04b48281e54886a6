"""Commits, their order, and links: nothing is claimed that a build does not say."""

import pytest

from d3bot.builds.upstream import commit_count, commit_hash, compare_link, night_notes, older_code, reference
from d3bot.spec import Build

OLD, NEW = "v1.12.1-148101-g1111111aaaa", "v1.12.1-148158-gef696751006"


@pytest.mark.parametrize(
    ("described", "found", "count"),
    [
        (NEW, "ef696751006", 148158),
        ("v2.21.0-rc1-5-ga481b10260d", "a481b10260d", 5),
        ("0fabc3ba44823f257e70ce397d989c8de5e362c1", "0fabc3ba44823f257e70ce397d989c8de5e362c1", None),
        ("unknown", "", None),
        ("", "", None),
    ],
)
def test_what_a_library_says_of_its_source(described: str, found: str, count: int | None) -> None:
    assert commit_hash(described) == found
    assert commit_count(described) == count


@pytest.mark.parametrize(
    ("before", "after", "older"),
    [
        (OLD, NEW, False),
        (NEW, OLD, True),
        (NEW, NEW, False),
        ("v2.20.0-9-gaaaaaaa", "v2.21.0-5-gbbbbbbb", False),  # another tag: unknown, so not claimed
        ("aaaaaaa", "bbbbbbb", False),
        ("", OLD, False),
    ],
)
def test_older_code_is_claimed_only_where_it_is_known(before: str, after: str, older: bool) -> None:
    assert older_code(before, after) is older


def build(name: str, commit: str) -> Build:
    return Build(spec=name, framework="tensorflow", name=name, version="2.23.0", commit=commit, python="/e/bin/python")


def test_a_night_of_older_code_than_the_one_before_is_told() -> None:
    new, old = build("tf-nightly", NEW), build("tf-nightly", OLD)
    assert night_notes(old, new) == ()
    assert night_notes(None, new) == ()
    assert night_notes(build("tensorflow", NEW), old) == ()
    (note,) = night_notes(new, old)
    assert note.startswith("older-code: ")
    assert "\n" not in note


@pytest.mark.parametrize(
    ("name", "version", "commit", "found"),
    [
        ("keras", "3.8.0", "", "v3.8.0"),
        ("torch", "2.13.0+cpu", "", "v2.13.0"),
        ("torch", "2.13.0+cpu", "0fabc3b", "0fabc3b"),
        ("keras-nightly", "3.16.0.dev2026102604", "", ""),
        ("tf-nightly", "2.23.0.dev20261026", NEW, "ef696751006"),
    ],
)
def test_a_release_has_its_tag_and_a_nightly_only_what_it_names(
    name: str, version: str, commit: str, found: str
) -> None:
    assert reference(name, version, commit) == found


def test_the_link_leads_to_the_server_in_use() -> None:
    there = {"GITHUB_SERVER_URL": "https://git.example.org/"}
    assert compare_link("keras", "v1", "v2", there) == "https://git.example.org/keras-team/keras/compare/v1...v2"
    assert compare_link("keras", "v1", "v2", {}) == "https://github.com/keras-team/keras/compare/v1...v2"
    assert compare_link("keras", "", "v2", {}) == ""
    assert compare_link("addon", "v1", "v2", {}) == ""
