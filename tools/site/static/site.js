// SPDX-License-Identifier: GPL-2.0-only
// A page that was opened from the disk may not fetch others, so that a search there shows titles without extracts.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined")
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
