// What the theme leaves out for those who use a keyboard or a screen reader.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0 // it scrolls
})
