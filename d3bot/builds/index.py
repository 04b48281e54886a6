"""Package indexes: where to look, and what is listed there for this interpreter."""

import configparser
import functools
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import StringConstraints, ValidationError, field_validator
from pypi_simple import PYPI_SIMPLE_ENDPOINT, DistributionPackage, NoSuchProjectError, PyPISimple
from pypi_simple.errors import UnsupportedContentTypeError, UnsupportedRepoVersionError

from d3bot.builds.errors import UnavailableError
from d3bot.spec import SpecError
from d3bot.spec.base import Noun

PREFIX = "D3BOT_INDEX_"
TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two packets."""
TRIES = 3

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$", max_length=500)]


class Index(Noun):
    """Where builds come from: the table [index] of d3bot.toml, and variables such as D3BOT_INDEX_URL."""

    url: Url = PYPI_SIMPLE_ENDPOINT
    """The general index: releases, tf-nightly, and what they depend on."""
    torch: Url = "https://download.pytorch.org/whl/{platform}"
    """PyTorch's own index of releases; {platform} is cpu, cu130, rocm7.0."""
    torch_nightly: Url = "https://download.pytorch.org/whl/nightly/{platform}"
    """PyTorch's own index of nightlies."""
    platform: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.]{1,20}$")] = "cpu"
    """Compute platform of PyTorch's indexes where the build spec names none."""
    pip_config: Literal["isolated", "machine"] = "isolated"
    """`machine` honours this machine's pip configuration, its indexes and folders of wheels, as pip itself does;
    `isolated` ignores it, so that no other index leaks into a build."""

    model_config = {**Noun.model_config, "use_attribute_docstrings": True}

    @field_validator("url", "torch", "torch_nightly")
    @classmethod
    def _bare(cls, value: str) -> str:
        if urllib.parse.urlsplit(value).username:
            raise ValueError("an index address must not hold a user name; use a .netrc file")
        return value

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Return the defaults with what D3BOT_INDEX_* variables say; SpecError names the one that is wrong."""
        try:
            return cls.model_validate(index_variables(os.environ if environ is None else environ))
        except ValidationError as error:
            first = error.errors()[0]
            raise SpecError(f"{PREFIX}{str(first['loc'][0]).upper()}: {first['msg']}") from error

    def of(self, name: str, nightly: bool, platform: str = "") -> str:
        """Return the address of the index that has a distribution."""
        if name in _GENERAL:
            return machine_index() or self.url if self.pip_config == "machine" else self.url
        template = self.torch_nightly if nightly else self.torch
        return template.replace("{platform}", platform or self.platform)


_GENERAL = frozenset(("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "keras", "keras-nightly"))


def index_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of `Index` that variables of the environment set."""
    return {
        name.removeprefix(PREFIX).lower(): text.strip()
        for name, text in environ.items()
        if name.startswith(PREFIX) and text.strip()
    }


@functools.cache
def machine_index() -> str:
    """Return the index that this machine's pip is configured to use, or empty if pip has its default."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    reader = configparser.RawConfigParser(delimiters=("=",), strict=False)
    try:
        reader.read_string("[pip]\n" + done.stdout)
    except configparser.Error:
        return ""
    found = {key.rpartition(".")[2].removeprefix("-"): value.strip("'\"") for key, value in reader["pip"].items()}
    return found.get("index-url", "")


@dataclass(frozen=True)
class Listed:
    """A wheel that an index lists."""

    name: str
    version: Version
    filename: str
    url: str
    sha256: str
    """Hexadecimal digits, or empty where the index gives no hash."""
    withdrawn: str | None
    """Why it was yanked (may be empty), or None."""
    fits: bool
    """Whether this interpreter can install it."""
    pure: bool
    """Whether it is Python alone."""
    index: str = ""
    """Address of the index that lists it."""

    @property
    def host(self) -> str:
        """Host of the index."""
        return urllib.parse.urlsplit(self.index).hostname or ""


def list_wheels(index: str, name: str) -> tuple[Listed, ...]:
    """Return the wheels of a project that an index lists, in the order of its page.

    UnavailableError `missing` if the index does not know the project, `index-down` if it gives no usable answer.
    """
    for attempt in range(1, TRIES + 1):
        try:
            with PyPISimple(index if index.endswith("/") else index + "/") as client:
                page = client.get_project_page(name, timeout=TIMEOUT)
            break
        except NoSuchProjectError as error:
            raise UnavailableError("missing", f"{name}: {_host(index)} has no project of that name") from error
        except requests.HTTPError as error:
            code = error.response.status_code
            if code < 500 or attempt == TRIES:
                raise UnavailableError(
                    "index-down", f"{name}: {_host(index)} answers {code}; try again later"
                ) from error
        except (requests.RequestException, UnsupportedContentTypeError, UnsupportedRepoVersionError) as error:
            if attempt == TRIES or not isinstance(error, requests.RequestException):
                raise UnavailableError(
                    "index-down",
                    f"{name}: {_host(index)} gives no usable answer ({_brief(error)}); check the network, name "
                    "another index, or set D3BOT_INDEX_PIP_CONFIG=machine",
                ) from error
    tags = frozenset(sys_tags())
    found = (_listed(package, name, index, tags) for package in page.packages)
    return tuple(item for item in found if item is not None)


def _listed(package: DistributionPackage, name: str, index: str, tags: frozenset[Tag]) -> Listed | None:
    """Return the wheel of a link, or None for what is no wheel of the project: indexes hold other files too."""
    try:
        found, version, _, its = parse_wheel_filename(package.filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    if found != canonicalize_name(name):
        return None
    return Listed(
        name=found,
        version=version,
        filename=package.filename,
        url=package.url,
        sha256=package.digests.get("sha256", "").lower(),
        withdrawn=(package.yanked_reason or "") if package.is_yanked else None,
        fits=bool(its & tags) and _python_fits(package.requires_python),
        pure={(tag.abi, tag.platform) for tag in its} == {("none", "any")},
        index=index,
    )


def _python_fits(requires: str | None) -> bool:
    try:
        return not requires or SpecifierSet(requires).contains(".".join(map(str, sys.version_info[:3])))
    except InvalidSpecifier:
        return True


def _host(index: str) -> str:
    return urllib.parse.urlsplit(index).netloc


def _brief(error: Exception) -> str:
    return type(error).__name__
