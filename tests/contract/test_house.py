"""The house: floors, files, and what every test and every module says."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
MODULES = sorted((ROOT / "langgraph_handoff").rglob("*.py"))


def functions_in(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node for node in found if node.name.startswith("test_")]


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.stem)
def test_every_test_states_a_truth(file: Path) -> None:
    """Each test has a docstring, and each test file has tests."""
    found = functions_in(ast.parse(file.read_text()))
    assert found
    assert [node.name for node in found if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("file", MODULES, ids=lambda path: path.stem)
def test_every_module_has_one_idea(file: Path) -> None:
    """A module says in its docstring what it is, and stays readable in one sitting."""
    text = file.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 650


def test_each_node_file_is_a_node_of_the_drawing() -> None:
    """The files under `nodes/` are the node functions of the same names."""
    for file in (ROOT / "langgraph_handoff" / "nodes").glob("*.py"):
        if file.stem != "__init__":
            names = {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}
            assert file.stem in names


def test_there_is_one_place_for_each_of_the_four_acts() -> None:
    """One module asks about writes, one calls privileged functions, one moves a case's owner for agents, one reads answers."""
    nodes = {file.stem: file.read_text() for file in (ROOT / "langgraph_handoff" / "nodes").glob("*.py")}
    assert [name for name, text in sorted(nodes.items()) if re.search(r"\binterrupt\(", text)] == ["approval", "human"]
    assert [name for name, text in sorted(nodes.items()) if '"start"' in text] == ["write"]
    assert [name for name, text in sorted(nodes.items()) if "read_answer(" in text] == ["approval"]


def test_no_private_name_of_the_host_is_used() -> None:
    """Only public modules and names of langgraph and langchain are imported."""
    private = re.compile(
        r"^\s*(from|import) (langgraph|langchain\w*)(\.\w+)*\._|^\s*from (langgraph|langchain\w*)[\w.]* import (.*\b)?_\w",
        re.MULTILINE,
    )
    assert [str(file) for file in MODULES if private.search(file.read_text())] == []


def test_the_constraints_hold_names_and_versions_only() -> None:
    """No line of the constraints names a host, a path or an option."""
    lines = (ROOT / "constraints.txt").read_text().split()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)] == []


def test_every_graph_of_langgraph_json_is_there() -> None:
    """Each entry of langgraph.json names a file that has a `graph`."""
    for address in json.loads((ROOT / "langgraph.json").read_text())["graphs"].values():
        file, name = address.split(":")
        assert re.search(rf"^{name} = ", (ROOT / file).read_text(), re.MULTILINE)


def test_the_wheel_holds_the_package_and_its_marker() -> None:
    """The package is typed, its version is the project's, and its dependencies are ranges."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert (ROOT / "langgraph_handoff" / "py.typed").exists()
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["langgraph_handoff"]
    assert all("<" in each and ">=" in each for each in project["project"]["dependencies"])
