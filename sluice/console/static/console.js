"use strict";
// Everything works without this script, but for the page that looks again and the count of what is selected.

const live = document.querySelector("[data-poll]");
if (live) {
  const stale = document.getElementById("stale");
  const again = () => setTimeout(look, 1000 * live.dataset.seconds);
  const look = async () => {
    if (document.hidden) return again();
    try {
      const answer = await fetch(live.dataset.poll, { credentials: "same-origin", redirect: "error" });
      const text = await answer.text();
      if (!answer.ok) throw new Error(answer.status === 401 ? "this console was closed; open its address again" : "it cannot be shown");
      const focused = document.activeElement && live.contains(document.activeElement) ? document.activeElement.id : "";
      live.innerHTML = text;
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      stale.textContent = "";
    } catch (error) {
      stale.textContent = `· not up to date: ${error instanceof TypeError ? "sluice ui does not answer" : error.message}`;
    }
    again();
  };
  again();
}

for (const form of document.querySelectorAll("form#rows")) {
  const boxes = [...form.querySelectorAll("input[name=key]")];
  const all = form.querySelector("[data-all]");
  const count = form.querySelector("[data-count]");
  if (!all) continue;
  all.closest("label").hidden = false;
  const show = () => {
    const selected = boxes.filter(box => box.checked).length;
    count.textContent = selected ? `${selected} selected` : "";
    all.checked = selected === boxes.length;
    all.indeterminate = selected > 0 && selected < boxes.length;
  };
  all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; show(); });
  form.addEventListener("change", show);
  show();
}
