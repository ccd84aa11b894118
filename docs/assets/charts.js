// Draws the charts of a page when they come into view. A page on a disk may load scripts and fetch nothing, so that a
// chart is a script that puts its specification into `charts`; the library comes with the first of them.
{
  const here = document.currentScript.src
  const loaded = {}
  const load = path =>
    (loaded[path] ??= new Promise((done, failed) => {
      const script = document.createElement("script")
      script.src = new URL(path, here)
      script.onload = done
      script.onerror = () => failed(new Error(`${path} is missing`))
      document.head.append(script)
    }))
  window.charts = {}
  const draw = async place => {
    const name = place.dataset.chart
    await Promise.all([load("vega.js"), load(`../charts/${name}.js`)])
    await vegaEmbed(place, charts[name], { actions: false, renderer: "svg", logLevel: 1 })
    place.dataset.drawn = "yes"
  }
  const seen = new IntersectionObserver(
    entries => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) {
          seen.unobserve(target)
          draw(target)
        }
      }
    },
    { rootMargin: "400px" }
  )
  document.addEventListener("DOMContentLoaded", () => {
    for (const place of document.querySelectorAll("[data-chart]")) seen.observe(place)
  })
}
