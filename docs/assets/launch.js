// Where a JupyterLab serves this page (`make lab`, below /static/), the links that open its notebooks are shown.
{
  const [, base] = location.pathname.match(/^(.*)\/static\//) ?? []
  const show = () => {
    for (const link of document.querySelectorAll("[data-launch]")) {
      link.href = `${base}/lab/tree/${link.dataset.launch}`
      link.closest(".launch").hidden = false
    }
  }
  if (base !== undefined && location.protocol.startsWith("http")) {
    fetch(`${base}/api`)
      .then(answer => answer.json())
      .then(server => server.version && show())
      .catch(() => {}) // another server: nothing to launch
  }
}
