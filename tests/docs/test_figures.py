"""README, docs/performance.md and the chart hold the figures of the committed results."""

import html
import subprocess
import sys

from tests.docs.pages import ROOT


def test_the_pages_hold_the_figures_of_the_results():
    script = ROOT / "benchmarks" / "performance.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_the_chart_holds_the_figures_of_the_results():
    _, _, readme = (ROOT / "README.md").read_text().partition("<!-- figures of benchmarks/performance.py -->")
    table = [line for line in readme.splitlines() if line.startswith("| `")]
    chart = html.unescape((ROOT / "docs" / "images" / "speed.svg").read_text())
    assert table
    assert all(line in chart for line in table), "run python tools/pictures.py speed"


def test_the_picture_of_shapes_holds_the_figures_of_the_results():
    page = (
        (ROOT / "docs" / "performance.md").read_text().partition("## Shapes that no table has")[2].partition("\n## ")[0]
    )
    table = [line for line in page.partition("Below 0.85")[0].splitlines() if line.startswith("| `")]
    picture = html.unescape((ROOT / "docs" / "images" / "shapes.svg").read_text())
    assert table
    assert all(line in picture for line in table), "run python tools/pictures.py shapes"


def test_pictures_are_small():
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 200_000, picture.name
