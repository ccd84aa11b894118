// From a disk a browser starts no worker. Search then runs its worker's script in a hidden frame, with the same
// messages to and fro.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "search"
      frame.srcdoc = `<script>
        var postMessage = data => parent.postMessage(data, "*")
        var importScripts = (...urls) => urls.reduce((before, each) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script")
          script.src = each
          script.onload = done
          script.onerror = failed
          document.body.append(script)
        })), Promise.resolve())
      <\/script><script src="${new URL(url, document.baseURI)}"><\/script>`
      this.ready = new Promise(done => frame.addEventListener("load", done, { once: true }))
      document.body.append(frame)
      this.frame = frame
      window.addEventListener("message", message => {
        if (message.source === frame.contentWindow) {
          const copy = new MessageEvent("message", { data: message.data })
          this.dispatchEvent(copy)
          if (this.onmessage) this.onmessage(copy)
        }
      })
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
