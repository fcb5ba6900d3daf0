"""Prints the result of every form, and names the verdicts that a test does not accept."""
import collections

from losses import judge
from losses.forms import EXACT


NEEDLESS = "refused needlessly"  # for a form that must be exact


class Table:
    """Rows of forms. Not accepted: a different loss is trained, a tool fails in another way, or a form that must be
    exact is refused (`needless`)."""

    def __init__(self, limit=judge.LIMIT):
        self.limit, self.counts, self.bad, self.largest = limit, collections.Counter(), [], 0.0

    def add(self, form, verdict):
        kind = verdict.kind
        if kind == judge.REFUSED and form.expected == EXACT:
            kind = NEEDLESS
        self.counts[kind] += 1
        self.largest = max(self.largest, verdict.error if kind == judge.EQUAL else 0.0)
        if kind not in (judge.EQUAL, judge.REFUSED):
            self.bad.append((form, kind))
        print(f"{kind:18} {form.section}, {form.name}: {form.text}" + (f"\n{'':19}{verdict.text}" if verdict.text else ""), flush=True)

    def figure(self, what):
        c = self.counts
        return (f"{sum(c.values())} {what}: {c[judge.EQUAL]} equal (worst {self.largest:.1g}, limit {self.limit:g}), {c[judge.REFUSED]} refused as expected, "
                f"{c[NEEDLESS]} refused needlessly, {c[judge.WRONG]} wrong, {c[judge.FAILED]} failed")
