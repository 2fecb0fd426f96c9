"""The page in a real browser: it works, fetches nothing, reads well on a phone and at night."""

import pytest

from helpers import bench_rows
from helpers.browsers import open_in, requests
from merlin.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = bench_rows.write(tmp_path_factory.mktemp("bench"), bench_rows.everything(seeds=2))
    write_report([folder])
    return folder


@pytest.fixture
def page(browser, folder):
    """The page, opened anew in a window of the given width and colour scheme."""

    def open_page(width=1280, scheme="light", url=None):
        return open_in(browser, url or (folder / "report.html").as_uri(), width, scheme)

    return open_page


def run(browser, script, *arguments):
    return browser.execute_script(script, *arguments)


COLUMN = """
const table = document.querySelector('#paper-states-return table');
return [...table.tBodies].map(body => [...body.rows]
  .filter(row => !row.matches('.group, .summary'))
  .map(row => arguments[0] === 0 ? row.cells[0].innerText
       : Number(row.cells[arguments[0]].querySelector('.score:not(.only-' + arguments[1] + ')')
         .innerText.split(' ')[0])));
"""


def shown(browser, column, protocol="final"):
    """The visible values of one column, for each group of rows."""
    hidden = "best" if protocol == "final" else "final"
    return run(browser, COLUMN, column, hidden)


def heading(browser, column):
    return browser.find_elements("css selector", "#paper-states-return thead th")[column]


def test_no_errors_and_nothing_fetched(page, folder):
    browser = page()
    assert browser.get_log("browser") == []
    assert requests(browser) == {(folder / "report.html").as_uri()}
    assert run(browser, "return document.title").endswith("merlin")


def test_text_of_rows_is_only_text(page):
    browser = page()
    assert "<script>alert('x')</script>" in run(
        browser, "return document.getElementById('failures').innerText"
    )
    assert run(browser, "return document.scripts.length") == 1


def test_tables_sort_by_click_and_by_key(page):
    browser = page()
    before = shown(browser, 1)
    button = heading(browser, 1).find_element("tag name", "button")
    button.click()
    assert shown(browser, 1) == [sorted(values) for values in before]
    assert heading(browser, 1).get_attribute("aria-sort") == "ascending"
    assert before != shown(browser, 1)
    button.click()
    assert shown(browser, 1) == [sorted(values)[::-1] for values in before]
    assert heading(browser, 1).get_attribute("aria-sort") == "descending"
    other = heading(browser, 0).find_element("tag name", "button")
    other.send_keys("\ue007")  # Enter
    assert shown(browser, 0) == [sorted(values) for values in shown(browser, 0)]
    other.send_keys(" ")
    assert shown(browser, 0) == [sorted(values)[::-1] for values in shown(browser, 0)]
    assert heading(browser, 1).get_attribute("aria-sort") == "none"
    last = "return [...document.querySelector('#paper-states-return tbody').rows].at(-1).innerText"
    assert run(browser, last).startswith("Average rank")


def test_numbers_sort_as_numbers(page):
    """5.5 stands before 25.1, and what is missing stands last both ways."""
    browser = page()
    script = """
    const body = document.querySelector('#paper-states-return tbody');
    const rows = [...body.rows].filter(row => !row.matches('.group, .summary'));
    ['9.5', '25.1', '-3', '1,000', null, '0'].forEach((value, i) => {
      if (value === null) delete rows[i].cells[2].dataset.final;
      else rows[i].cells[2].dataset.final = value;
    });
    const button = document.querySelectorAll('#paper-states-return thead button')[2];
    const read = () => [...body.rows].filter(row => !row.matches('.group, .summary'))
      .map(row => row.cells[2].dataset.final ?? null);
    button.click(); const up = read(); button.click(); return [up, read()];
    """
    up, down = run(browser, script)
    assert up == ["-3", "0", "9.5", "25.1", "1,000", None]
    assert down == ["1,000", "25.1", "9.5", "0", "-3", None]


