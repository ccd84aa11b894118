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
  // Field -> [its different values, which of them each row has]; without the second, each row has the next value.
  const rows = fields => {
    const whole = Object.entries(fields).map(([name, [values, at]]) => [name, at ? at.map(i => values[i]) : values])
    return (whole[0]?.[1] ?? []).map((_, i) => Object.fromEntries(whole.map(([name, values]) => [name, values[i]])))
  }
  const draw = async place => {
    const name = place.dataset.chart
    await Promise.all([load("vega.js"), load(`../charts/${name}.js`)])
    const { datasets, ...chart } = charts[name]
    if (chart.usermeta?.colours) place.dataset.colours = chart.usermeta.colours // the dark view leaves these as they are
    const whole = Object.entries(datasets).map(([data, fields]) => [data, rows(fields)])
    const { view } = await vegaEmbed(place, { ...chart, datasets: Object.fromEntries(whole) }, { actions: false, renderer: "svg", logLevel: 1 })
    const says = view.tooltip()
    view.tooltip((...asked) => {
      says(...asked)
      const box = document.getElementById("vg-tooltip-element") // which the library lets reach beyond a narrow window
      const room = document.documentElement.clientWidth - box.offsetWidth - 8
      box.style.left = `${Math.max(8, Math.min(parseFloat(box.style.left), room))}px`
    })
    const wanted = document.querySelector("[data-task]")?.dataset.task // the page's own, where a chart lets one choose
    if (wanted && chart.params?.some(({ name }) => name === "task")) view.signal("task", wanted)
    await view.runAsync() // for another tooltip it has begun anew
    // A finger asks what a point says by touching it, once it is lifted; its texts have links of their own.
    view.addEventListener("click", (event, item) => {
      const { page, draw } = item?.datum ?? {}
      if (event.pointerType === "touch") view.tooltip()(null, event, item, item?.tooltip)
      else if (page) location.href = new URL(`../${page.replace("*", draw)}`, here)
    })
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
  document.addEventListener("pointerdown", () => document.getElementById("vg-tooltip-element")?.classList.remove("visible"))
  document.addEventListener("DOMContentLoaded", () => {
    for (const place of document.querySelectorAll("[data-chart]")) seen.observe(place)
  })
}
