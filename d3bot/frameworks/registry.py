"""The one table of frameworks: everything else asks here by framework name."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from d3bot.frameworks.base import Family, Script, View
from d3bot.frameworks.features import features
from d3bot.frameworks.layers import infer_shapes
from d3bot.frameworks.tensorflow import families as tensorflow_families
from d3bot.frameworks.tensorflow import render as tensorflow_render
from d3bot.frameworks.torch import families as torch_families
from d3bot.frameworks.torch import render as torch_render
from d3bot.spec import FRAMEWORKS, Case, Framework, Setting, SpecError

_Render = Callable[[Case, Setting, str, View], Script]

_FAMILIES: dict[Framework, dict[str, Family]] = {
    "torch": torch_families.FAMILIES,
    "tensorflow": tensorflow_families.FAMILIES,
}
_RENDER: dict[Framework, _Render] = {"torch": torch_render.render, "tensorflow": tensorflow_render.render}
_ENVS: dict[Framework, Mapping[str, str]] = {"torch": torch_render.ENV, "tensorflow": tensorflow_render.ENV}


def families(framework: Framework) -> Mapping[str, Family]:
    """Return the framework's setting families by name."""
    return _FAMILIES[framework]


def family_of(framework: Framework, setting: Setting) -> Family:
    """Return the family of a setting; SpecError if the framework has none of that name."""
    try:
        return _FAMILIES[framework][setting.family]
    except KeyError:
        known = ", ".join(_FAMILIES[framework])
        raise SpecError(f"setting {setting}: {framework} has no family {setting.family!r}; it has {known}") from None


def canonical_setting(framework: Framework, setting: Setting) -> Setting:
    """Return the setting with defaults left out; SpecError names what is unknown or wrong."""
    return family_of(framework, setting).canonical(setting)


def standing_settings(framework: Framework) -> list[Setting]:
    """Return the settings that a run plans when nobody names any."""
    return [
        family.canonical(Setting.parse(text)) for family in _FAMILIES[framework].values() for text in family.standing
    ]


def find_settings(framework: Framework, globs: Sequence[str]) -> list[Setting]:
    """Return the standing settings whose one-line form or family matches a glob; all of them for no globs.

    A glob without wildcards that no standing setting matches is read as a setting of its own, so that one can name
    any setting that exists.
    """
    standing = standing_settings(framework)
    found: dict[str, Setting] = {}
    for glob in globs:
        found_here = [setting for setting in standing if matches(setting, [glob])]
        if not found_here and not any(sign in glob for sign in "*?["):
            setting = Setting.parse(glob)
            if setting.family in _FAMILIES[framework]:
                found_here = [canonical_setting(framework, setting)]
        found |= {str(setting): setting for setting in found_here}
    return list(found.values()) if globs else standing


def matches(setting: Setting, globs: Sequence[str]) -> bool:
    """Return whether a setting's one-line form or its family matches a glob; every setting does for no globs."""
    return not globs or any(fnmatchcase(text, glob) for glob in globs for text in (str(setting), setting.family))


def touched(framework: Framework, files: Sequence[str]) -> list[str]:
    """Return the families of whose own code one of these files is, by paths in the library's repository."""
    return [name for name, family in _FAMILIES[framework].items() if any(f.startswith(family.files) for f in files)]


def obstacle(case: Case, setting: Setting) -> str | None:
    """Return why the rule's preconditions do not hold for this trial, in one sentence; None if they do."""
    family = family_of(case.framework, setting)
    has = features(case)
    excluded = (why for word, why in family.contract.excluded.items() if word in has)
    return next(excluded, None) or family.obstacle(case, setting)


def cost(framework: Framework, setting: Setting) -> float:
    """Return the work of a trial's distributed side, in units of one data-parallel rank of PyTorch."""
    family = family_of(framework, setting)
    return family.cost * family.world(setting)


def render(case: Case, setting: Setting, docstring: str, view: View | None = None) -> Script:
    """Return the script of a trial; without a view it observes everything and allows no difference.

    SpecError if case or setting do not fit the framework.
    """
    infer_shapes(case)
    setting = canonical_setting(case.framework, setting)
    return _RENDER[case.framework](case, setting, docstring, view or View())


def script_env(framework: Framework) -> Mapping[str, str]:
    """Return the ENV of the framework's scripts: one zygote serves one build and one ENV."""
    return _ENVS[framework]


def check_globs(globs: Sequence[str]) -> None:
    """Raise SpecError if a glob matches no setting of any framework."""
    for glob in globs:
        try:
            found = any(find_settings(framework, [glob]) for framework in FRAMEWORKS)
        except SpecError as error:
            raise SpecError(f"--settings {glob}: {error}") from error
        if not found:
            raise SpecError(f"--settings {glob}: no setting matches; `d3bot list settings` shows what there is")
