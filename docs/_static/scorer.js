// Order of search results. Pages that contain the terms in their text have equal scores in Sphinx's search; here pages that explain come before
// pages that list, and these before the pages for contributors.
const Shelves = { "concepts/": 4, "guides/": 3, "get-started/": 3, "reference/": 1 };

var Scorer = {
  score: ([docname, title, anchor, description, score]) => score + (Object.entries(Shelves).find(([shelf]) => docname.startsWith(shelf)) || ["", 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
