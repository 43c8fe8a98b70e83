"""Looks at a page in Chromium: `apt-get install chromium` puts it on a Debian machine."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

# What is asked of the page, in its own window; the answer is read from the outer page's body.
ASK = """
const frame = document.querySelector("iframe");
frame.onload = () => {
  const inside = frame.contentDocument, view = frame.contentWindow;
  const box = element => element.getBoundingClientRect();
  const texts = [...inside.querySelectorAll("svg text")];
  const luminance = colour => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255);
    const [r, g, b] = parts.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const card = view.getComputedStyle(inside.querySelector(".card")).backgroundColor;
  const cut = texts.filter(text => {
    const inner = box(text), outer = box(text.closest("svg"));
    return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
      || inner.bottom > outer.bottom + 1;
  });
  // Letters reach less high and low than their boxes; of a turned text the box says little.
  const straight = texts.filter(text => !/rotate\\((?!-?0[ )])/.test(text.getAttribute("transform") || ""));
  const overlap = (a, b) => {
    const [first, second] = [box(a), box(b)], slack = 0.2 * first.height;
    return first.left < second.right - 1 && second.left < first.right - 1
      && first.top + slack < second.bottom - slack && second.top + slack < first.bottom - slack;
  };
  const together = (a, b) => a.closest("svg") === b.closest("svg") && overlap(a, b);
  const overlaps = straight.flatMap((a, i) => straight.slice(i + 1).filter(b => together(a, b))
    .map(b => a.textContent + " | " + b.textContent));
  const look = {
    overlaps,
    turned: texts.length - straight.length,
    secondColumns: [...inside.querySelectorAll(".scroll table")].map(table =>
      Math.round(box(table.rows[0].cells[1]).right - box(table.parentElement).right)),
    tileOverflow: Math.max(0, ...[...inside.querySelectorAll(".tile b")].map(b => b.scrollWidth - b.clientWidth)),
    width: inside.documentElement.scrollWidth,
    pictures: inside.querySelectorAll("svg").length,
    pictureWidths: [...inside.querySelectorAll("svg")].map(svg => Math.round(box(svg).width)),
    smallestText: Math.min(...texts.map(text => parseFloat(view.getComputedStyle(text).fontSize)
      * box(text.closest("svg")).width / text.closest("svg").viewBox.baseVal.width)),
    cut: cut.map(text => text.textContent),
    card,
    lowestContrast: Math.min(...texts.map(text => contrast(view.getComputedStyle(text).fill, card))),
    bodyContrast: contrast(view.getComputedStyle(inside.body).color, card),
    ids: [...inside.querySelectorAll("[id]")].map(element => element.id),
    dangling: [...inside.querySelectorAll("nav a")].filter(a => !inside.querySelector(a.getAttribute("href"))).length,
    requests: view.performance.getEntriesByType("resource").map(entry => entry.name),
  };
  document.body.textContent = "@@" + JSON.stringify(look) + "@@";
};
"""


def look(page: Path, width: int, scratch: Path, *, dark: bool = False) -> dict[str, Any]:
    """What a page looks like in a window of this width: see ASK."""
    outer = scratch / "outer.html"
    inside = escape(page.read_text(encoding="utf-8"), quote=True)
    frame = f'<iframe style="width:{width}px;height:800px;border:0" srcdoc="{inside}"></iframe>'
    # The script comes first: it has to be there when the frame is.
    script = f"<script>document.addEventListener('DOMContentLoaded', () => {{{ASK}}})</script>"
    outer.write_text(f"<!doctype html><meta charset=utf-8>{script}<body>{frame}</body>", encoding="utf-8")
    said = _chromium(scratch, "--virtual-time-budget=5000", "--dump-dom", outer.as_uri(), dark=dark, width=width)
    answer = re.search(r"<body>@@(.*)@@</body>", said, re.S)
    assert answer, f"the page did not answer:\n{said[:2000]}"
    return json.loads(unescape(answer[1]))


def screenshot(page: Path, width: int, height: int, to: Path, *, dark: bool = False) -> None:
    _chromium(to.parent, f"--screenshot={to}", page.as_uri(), dark=dark, width=width, height=height)


def _chromium(scratch: Path, *arguments: str, dark: bool, width: int, height: int = 900) -> str:
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--user-data-dir={scratch / 'chromium'}", f"--window-size={max(width, 500)},{height}"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command = [CHROMIUM, *options, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
