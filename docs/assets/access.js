// What the theme leaves out for those who use a keyboard or a screen reader, and on a screen that cuts what is wide.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0 // it scrolls
  const mark = box => {
    const cut = box.toggleAttribute("data-cut", box.scrollLeft + box.clientWidth < box.scrollWidth - 1)
    if (cut && !box.querySelector("a")) box.tabIndex = 0 // keys scroll it from a link in it, or from itself
  }
  const grown = new ResizeObserver(entries => entries.forEach(({ target }) => mark(target))) // a picture came, a fold opened
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .given, .md-content p:has(> a > img)")) {
    grown.observe(box)
    box.addEventListener("scroll", () => mark(box), { passive: true })
  }
})
