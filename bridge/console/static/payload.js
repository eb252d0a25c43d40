// A value: arrow keys walk its lines and fold them, and what is chosen is copied with its path (a JSON Pointer).
// Without it the lines fold, and the search is the server's.
"use strict";
(() => {
  const OURS = ".fold, .tag", LINE = ".r";
  // The text of an element: what is shown as U+202E is that character again, and what is ours is left out.
  const exact = (at, without = "") => {
    const copy = at.cloneNode(true);
    for (const each of copy.querySelectorAll(OURS + without)) each.remove();
    for (const each of copy.querySelectorAll(".esc"))
      each.replaceWith(each.textContent.startsWith("U+") ? String.fromCodePoint(parseInt(each.textContent.slice(2), 16)) : "\ufffd");
    return copy.textContent;
  };
  const plain = (at, without) => exact(at, without).trim();
  const isBlock = line => line.tagName === "SUMMARY";
  const over = line => (isBlock(line) ? line.parentElement.parentElement : line.parentElement).closest("details");
  const above = line => over(line)?.firstElementChild;
  const isSeen = line => { for (let at = over(line); at; at = at.parentElement.closest("details")) if (!at.open) return false; return true; };
  const depth = line => { let found = 0; for (let at = above(line); at; at = above(at)) found++; return found; };
  const steps = line => line ? [...steps(above(line)), ...("k" in line.dataset ? [line.dataset.k] : [])] : [];
  // The names of a field as a filter has them: list items have none.
  const names = line => line ? [...names(above(line)), ...(line.querySelector(".k") ? [line.dataset.k] : [])] : [];
  const pointer = line => steps(line.classList.contains("z") ? line.parentElement.firstElementChild : line)
    .map(step => "/" + step.replaceAll("~", "~0").replaceAll("/", "~1")).join("");
  const value = line => {
    if (line.classList.contains("z")) line = line.parentElement.firstElementChild;
    if (isBlock(line)) {
      const first = depth(line);
      return [...line.parentElement.querySelectorAll(LINE)].map(each => {
        const is_end = each.classList.contains("z");
        return "  ".repeat(depth(is_end ? each.parentElement.firstElementChild : each) - first) + plain(each, each === line ? ", .k" : "");
      }).join("\n").replace(/,$/, "");
    }
    const token = plain(line, ", .k").replace(/,$/, "");
    if (!line.querySelector(".s")) return token;
    try {
      // Of half a surrogate pair, which no clipboard has, the escape.
      const text = JSON.parse(token);
      return text.isWellFormed?.() === false ? token : text;
    } catch { return token; }
  };
  const isCut = line => "cut" in (line.classList.contains("z") ? line.parentElement.firstElementChild : line).dataset;

  const begin = root => { for (const bar of root.querySelectorAll(".acts[data-of]")) {
    const tree = document.getElementById(bar.dataset.of), at = bar.querySelector(".at");
    const lines = [...tree.querySelectorAll(LINE)];
    let line = lines[0];
    const choose = next => {
      line.tabIndex = -1;
      line.classList.remove("is-at");
      line = next;
      line.tabIndex = 0;
      line.classList.add("is-at");
      const path = pointer(line), cut = isCut(line);
      at.textContent = path.length > 80 ? `…${path.slice(-80)}` : path;
      bar.querySelector("[data-do=path]").disabled = !path;
      const button = bar.querySelector("[data-do=value]");
      button.disabled = cut;
      const letters = bar.querySelector(".letters"), name = names(line);
      if (letters) {
        letters.hidden = cut || isBlock(line) || line.classList.contains("z") || !name.length || name.some(each => !each || each.includes("="));
        if (!letters.hidden) letters.href = `${letters.dataset.to}&value=${encodeURIComponent(`${name.join(".")}=${value(line)}`)}`;
      }
      button.title = cut ? "It goes on in another part: download it" : "";
    };
    const fold = open => { for (const each of tree.querySelectorAll("details")) each.open = open || each === tree.firstElementChild; };
    const act = {
      fold: () => { fold(false); choose(lines[0]); },
      open: () => fold(true),
      value: () => isCut(line) || copyText(value(line)),
      path: () => pointer(line) && copyText(pointer(line)),
    };
    tree.removeAttribute("tabindex");
    for (const each of lines) each.tabIndex = -1;
    choose(line);
    bar.addEventListener("click", e => act[e.target.dataset.do]?.());
    tree.addEventListener("focusin", e => { const next = e.target.closest(LINE); if (next) choose(next); });
    tree.addEventListener("keydown", e => {
      if (e.ctrlKey || e.metaKey || e.altKey || !e.target.matches(LINE)) return;
      const seen = lines.filter(isSeen), here = seen.indexOf(line), box = isBlock(line) && line.parentElement;
      const next = {ArrowDown: seen[here + 1], ArrowUp: seen[here - 1], Home: seen[0], End: seen.at(-1)}[e.key];
      if (next) next.focus();
      else if (e.key === "ArrowRight" && box) { if (box.open) seen[here + 1]?.focus(); else box.open = true; }
      else if (e.key === "ArrowLeft") { if (box?.open) box.open = false; else above(line)?.focus(); }
      else if (e.key === "y") act.value();
      else if (e.key === "Y") act.path();
      else return;
      e.preventDefault();
      e.stopPropagation();
    });
  } };
  begin(document);
  // A value in a part that came by itself.
  document.addEventListener("part", e => begin(e.target));

  document.addEventListener("click", e => {
    const of = e.target.closest("[data-copy-of]")?.dataset.copyOf, at = of && document.getElementById(of);
    if (!at) return;
    const parts = at.matches(".hex") ? at.querySelectorAll("td:first-of-type") : at.querySelectorAll("li");
    copyText([...parts].map(part => exact(part)).join("\n"));
  });
})();