def test_the_switch_shows_final_or_best(page):
    browser = page()
    visible = (
        "return [...document.querySelectorAll('.only-' + arguments[0])].some(e => e.offsetWidth)"
    )
    assert (run(browser, visible, "final"), run(browser, visible, "best")) == (True, False)
    final = shown(browser, 1)
    browser.find_element("id", "protocol-final").send_keys("\ue014")  # right arrow key
    assert (run(browser, visible, "final"), run(browser, visible, "best")) == (False, True)
    best = shown(browser, 1, "best")
    assert all(b > f for b, f in zip(best[0], final[0], strict=True))
    assert run(browser, "return document.querySelector('[name=protocol]:checked').value") == "best"


def test_sorting_follows_the_switch(page):
    browser = page()
    heading(browser, 1).find_element("tag name", "button").click()
    run(browser, "document.getElementById('protocol-best').click()")
    assert shown(browser, 1, "best") == [sorted(v) for v in shown(browser, 1, "best")]


def test_a_number_leads_to_its_rows(page):
    browser = page()
    run(browser, "document.querySelector('.score a').click()")
    state = """
    const target = document.querySelector(':target');
    const top = target.getBoundingClientRect().top;
    const bar = document.querySelector('.bar').getBoundingClientRect().bottom;
    const seen = top >= bar && top < innerHeight;
    return [target.id, target.closest('details').open, seen, target.innerText];
    """
    anchor, opened, seen, text = run(browser, state)
    assert anchor == "rows-paper-PointReach-expert-merlin"
    assert opened
    assert seen
    assert text.count("merlin train PointReach") == 2


def test_figures_show(page):
    browser = page()
    sizes = run(
        browser,
        """return [...document.querySelectorAll('figure:not(.only-best) svg.chart')].map(svg => {
          const box = svg.getBoundingClientRect();
          const drawn = svg.querySelector('.drawn').getBoundingClientRect();
          return [box.width, box.height, drawn.width, drawn.height];
        });""",
    )
    assert len(sizes) > 12
    assert all(width > 100 and height > 60 for width, height, _, _ in sizes)
    assert all(max(width, height) > 2 for _, _, width, height in sizes)


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways(page, width):
    browser = page(width)
    run(browser, "document.querySelectorAll('details').forEach(e => e.open = true)")
    assert run(browser, "return document.documentElement.scrollWidth") <= width
    boxes = (
        "return [...document.querySelectorAll('.scroll')].map(e => e.getBoundingClientRect().right)"
    )
    assert max(run(browser, boxes)) <= width
    wider = (
        "return [...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    )
    assert run(browser, wider)  # the tables do, in their own boxes


CONTRAST = """
const parse = colour => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [x, y, z] = [r, g, b].map(v => linear(v / 255));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const behind = element => {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const chosen = 'h1, h2, dt, dd, .about, .bar a, .switch span, caption, thead button, tbody th,'
  + '.score a, .other, .paper, .difference, figcaption, summary, code, ' +
  'svg :not(.on-tile) > text';
return [...document.querySelectorAll(chosen)].filter(e => e.getClientRects().length).map(e => {
  const style = getComputedStyle(e);
  const a = light(parse(e.closest('svg') ? style.fill : style.color)), b = light(behind(e));
  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName, e.textContent];
}).sort((x, y) => x[0] - y[0])[0];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_both_schemes(page, scheme):
    browser = page(scheme=scheme)
    background = run(browser, "return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(246, 247, 249)", "dark": "rgb(14, 17, 21)"}[scheme]
    worst, *where = run(browser, CONTRAST)
    assert worst >= 4.5, where


def test_tables_say_what_they_are(page):
    browser = page()
    script = """return [...document.querySelectorAll('table')].filter(table =>
      !table.caption || !table.querySelector('thead th[scope=col]')
      || !table.querySelector('tbody th[scope=row]')).length"""
    assert run(browser, script) == 0
    twice = """const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
      return ids.filter((id, i) => ids.indexOf(id) !== i)"""
    assert run(browser, twice) == []


def test_figure_files_stand_alone(page, folder):
    for path in sorted((folder / "figures").glob("*.svg")):
        browser = page(url=path.as_uri())
        assert browser.get_log("browser") == []
        size = "const b = document.documentElement.getBBox(); return [b.width, b.height]"
        assert min(run(browser, size)) > 60
