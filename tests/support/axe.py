"""The violations that axe finds on a page."""

from collections.abc import Collection

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

GRAVE = {"serious", "critical"}
# Rules of lower impact that the pages also follow.
KEPT = {"empty-table-header", "heading-order", "page-has-heading-one"}


def grave_findings(page: Page, kept: Collection[str] = ()) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['failureSummary']}"
        for rule in found
        if rule["impact"] in GRAVE or rule["id"] in kept
        for node in rule["nodes"]
    ]
