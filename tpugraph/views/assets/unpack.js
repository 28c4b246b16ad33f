"use strict";
// The data of the page: JSON, compressed, as base64.

async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function bytesText(count) {
  if (count === null || count === undefined) return "";
  const units = ["bytes", "KiB", "MiB", "GiB"];
  let size = count, unit = 0;
  while (size >= 1024 && unit < 3) { size /= 1024; unit += 1; }
  return unit ? `${size.toFixed(1)} ${units[unit]}` : `${count.toLocaleString("en")} bytes`;
}

/** An element with text or children; every text is a text node, so that no name can be taken for markup. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") element.addEventListener("click", value);
    else element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
