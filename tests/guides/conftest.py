"""Prints what was promised and kept."""

import pytest
from guide_blocks import KEPT


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    if not KEPT:
        return
    terminalreporter.section("documents: what their code promises")
    for document, number, language, heading, sentence, outcome in sorted(KEPT, key=lambda row: (row[0], row[1])):
        terminalreporter.write_line(f"{document:<16} {number:>3} {language:<7} {heading[:34]:<34} {sentence} | {outcome}")
    failed = sum(row[-1] == "FAILED" for row in KEPT)
    terminalreporter.write_line(f"{len(KEPT)} blocks, {failed} failed")
