"use strict";
// Sorts and filters the galleries. Without scripts, all samples are shown, most doubtful first.
document.querySelectorAll("[data-gallery]").forEach(function (gallery) {
  const body = gallery.querySelector("tbody");
  const heads = Array.from(gallery.querySelectorAll("th[data-key]"));
  const filters = Array.from(gallery.querySelectorAll("select[data-filter]"));
  const status = gallery.querySelector("[data-status]");
  const rows = Array.from(body.rows);

  function sortBy(head) {
    const descending = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const attribute = "data-" + head.dataset.key;
    const sign = descending ? -1 : 1;
    rows.sort(function (a, b) { return sign * (a.getAttribute(attribute) - b.getAttribute(attribute)); });
    body.append(...rows);
  }

  function filter() {
    let shown = 0;
    rows.forEach(function (row) {
      row.hidden = filters.some(function (select) {
        return select.value !== "" && row.getAttribute("data-class-" + select.dataset.filter) !== select.value;
      });
      shown += row.hidden ? 0 : 1;
    });
    status.textContent = shown + " of " + rows.length + " shown";
  }

  heads.forEach(function (head) {
    const button = head.querySelector("button");
    button.disabled = false;
    button.addEventListener("click", function () { sortBy(head); });
  });
  filters.forEach(function (select) { select.addEventListener("change", filter); });
  gallery.querySelector("[data-controls]").hidden = false;
  filter();  // a browser may restore an earlier selection
});
