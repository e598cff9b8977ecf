// SPDX-License-Identifier: GPL-2.0-only
// What is wrong with a page as it is shown: pictures without a picture, what is wider than the window, pale text.
(async () => {
  const faults = [];
  for (const image of document.images) {
    try { await image.decode(); } catch { /* told below */ }
    if (!image.naturalWidth) faults.push(`the picture ${image.getAttribute("src")} is not shown`);
  }
  const width = document.documentElement.clientWidth;
  const own = (one) => one && (one.matches(".table-wrapper, pre, .highlight, .wide") || own(one.parentElement));  // scroll by themselves
  const wide = [...document.querySelectorAll("article *")].filter((one) =>
    one.getBoundingClientRect().right > width + 1 && !own(one) && getComputedStyle(one).visibility !== "hidden");
  if (wide.length || document.documentElement.scrollWidth > width) {
    const named = wide.slice(0, 3).map((one) => `${one.tagName.toLowerCase()} ${one.textContent.trim().slice(0, 40)}`);
    faults.push(`wider than the window of ${width} pixels: ${named.join("; ")}`);
  }
  const parts = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const bright = (color) => {
    const [r, g, b] = parts(color).map((one) => (one /= 255, one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (parts(color).length === 3 || parts(color)[3] === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const seen = new Set();
  const walk = document.createTreeWalker(document.querySelector("article") || document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const style = getComputedStyle(node.parentElement);
    if (!node.data.trim() || node.parentElement.closest("svg, .headerlink, .copybtn")) continue;
    const back = ground(node.parentElement), key = style.color + back;
    if (seen.has(key)) continue;
    seen.add(key);
    const [low, high] = [bright(style.color), bright(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(1)}: ${style.color} on ${back}: ${node.data.trim().slice(0, 40)}`);
  }
  return {faults, ground: ground(document.querySelector("article") || document.body)};
})()
