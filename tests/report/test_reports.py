"""Reports of every kind of result: what is in them, and that no text from data gets past the escaping."""

import ast
import html
import os
import re
from html.parser import HTMLParser

import pytest

import drstream as drs
from drstream.errors import shown
from drstream.report.html import text
from drstream.report.kinds import _of
from tests.helpers import reports
from tests.helpers.places import ROOT

LARGEST = 300_000  # bytes of a report
SECTIONS = {
    "evaluation": ["differences", "estimates", "segments", "weights", "calibration", "variance"],
    "rewards": ["0-differences", "0-estimates", "0-weights", "1-differences", "1-estimates", "1-weights"],
    "rankings": ["differences", "estimates", "weights", "calibration"],
    "candidates": ["differences", "estimates", "weights", "calibration"],
    "merged": ["differences", "estimates", "weights", "variance"],
    "replay": ["curve", "grid", "multiplier", "bias_mass", "calibration"],
    "replays": ["runs", "curve", "multiplier", "bias_mass"],
    "incomplete": ["runs", "curve", "multiplier", "bias_mass"],
    "audit": ["propensities", "actions", "drift"],
    "bad audit": ["propensities", "actions"],
    "plan": ["widths"],
}
VOID = {"meta", "br"}


class Page(HTMLParser):
    """The elements of a page: they must be closed in their order."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.links, self.text = [], [], [], [], []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        assert not any(name.startswith("on") for name in found)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def written(result, tmp_path):
    path = tmp_path / "out.html"
    result.report(path)
    return path.read_text()


@pytest.mark.parametrize("kind", reports.ALL)
def test_a_report_has_its_sections_pictures_and_tables(kind, tmp_path):
    result = reports.ALL[kind]()
    source = written(result, tmp_path)
    page, report = Page(source), _of(result).report(result)
    assert [section.name for section in report.sections] == SECTIONS[kind]
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(page.tags)
    assert page.tags.count("h1") == 1
    assert {"header", "nav", "main", "footer"} <= set(page.tags)
    assert page.tags.count("svg") == 2 * page.tags.count("figure") >= 2  # for wide and narrow screens
    assert page.tags.count("details") >= page.tags.count("figure")
    assert html.escape(report.answers[next(iter(report.answers))].sentence) in source
    for finding in report.findings:
        assert html.escape(shown(finding.message)) in source
    assert re.findall(r"(?:src|url|import)\s*[=(]|https?:", source.partition("</head>")[0]) == []
    assert len(source.encode()) < LARGEST
    assert [name for name in os.listdir(tmp_path) if name != "out.html"] == []


@pytest.mark.parametrize("kind", reports.ALL)
def test_pictures_have_words_and_the_numbers_of_their_rows(kind):
    result = reports.ALL[kind]()
    module = _of(result)
    for section in module.report(result).sections:
        for one in section.shown:
            assert all(column.key in row for row in one.rows for column in one.columns if column.key != "policy")
            if hasattr(one, "alt"):
                assert one.alt.strip(" .;")
                assert one.caption


def test_numbers_of_the_result_are_in_the_report(tmp_path):
    result = reports.evaluation()
    source = written(result, tmp_path)
    for row in result.rows():
        assert f'<td class="number">{row["value"]:.4g}</td>' in source
    assert "q-value" in source
    assert "R² is" in source
    assert "drs.evaluate(log, {&#x27;new&#x27;: drs.policies.Softmax(" in source
    assert drs.__version__ in source
    replay = reports.replay()
    source = written(replay, tmp_path)
    for row in replay.grid.to_pylist():
        assert f"target {row['bias']:g}" in source


def test_a_command_to_repeat(tmp_path):
    reports.audit().report(tmp_path / "a.html", command="drstream audit 'a & b'")
    assert "drstream audit &#x27;a &amp; b&#x27;" in (tmp_path / "a.html").read_text()
    assert "drs.merge([" in written(reports.merged(), tmp_path)
    assert "log.audit(" in written(reports.audit(), tmp_path)


# Hostile text


@pytest.mark.parametrize("kind", ["evaluation", "audit", "replay"])
def test_hostile_text_stays_text(kind, tmp_path):
    result = reports.hostile()[kind]
    for source in (written(result, tmp_path), f"<main>{result._repr_html_()}</main>"):
        page = Page(source)
        assert {"script", "img"}.isdisjoint(page.tags)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
        assert "window.hacked = 1" in "".join(page.text)
        assert len(source.encode()) < LARGEST


def test_text_of_any_kind_is_escaped():
    assert text("a & <b> \"c\" 'd'") == "a &amp; &lt;b&gt; &quot;c&quot; &#x27;d&#x27;"
    assert text("\ud800") == "?"
    assert len(text("x" * 10_000)) < 3_000
    assert text("s3://KEY:SECRET@bucket") == "s3://***@bucket"


def test_only_one_file_makes_html_of_text():
    """`Html(...)` elsewhere, or a string with a tag in it, would get past the escaping."""
    for path in sorted((ROOT / "drstream" / "report").glob("*.py")):
        if path.name == "html.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") != "Html", path
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"<\w+[ >/]", node.value), (path, node.value)


# Files that cannot be written


def test_a_path_that_cannot_be_written_leaves_nothing(tmp_path):
    result = reports.audit()
    for path in (tmp_path / "no" / "out.html", tmp_path, tmp_path / "x\0.html", tmp_path / ("n" * 300 + ".html")):
        with pytest.raises(drs.DrstreamError, match="cannot write the file"):
            result.report(path)
    assert os.listdir(tmp_path) == []


def test_an_error_while_the_report_is_made_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.html"
    path.write_text("old")
    monkeypatch.setattr("drstream.report.svg.draw", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reports.audit().report(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.html"]


# Notebooks


def test_what_notebooks_show():
    for make in reports.ALL.values():
        page = Page(make()._repr_html_())
        assert {"script", "img", "html"}.isdisjoint(page.tags)
        assert page.tags.count("style") == 1
    log = drs.Log(reports.table(100), context="x?")
    assert '<th scope="row">propensity</th>' in log._repr_html_()
    model = drs.models.Ridge()
    assert "not yet" in model._repr_html_()
    assert "<td>100</td>" in model.fit(log)._repr_html_()
    assert "rewards" in log.describe()._repr_html_()
