// SPDX-License-Identifier: GPL-2.0-only
/* Returns the least contrast and the smallest size of all texts. */
() => {
  const part = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = text => part(text).reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const back = one => { for (; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor; if (!/, 0\)$/.test(colour)) return colour; } };
  const contrast = one => { const [a, b] = [light(getComputedStyle(one).color), light(back(one))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05); };
  const texts = [...document.querySelectorAll("h1, h2, h3, p, td, th, button, .row span, #heads span, figcaption")];
  return {least: Math.min(...texts.map(contrast)), size: Math.min(...texts.map(one => parseFloat(getComputedStyle(one).fontSize))),
    tones: D.tones};
}
