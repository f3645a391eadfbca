// Adds a field above the folded tables of a page. It shows the rows that contain its text, and unfolds their tables.
const folded = [...document.querySelectorAll(".md-content details:has(table)")];
if (folded.length > 1) {
  const field = document.createElement("input");
  field.type = "search";
  field.className = "table-filter";
  field.placeholder = field.ariaLabel = "Filter the rows of the tables";
  document.querySelector(".md-content h1").after(field);
  field.addEventListener("input", () => {
    const text = field.value.trim().toLowerCase();
    field.parentElement.classList.toggle("filtered", text !== "");
    for (const table of folded) {
      const rows = [...table.querySelectorAll("tbody tr")];
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text);
      table.open = text !== "" && rows.some((row) => !row.hidden);
      table.hidden = text !== "" && !table.open;
    }
  });
}
