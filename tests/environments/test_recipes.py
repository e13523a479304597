"""What must be true of the recipes, built or not."""

from __future__ import annotations

import pathlib
import re

import pytest

RECIPES = pathlib.Path(__file__).parents[2] / "environments"
NAMES = sorted(recipe.parent.name for recipe in RECIPES.glob("*/Dockerfile"))


def shared(name: str) -> str:
    recipe = (RECIPES / name / "Dockerfile").read_text()
    return recipe[recipe.index("\n# begin") : recipe.index("\n# end")]


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_begins_with_base(name: str) -> None:
    assert shared(name) == shared("base")
    assert (RECIPES / name / "node.txt").read_text() == (RECIPES / "base/node.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_a_company_stay_in_stages_that_are_not_kept(name: str) -> None:
    stages = re.split(r"^FROM ", (RECIPES / name / "Dockerfile").read_text(), flags=re.M)
    parents = {stage.split()[2]: stage.split()[0] for stage in stages[1:]}
    kept = list(parents)[-1]
    lineage = []
    while kept in parents:
        lineage.append(kept)
        kept = parents[kept]
    for stage in stages[1:]:
        if stage.split()[2] in lineage:
            assert not re.search(r"^ARG ", stage, flags=re.M), stage


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_is_in_the_readme(name: str) -> None:
    assert f"[`{name}`]({name}/Dockerfile)" in (RECIPES / "README.md").read_text()
