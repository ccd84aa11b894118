// Tables of a page: a button in each heading sorts by that column, and a long table gets a box that filters its rows.
{
  const MANY = 12 // rows from which a table can be filtered
  const own = (row, at) => row.cells[at]?.innerText.trim() ?? ""
  const heads = new Map() // row that says no first cell -> the row above that says it for its group
  const text = (row, at) => own(row, at) || (heads.has(row) ? own(heads.get(row), at) : "")
  const group = table => { // a claim with a row per test has its id in its first row alone: each row gets it
    let head
    for (const row of table.tBodies[0].rows) {
      if (own(row, 0)) head = row
      else if (head) heads.set(row, head)
      if (head) row.dataset.group = own(head, 0)
    }
    for (const row of heads.keys()) row.cells[0].dataset.of = row.dataset.group.split(":")[0]
  }
  const number = said => parseFloat(said.replace("−", "-").replaceAll(",", ""))
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)]
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y
  }
  const sort = (table, heading, at) => {
    const up = heading.getAttribute("aria-sort") !== "ascending"
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort")
    heading.setAttribute("aria-sort", up ? "ascending" : "descending")
    const rows = [...table.tBodies[0].rows]
    const empty = row => ["", "–"].includes(text(row, at))
    rows.sort((a, b) => empty(a) - empty(b) || (up ? 1 : -1) * compare(text(a, at), text(b, at)))
    table.tBodies[0].append(...rows)
  }
  const filter = table => {
    const label = document.createElement("label")
    const box = document.createElement("input")
    box.type = "search"
    label.className = "filter"
    label.append("Show rows with ", box)
    box.addEventListener("input", () => {
      const wanted = box.value.toLowerCase().split(/\s+/)
      for (const row of table.tBodies[0].rows) {
        const said = `${row.dataset.group ?? ""} ${row.innerText}`.toLowerCase()
        row.hidden = !wanted.every(word => said.includes(word))
      }
    })
    ;(table.closest(".md-typeset__scrollwrap") ?? table).before(label)
  }
  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll(".md-content table:not([class])")) {
      const rows = table.tBodies[0]?.rows.length ?? 0
      if (!table.tHead || rows < 2) continue
      group(table)
      for (const [at, heading] of [...table.tHead.rows[0].cells].entries()) {
        if (!heading.innerText.trim() || ![...table.tBodies[0].rows].some(row => text(row, at))) continue // pictures have no order
        const button = document.createElement("button")
        button.className = "sort"
        button.append(...heading.childNodes)
        heading.append(button)
        button.addEventListener("click", () => sort(table, heading, at))
      }
      if (rows >= MANY) filter(table)
    }
  })
}
