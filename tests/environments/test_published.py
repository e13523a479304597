"""What the published code interpreter is asked for without any kernel, it does with those of the environment."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from inside import Environment
from served import ROOT

SUITE = ROOT / "tests/sdk/python"
sys.path.append(str(SUITE))
from clients import KINDS, Box  # noqa: E402

described = importlib.util.spec_from_file_location("code_of_the_published_clients", SUITE / "test_code.py")
suite = importlib.util.module_from_spec(described)
described.loader.exec_module(suite)

# Those that say nothing of what only the drivers of execd do.
for name in [
    "test_the_interpreter_finds_that_code_can_be_run",
    "test_an_interpreter_that_is_closed_leaves_the_sandbox",
    "test_waiting_until_it_is_ready_ends",
    "test_a_context_remembers_what_a_cell_did",
    "test_whoever_names_no_context_has_the_one_of_the_language",
    "test_code_without_a_language_is_python",
    "test_a_context_is_found_by_its_id_and_listed_by_its_language",
    "test_a_deleted_context_is_gone",
    "test_all_contexts_of_a_language_are_deleted_at_once",
    "test_two_contexts_know_nothing_of_each_other",
    "test_twenty_contexts_work_side_by_side",
    "test_cells_of_one_context_are_run_one_after_the_other",
    "test_two_languages_work_at_once",
    "test_a_context_of_another_language_is_refused",
    "test_what_is_printed_comes_while_the_cell_runs",
    "test_a_context_in_which_nothing_runs_may_be_interrupted",
    "test_html_reaches_whoever_reads_the_events_themselves",
]:
    globals()[name] = getattr(suite, name)


@pytest.fixture(params=KINDS)
def box(request: pytest.FixtureRequest, code_interpreter: Environment) -> Iterator[Box]:
    box = Box(
        code_interpreter.server,
        request.param,
        "direct",
        image=code_interpreter.image,
        resource={"cpu": "2", "memory": "4Gi"},
        ready_timeout=timedelta(minutes=2),
    )
    yield box
    box.close()


# The kernel of TypeScript is not to be interrupted in a loop that waits for nothing: it is ended, and says so.
@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
def test_a_cell_that_is_interrupted_ends_and_its_context_lives_on(box: Box, language: str) -> None:
    suite.test_a_cell_that_is_interrupted_ends_and_its_context_lives_on(box, language)
