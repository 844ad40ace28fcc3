// Comfort only: every page works without this file. No storage, no requests but to the page's own address.
"use strict";
(() => {
  const SECONDS_BETWEEN_READS = 5;
  const typing = (element) => element.matches("input, textarea, select, [contenteditable]");

  // `/` goes to the search box.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    event.preventDefault();
    document.getElementById("search").focus();
  });

  // The reader's own time beside UTC, on hover.
  const addLocalTimes = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime()) && !time.title.includes("local")) {
        time.title = `${time.title || time.textContent} · ${at.toLocaleString()} local`;
      }
    }
  };

  // A record that is linked to stands inside a fold: open it.
  const unfold = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let fold = target && target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);

  // A request that is still open is read again until it is final, unless the reader is in the middle of something.
  const readAgain = async () => {
    const article = document.querySelector("article[data-open=yes]");
    if (!article) return;
    const busy = document.hidden || String(getSelection()) || typing(document.activeElement);
    if (!busy) {
      try {
        const response = await fetch(location.href, { headers: { accept: "text/html" } });
        const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("main");
        if (response.ok && fresh) {
          const open = [...document.querySelectorAll("main details")].map((fold) => fold.open);
          document.querySelector("main").replaceChildren(...fresh.childNodes);
          document.querySelectorAll("main details").forEach((fold, place) => { if (open[place]) fold.open = true; });
          addLocalTimes();
        }
      } catch { /* the network is away: the page keeps what it knows, and tries again */ }
    }
    setTimeout(readAgain, SECONDS_BETWEEN_READS * 1000);
  };

  addLocalTimes();
  unfold();
  setTimeout(readAgain, SECONDS_BETWEEN_READS * 1000);
})();
