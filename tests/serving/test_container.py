"""The image's recipe against what the package needs: images cannot be built wherever tests run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from mineru_diffusion.cli import app

yaml = pytest.importorskip("yaml")
tomllib = pytest.importorskip("tomllib", reason="comes with Python 3.11")

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def copied() -> set[str]:
    """What the build stage copies, as paths in the repository."""
    build = RECIPE.split("\nFROM ")[1]
    lines = [shlex.split(line)[1:] for line in build.splitlines() if line.startswith("COPY ")]
    return {source for *sources, _ in lines for source in sources}


def let_through() -> set[str]:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "*"
    return {line[1:] for line in lines if line.startswith("!")}


def test_the_build_has_every_file_that_the_package_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", "constraints.txt", project["project"]["readme"], *wheel.get("force-include", ())}
    needed |= {package.split("/")[0] for package in wheel.get("packages", ())}
    assert needed <= copied()
    assert copied() == let_through()
    assert all((ROOT / path).exists() for path in copied())


def serve_options() -> dict[str, Any]:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {name: option for option in command.params for name in option.opts}


def test_options_and_variables_are_those_of_the_server() -> None:
    """What containers are started with: by the image, by the compose file and by the page about serving."""
    options = serve_options()
    variables = {name for option in options.values() for name in [option.envvar] if isinstance(name, str)}
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    starts = re.findall(r"^ENTRYPOINT (\[.*\])$", RECIPE, re.M) + re.findall(r"^mineru-diffusion serve.*$", page, re.M)
    used = {word for line in starts for word in re.findall(r"--[\w-]+", line)}
    used |= set(re.findall(r"`(--[\w-]+)", page)) - {"--url"}
    assert used <= set(options)
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    arguments = set(re.findall(r"^ARG (\w+)", RECIPE, re.M))
    for service in composed["services"].values():
        assert set(service["environment"]) <= variables
        assert set(service["build"]["args"]) <= arguments
        assert {volume.split(":")[1] for volume in service["volumes"]} == set(
            re.findall(r"^VOLUME (\S+)", RECIPE, re.M)
        )


def test_an_empty_key_variable_asks_for_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compose file passes it empty when nobody sets one."""
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    for given, keys in (("", []), ("one two", ["one", "two"])):
        monkeypatch.setenv("MINERU_DIFFUSION_API_KEY", given)
        assert list(command.make_context("serve", []).params["api_key"] or ()) == keys
