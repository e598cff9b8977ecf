// SPDX-License-Identifier: GPL-2.0-only
// How search results are ordered: the words of a page all count the same, so the kind of page decides between them.
const ORDER = [["protocol/glossary", 4], ["protocol/", 3], ["howto/", 2], ["tutorials/", 2], ["reference/coverage", -4], ["reference/", 1]];
var Scorer = {
  score: ([page, , , , score]) => score + (ORDER.find(([start]) => page.startsWith(start)) || ["", 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
