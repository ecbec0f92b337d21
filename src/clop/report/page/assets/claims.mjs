// The table of claims: rows by verdict and by word.

export function startClaims(root) {
  const form = root.querySelector("#claims-form");
  if (form === null) return;
  const rows = [...root.querySelectorAll("#claims tbody tr")];
  const count = root.querySelector("#claims-count");

  function filter() {
    const wanted = form.elements.verdict.value;
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const there = row.textContent.toLowerCase();
      const fits = (wanted === "all" || row.dataset.verdict === wanted) && words.every((word) => there.includes(word));
      row.hidden = !fits;
      if (fits) shown++;
    }
    count.textContent = `${shown} of ${rows.length}`;
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
