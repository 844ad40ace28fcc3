// Comfort only: every page works without this file. No requests but to the page's own address and its events.
"use strict";
(() => {
  const SECONDS_BETWEEN_READS = 5;
  const SECONDS_OF_PATIENCE = 20; // without an event, the page is read again all the same
  const typing = (element) => element.matches("input, textarea, select, [contenteditable]");

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

  // As the server writes durations, to the second.
  const duration = (seconds) => {
    const two = (number) => String(number).padStart(2, "0");
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
    if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
    return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
  };

  // The stall clock goes on between two readings: by the server's clock, which the page tells.
  let ahead = 0;
  const readClock = () => {
    const read = document.querySelector("footer time");
    ahead = read ? Date.now() - new Date(read.dateTime).getTime() : 0;
  };
  const tick = () => {
    for (const clock of document.querySelectorAll(".ticking")) {
      clock.textContent = duration((Date.now() - ahead - new Date(clock.dataset.since).getTime()) / 1000);
    }
  };

  // Search and copy in the log tail.
  const equipTails = () => {
    for (const box of document.querySelectorAll(".tail-box:not([data-equipped])")) {
      box.dataset.equipped = "yes";
      const lines = [...box.querySelectorAll(".tail li:not(.cut)")];
      const search = document.createElement("input");
      search.type = "search";
      search.placeholder = "Search the tail";
      search.setAttribute("aria-label", "Search the tail");
      const found = document.createElement("span");
      found.className = "note";
      found.setAttribute("role", "status");
      search.addEventListener("input", () => {
        const wanted = search.value.toLowerCase();
        let hits = 0;
        for (const line of lines) {
          const fits = line.querySelector("code").textContent.toLowerCase().includes(wanted);
          line.classList.toggle("off", !fits);
          hits += fits;
        }
        found.textContent = wanted ? `${hits} of ${lines.length} lines` : "";
      });
      const copy = document.createElement("button");
      copy.type = "button";
      copy.textContent = "Copy";
      copy.addEventListener("click", async () => {
        const text = lines.filter((line) => !line.matches(".off")).map((line) => line.querySelector("code").textContent);
        try {
          await navigator.clipboard.writeText(`${text.join("\n")}\n`);
          found.textContent = "copied";
        } catch {
          found.textContent = "this browser does not let a page copy";
        }
      });
      box.querySelector(".tail-tools").append(search, copy, found);
    }
  };

  // A request that is still open is read again when something happened to it, unless the reader is in the middle of
  // something: then as soon as they are not.
  let reading = false;
  let wanted = false;
  let news = null;
  const openArticle = () => document.querySelector("article[data-open=yes]");
  const busy = () => document.hidden || String(getSelection()) || typing(document.activeElement);
  const readAgain = async () => {
    if (reading || !openArticle()) return;
    if (busy()) {
      wanted = true;
      return;
    }
    reading = true;
    wanted = false;
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      if (response.ok && fresh.querySelector("main article")) {
        const open = [...document.querySelectorAll("main details")].map((fold) => fold.open);
        document.querySelector("main").replaceChildren(...fresh.querySelector("main").childNodes);
        document.querySelector("footer").replaceChildren(...fresh.querySelector("footer").childNodes);
        document.title = fresh.title;
        document.querySelectorAll("main details").forEach((fold, place) => { if (open[place]) fold.open = true; });
        equip();
      }
    } catch { /* the network is away: the page keeps what it knows, and tries again */ }
    reading = false;
    if (!openArticle() && news) news.close();
  };
  const watch = () => {
    const article = openArticle();
    if (!article) return;
    news = new EventSource(article.dataset.events);
    let first = true; // tells what the page shows already
    news.addEventListener("answer", () => {
      if (!first) readAgain();
      first = false;
    });
    let since = Date.now();
    setInterval(() => {
      if (wanted || Date.now() - since > SECONDS_OF_PATIENCE * 1000) {
        since = Date.now();
        readAgain();
      }
    }, SECONDS_BETWEEN_READS * 1000);
  };

  const equip = () => {
    addLocalTimes();
    readClock();
    equipTails();
  };

  // `/` goes to the search box, `j` and `k` through a list, `?` tells so.
  const move = (step) => {
    const links = [...document.querySelectorAll("main .jobs > li .job-id")];
    if (!links.length) return;
    const place = links.findIndex((link) => link.closest("li").contains(document.activeElement));
    links[Math.min(Math.max(place + step, 0), links.length - 1)].focus();
  };
  const keys = {
    "/": () => document.getElementById("search").focus(),
    j: () => move(1),
    k: () => move(-1),
    "?": () => document.getElementById("keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  equip();
  unfold();
  watch();
  setInterval(tick, 1000);
})();
