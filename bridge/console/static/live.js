// What a page shows live: fragments for places with an id, from /events. Forms, and what is focused, stay as they are.
"use strict";
(() => {
  const at = document.querySelector("[data-live]"), sign = document.querySelector("#live");
  if (!at || !window.EventSource) return;
  const STALE = 15000, HIDDEN = 60000, LONGEST = 30000;
  let source = null, pause = 1000, held = false, waiting = {}, over = false, later = 0, silent = 0, away = 0;
  let last = new Date();

  const clock = () => zoned(last, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
  const say = (words, stale) => {
    if (!sign || sign.dataset.words === words) return;
    sign.dataset.words = words;
    sign.hidden = false;
    sign.classList.toggle("is-stale", stale);
    sign.querySelector(".word").textContent = words;
  };
  const stale = () => {
    say(`Not live since ${clock()}, trying again`, true);
    for (const each of document.querySelectorAll("[data-number]")) each.classList.add("old");
  };
  const show = parts => {
    for (const [id, html] of Object.entries(parts)) {
      const place = document.getElementById(id);
      if (!place || place.querySelector("form") || place.closest("form") && place.querySelector("input, button")) continue;
      if (place.contains(document.activeElement)) { waiting[id] = html; continue; }
      delete waiting[id];
      place.innerHTML = html;
    }
  };
  const changed = () => { const again = document.querySelector("#p-again"); if (again) again.hidden = false; };
  // What can no longer be done is not offered, unless somebody is about to: their words stay.
  const ended = () => {
    const again = document.querySelector("#p-again [data-over]");
    if (again) again.textContent = again.dataset.over;
    for (const form of document.querySelectorAll("form[data-until-over]")) {
      const typed = [...form.elements].some(each => each.type !== "hidden" && each.value !== (each.defaultValue ?? each.value));
      form.hidden = !typed && !form.contains(document.activeElement);
    }
  };

  const heard = event => {
    const said = JSON.parse(event.data);
    if (at.dataset.release && said.release !== at.dataset.release) {
      // Fragments of another version do not fit this page.
      over = true; close(); changed(); say("Load again: the console is a new version", true);
      return;
    }
    // What was read long ago is old, however new the event is that says it.
    const age = 1000 * (said.age || 0);
    last = new Date(Date.now() - age); pause = 1000;
    clearTimeout(silent);
    if (age < STALE) {
      silent = setTimeout(stale, STALE - age);
      for (const each of document.querySelectorAll(".old[data-number]")) each.classList.remove("old");
      say(held ? "Held still" : "Live", false);
    } else stale();
    Object.assign(waiting, said.parts);
    if (!held) show({...waiting});
    if (said.act !== at.dataset.act) changed();
    if (said.over) { over = true; close(); clearTimeout(silent); say("Ended", false); ended(); }
  };
  const close = () => { source?.close(); source = null; clearTimeout(later); };
  const open = () => {
    close();
    if (over || document.hidden && away) return;
    source = new EventSource(`/events?of=${encodeURIComponent(at.dataset.live)}&charts=${at.dataset.charts ?? ""}`);
    source.onmessage = heard;
    source.onerror = () => {
      close();
      later = setTimeout(open, pause * (0.5 + Math.random()));
      pause = Math.min(2 * pause, LONGEST);
    };
  };

  document.addEventListener("hold", () => {
    held = !held;
    say(held ? "Held still" : "Live", false);
    if (!held) show({...waiting});
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(away); away = 0;
    if (document.hidden) away = setTimeout(() => { clearTimeout(silent); close(); }, HIDDEN);
    else if (!source && !over) { clearTimeout(silent); silent = setTimeout(stale, STALE); open(); }
  });
  addEventListener("pagehide", close);
  silent = setTimeout(stale, STALE);
  open();
})();
