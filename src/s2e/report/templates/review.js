"use strict";
// Reviews labels: sorts and filters the samples, keeps decisions in this browser, writes them as CSV.
// Without scripts, all samples are shown, most doubtful first.
document.querySelectorAll("[data-review]").forEach(function (review) {
  const key = "s2e-review-" + review.dataset.review;
  const list = review.querySelector("ol.samples");
  const cards = Array.from(list.children);
  const show = review.querySelector("[data-show]");
  const order = review.querySelector("[data-order]");
  const filters = Array.from(review.querySelectorAll("select[data-filter]"));
  const status = review.querySelector("[data-status]");
  const progress = review.querySelector("[data-progress]");
  const download = review.querySelector("[data-download]");
  const clear = review.querySelector("[data-clear]");
  const classes = review.querySelector("[data-classes]");
  const names = new Set(Array.from(classes.options).map(function (option) { return option.value; }));
  const reliability = document.querySelector("[data-reliability='" + review.dataset.anchor + "']");
  const nothing = document.querySelector("[data-no-reliability='" + review.dataset.anchor + "']");
  const more = review.querySelector("[data-more]");
  const page = list.classList.contains("images") ? 30 : 12;  // samples shown at first, and with each step
  let decisions = read();  // by row: {decision, label}
  let most = page;

  // Decisions

  function read() {
    try {
      const stored = JSON.parse(localStorage.getItem(key) || "{}");
      const valid = Object.entries(stored).filter(function (entry) {
        const one = entry[1];
        return one && ["right", "wrong", "unsure"].includes(one.decision) && (one.label === "" || names.has(one.label));
      });
      return Object.fromEntries(valid);
    } catch (problem) {
      return {};
    }
  }

  function write() {
    try {
      if (Object.keys(decisions).length) localStorage.setItem(key, JSON.stringify(decisions));
      else localStorage.removeItem(key);
    } catch (problem) {
      review.querySelector("[data-not-kept]").hidden = false;
    }
  }

  function decided(card) {
    const one = decisions[card.dataset.row];
    return one !== undefined && (one.decision !== "wrong" || one.label !== "");
  }

  function decide(card, decision, label) {
    if (decision === null) {
      delete decisions[card.dataset.row];
    } else {
      if (decision === "right") label = card.dataset.classGiven;
      if (decision === "unsure") label = "";
      if (decision === "wrong" && label === undefined) label = card.dataset.alternative;
      decisions[card.dataset.row] = {decision: decision, label: label};
    }
    write();
    draw(card);
    summarise();
  }

  function draw(card) {
    const one = decisions[card.dataset.row];
    const decision = one === undefined ? "" : one.decision;
    card.dataset.decision = decision;
    card.querySelectorAll("[data-mark]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button.dataset.mark === decision));
    });
    let choice = card.querySelector("select");
    if (decision !== "wrong") {
      if (choice) choice.remove();
      return;
    }
    if (!choice) {
      choice = classes.cloneNode(true);
      ["data-classes", "hidden", "aria-hidden"].forEach(function (name) { choice.removeAttribute(name); });
      choice.setAttribute("aria-label", "Correct class of " + card.dataset.name);
      Array.from(choice.options).forEach(function (option) {
        if (option.value === card.dataset.classGiven) option.remove();
      });
      choice.addEventListener("change", function () { decide(card, "wrong", choice.value); });
      card.querySelector("[data-marks]").append(choice);
    }
    choice.value = one.label;
    choice.classList.toggle("missing", one.label === "");
  }

  function summarise() {
    const done = cards.filter(decided);
    const counts = {right: 0, wrong: 0, unsure: 0};
    let expected = 0;
    done.forEach(function (card) {
      const decision = decisions[card.dataset.row].decision;
      counts[decision] += 1;
      if (decision !== "unsure") expected += 1 - Number(card.dataset.probability);
    });
    const missing = cards.filter(function (card) { return decisions[card.dataset.row] && !decided(card); }).length;
    let text = done.length + " of " + cards.length + " decided";
    if (done.length) {
      text += ": " + counts.right + " right, " + counts.wrong + " wrong, " + counts.unsure + " unsure";
      if (counts.right + counts.wrong) text += " (the audit expected " + expected.toFixed(1) + " wrong)";
    }
    if (missing) text += "; " + missing + " without the correct class";
    status.textContent = text;
    progress.style.width = 100 * done.length / cards.length + "%";
    download.disabled = done.length === 0;
    clear.disabled = Object.keys(decisions).length === 0;
    compare(done);
  }

  function compare(done) {  // decisions with the qualities that the audit gave
    if (!reliability) return;
    const bins = [];
    done.forEach(function (card) {
      const decision = decisions[card.dataset.row].decision;
      if (decision === "unsure") return;
      const quality = Number(card.dataset.probability);
      const bin = Math.min(Math.floor(5 * quality), 4);
      bins[bin] = bins[bin] || {count: 0, right: 0, quality: 0};
      bins[bin].count += 1;
      bins[bin].quality += quality;
      bins[bin].right += decision === "right" ? 1 : 0;
    });
    const rows = [];
    bins.forEach(function (one, bin) {
      const row = document.createElement("tr");
      const share = function (value) { return (100 * value / one.count).toFixed(0) + "%"; };
      const texts = [20 * bin + "–" + 20 * (bin + 1) + "%", one.count, share(one.quality), share(one.right)];
      texts.forEach(function (text) {
        const cell = document.createElement("td");
        cell.textContent = text;
        row.append(cell);
      });
      rows.push(row);
    });
    reliability.tBodies[0].replaceChildren(...rows);
    reliability.parentElement.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
  }

  // CSV; a cell that a spreadsheet would execute begins with an apostrophe, as in s2e.files.csv_cells

  function cell(text) {
    const number = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
    if (/^'*[=+\-@\t\r\n]/.test(text) && !number.test(text)) text = "'" + text;
    return /[",\r\n;\t]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function csv() {
    const lines = [["id", "row", "given_label", "decision", "label"]];
    cards.filter(decided).forEach(function (card) {
      const one = decisions[card.dataset.row];
      lines.push([card.dataset.name, card.dataset.row, card.dataset.classGiven, one.decision, one.label]);
    });
    return lines.map(function (line) { return line.map(cell).join(",") + "\r\n"; }).join("");
  }

  function save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], {type: "text/csv;charset=utf-8"}));
    link.download = review.dataset.file;
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
  }

  // Order and filters

  function arrange() {
    const attribute = "data-" + order.value;
    cards.sort(function (a, b) { return a.getAttribute(attribute) - b.getAttribute(attribute); });
    list.append(...cards);
    select();
  }

  function select() {  // from the first page
    most = page;
    filter();
  }

  function filter() {
    const shown = {
      all: function () { return true; },
      worth: function (card) { return card.hasAttribute("data-valuable"); },
      issue: function (card) { return card.hasAttribute("data-issue"); },
      open: function (card) { return !decided(card); },
      done: decided,
    }[show.value];
    const matching = cards.filter(function (card) {
      return shown(card) && filters.every(function (one) {
        return one.value === "" || card.getAttribute("data-class-" + one.dataset.filter) === one.value;
      });
    });
    const visible = new Set(matching.slice(0, most));
    cards.forEach(function (card) { card.hidden = !visible.has(card); });
    const left = matching.length - visible.size;
    more.hidden = left === 0;
    more.textContent = "Show " + Math.min(page, left) + " more of " + left;
    reachable(matching[0]);
    summarise();
  }

  // Keyboard: one card is reached by the tab key, arrows move between cards

  function reachable(card) {
    cards.forEach(function (one) { one.tabIndex = one === card ? 0 : -1; });
  }

  function move(card, step) {
    let visible = cards.filter(function (one) { return !one.hidden; });
    const place = visible.indexOf(card) + step;
    if (place === visible.length && !more.hidden) visible = extend();
    const next = visible[place];
    if (!next) return;
    reachable(next);
    next.focus();
    next.scrollIntoView({block: "nearest"});
  }

  function extend() {  // show the next page; keeps the focus
    most += page;
    filter();
    return cards.filter(function (one) { return !one.hidden; });
  }

  function press(event) {
    const card = event.target.closest("li.sample");
    if (card && event.target.tagName === "SELECT") {
      if (event.key === "Escape") card.focus();
      else if (event.key === "Enter") move(card, 1);
      return;
    }
    if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (pressed === "ArrowDown" || pressed === "j") move(card, 1);
    else if (pressed === "ArrowUp" || pressed === "k") move(card, -1);
    else if (pressed === "r" || pressed === "u") { decide(card, pressed === "r" ? "right" : "unsure"); move(card, 1); }
    else if (pressed === "w" || pressed === "c") {
      if (card.dataset.decision !== "wrong") decide(card, "wrong");
      if (pressed === "c") card.querySelector("select").focus();
      else move(card, 1);
    } else if (pressed === "Delete" || pressed === "Backspace") decide(card, null);
    else return;
    event.preventDefault();
  }

  list.addEventListener("keydown", press);
  list.addEventListener("focusin", function (event) { reachable(event.target.closest("li.sample")); });
  list.addEventListener("click", function (event) {
    const button = event.target.closest("[data-mark]");
    if (!button) return;
    const card = button.closest("li.sample");
    decide(card, button.getAttribute("aria-pressed") === "true" ? null : button.dataset.mark);
  });
  show.addEventListener("change", function () {
    if (show.value === "worth") order.value = "worth";
    arrange();
  });
  order.addEventListener("change", arrange);
  filters.forEach(function (one) { one.addEventListener("change", select); });
  more.addEventListener("click", function () {
    const before = cards.filter(function (one) { return !one.hidden; }).length;
    const visible = extend();
    reachable(visible[before]);
    visible[before].focus();
  });
  download.addEventListener("click", save);
  clear.addEventListener("click", function () {
    if (!confirm("Remove all decisions on these labels?")) return;
    decisions = {};
    write();
    cards.forEach(draw);
    summarise();
  });
  window.addEventListener("storage", function (event) {  // the same page in another tab
    if (event.key !== key) return;
    decisions = read();
    cards.forEach(draw);
    summarise();
  });
  review.querySelectorAll("[data-controls], [data-how], [data-marks]").forEach(function (one) { one.hidden = false; });
  cards.forEach(draw);
  arrange();  // a browser may restore an earlier selection
});
