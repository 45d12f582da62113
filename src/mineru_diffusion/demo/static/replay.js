// The replay of a decoding: <denoising-replay data-replay="base64 of the JSON that trace.replay_data makes">.
// Two readers side by side on one clock of measured times. Nothing here asks the server for anything.
(() => {
  "use strict";

  const SPEEDS = [
    [1, "real time"], [0.5, "1/2 speed"], [0.2, "1/5 speed"], [0.1, "1/10 speed"],
    [0.05, "1/20 speed"], [0.02, "1/50 speed"], [0.01, "1/100 speed"], [0.002, "1/500 speed"],
  ];
  const WANTED_SECONDS = 9; // how long a replay should take to watch
  const LEVELS = [0.5, 0.7, 0.85, 0.95, 0.99];

  const decode = (text) =>
    JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))));

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") element.textContent = value;
      else if (value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  };

  const time = (seconds) =>
    seconds < 1 ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms` : `${seconds.toFixed(2)} s`;
  const level = (confidence) => LEVELS.filter((bound) => confidence >= bound).length;
  const countUpTo = (sorted, value) => {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  // A token's text as a cell shows it: spaces and line ends must be seen, and structure tokens are labels.
  const shown = (text) => {
    if (text === "\n") return "↵";
    if (text === "") return "∅";
    return text.replace(/ /g, "\u00a0");
  };

  // One reader: its cells, and the moments at which they change.
  class Side {
    constructor(run) {
      this.run = run;
      this.events = []; // {at, cell, state}
      this.at = 0; // events that have happened
      this.tokens = 0;
      this.element = this.build();
      this.events.sort((a, b) => a.at - b.at);
    }

    build() {
      const run = this.run;
      this.clock = make("span", { class: "dr-clock" });
      this.passes = make("b");
      this.count = make("b");
      this.bar = make("i");
      const text = make("div", { class: "dr-text", "aria-hidden": "true" });
      for (const line of run.lines) {
        const row = make("div", { class: "dr-line" });
        for (const sequence of line) row.append(this.sequence(sequence));
        text.append(row);
      }
      return make(
        "section", { class: "dr-side", "aria-label": `${run.name}: ${run.tokens} tokens in ${run.passes} passes` },
        make("header", {}, make("h4", { text: run.name }), this.clock),
        make("p", { class: "dr-note", text: run.note }),
        make("div", { class: "dr-progress" }, this.bar),
        text,
        make(
          "dl", { class: "dr-numbers" },
          make("div", {}, make("dt", { text: "passes" }),
            make("dd", {}, this.passes, ` of ${run.passes}`)),
          make("div", {}, make("dt", { text: "tokens" }),
            make("dd", {}, this.count, ` of ${run.tokens}`)),
          make("div", {}, make("dt", { text: "first token" }),
            make("dd", { text: run.moments.length ? time(run.moments[0]) : "–" })),
          make("div", {}, make("dt", { text: "tokens/s" }),
            make("dd", { text: run.tokens_per_second.toFixed(0) })),
          make("div", {}, make("dt", { text: "tokens/step" }),
            make("dd", { text: run.tokens_per_step.toFixed(2) })),
        ),
      );
    }

    // Blocks of cells: a block shows, all masked, when the one before it is complete; what lies behind the end goes.
    sequence(data) {
      const block = this.run.block;
      const end = data.time.length ? data.time[data.time.length - 1] : 0;
      const group = make("span", { class: "dr-piece" });
      let start = 0;
      for (let first = 0; first < Math.max(1, data.tokens.length); first += block) {
        const element = make("span", { class: "dr-block" });
        let complete = start;
        for (let at = first; at < first + block; at++) {
          const cell = make("span", { class: "dr-cell" });
          if (start > 0) this.events.push({ at: start, cell, state: "mask" });
          else cell.className = "dr-cell dr-mask";
          cell.before = start > 0 ? "dr-cell" : "dr-cell dr-mask";
          if (at < data.tokens.length) {
            const moment = data.time[data.step[at] - 1];
            const confidence = data.confidence[at];
            cell.textContent = shown(data.tokens[at]);
            if (data.tokens[at].length > 1 && data.tokens[at].startsWith("<")) cell.dataset.structure = "";
            cell.title = `${(100 * confidence).toFixed(1)} % sure, step ${data.step[at]}, ${time(moment)}`;
            this.events.push({ at: moment, cell, state: "done", level: level(confidence) });
            complete = Math.max(complete, moment);
          } else {
            cell.textContent = "\u00a0";
            this.events.push({ at: end, cell, state: "gone" });
          }
          element.append(cell);
        }
        group.append(element);
        start = complete;
      }
      return group;
    }

    paint({ cell, state, level: sure }, fresh) {
      if (state === "mask") cell.className = "dr-cell dr-mask";
      else if (state === "gone") cell.className = "dr-cell dr-gone";
      else cell.className = `dr-cell dr-done dr-c${sure}${fresh ? " dr-fresh" : ""}`;
    }

    show(now, playing) {
      if (this.at > 0 && this.events[this.at - 1].at > now) {
        this.at = 0;
        this.tokens = 0;
        for (const { cell } of this.events) cell.className = cell.before;
      }
      while (this.at < this.events.length && this.events[this.at].at <= now) {
        const event = this.events[this.at++];
        this.paint(event, playing);
        if (event.state === "done") this.tokens += 1;
      }
      const moments = this.run.moments;
      const steps = countUpTo(moments, now);
      // Passes that decided nothing came first: they took in the picture and the prompt.
      const passes = steps === 0 ? 0 : steps + this.run.passes - moments.length;
      this.passes.textContent = String(steps === moments.length ? this.run.passes : passes);
      this.count.textContent = String(this.tokens);
      const done = now >= this.run.seconds;
      this.clock.textContent = (steps || done ? "" : "image: ") + time(Math.min(now, this.run.seconds));
      this.element.classList.toggle("dr-finished", done);
      this.bar.style.width = `${Math.min(100, (100 * now) / this.run.seconds)}%`;
    }
  }

  class DenoisingReplay extends HTMLElement {
    static observedAttributes = ["data-replay"];

    // Gradio brings the page up to date piece by piece: it gives this element new data and takes its children away,
    // in either order, without putting a new element in its place. So whatever changes, look again once that is over.
    connectedCallback() {
      this.watcher = new MutationObserver(() => this.refresh());
      this.watcher.observe(this, { childList: true });
      this.refresh();
    }

    attributeChangedCallback() {
      this.refresh();
    }

    disconnectedCallback() {
      this.watcher.disconnect();
      this.pause();
    }

    refresh() {
      if (this.due) return;
      this.due = setTimeout(() => {
        this.due = 0;
        const fresh = this.shown !== this.dataset.replay;
        if (this.isConnected && (fresh || !this.querySelector(".dr-sides"))) this.start();
      });
    }

    start() {
      this.pause();
      this.shown = this.dataset.replay;
      this.data = decode(this.shown);
      this.sides = this.data.runs.map((run) => new Side(run));
      const moments = this.data.runs.flatMap((run) => [...run.moments, run.seconds]);
      this.moments = [0, ...new Set(moments.sort((a, b) => a - b))];
      this.end = this.moments[this.moments.length - 1];
      this.now = 0;
      this.build();
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (still) this.seek(this.end);
      else this.play();
    }

    build() {
      this.toggle = make("button", { type: "button", class: "dr-play" });
      this.toggle.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
      const back = make("button", { type: "button", class: "dr-step", "aria-label": "one step back", text: "‹" });
      const on = make("button", { type: "button", class: "dr-step", "aria-label": "one step on", text: "›" });
      back.addEventListener("click", () => this.step(-1));
      on.addEventListener("click", () => this.step(1));
      this.slider = make("input", {
        type: "range", min: 0, max: this.moments.length - 1, value: 0, step: 1, "aria-label": "step", class: "dr-slider",
      });
      this.slider.addEventListener("input", () => {
        this.pause();
        this.seek(this.moments[Number(this.slider.value)]);
      });
      this.speed = make("select", { class: "dr-speed", "aria-label": "speed" });
      const wanted = Math.min(1, this.end / WANTED_SECONDS);
      const best = SPEEDS.reduce((a, b) => (Math.abs(Math.log(b[0] / wanted)) < Math.abs(Math.log(a[0] / wanted)) ? b : a));
      for (const [value, name] of SPEEDS) {
        this.speed.append(make("option", { value, text: name, selected: value === best[0] }));
      }
      const [mine, other] = this.data.runs;
      const ratio = this.data.speed_up;
      const verdict = make(
        "p", { class: "dr-verdict" },
        make("b", { text: `${ratio.toFixed(ratio < 10 ? 2 : 0)}×` }),
        ` as fast. ${mine.name}: ${time(mine.seconds)}, ${mine.passes} passes. ${other.name}: ${time(other.seconds)}, ${other.passes} passes.`,
      );
      const legend = make("p", { class: "dr-legend" }, make("span", { text: "sure: " }));
      ["< 50 %", "50", "70", "85", "95", "99 +"].forEach((name, sure) =>
        legend.append(make("span", { class: `dr-cell dr-done dr-c${sure}`, text: name })));
      legend.append(make("span", { class: "dr-masked" }, make("span", { class: "dr-cell dr-mask", text: "\u00a0" }), " masked"));
      this.replaceChildren(
        verdict,
        make("div", { class: "dr-controls", role: "group", "aria-label": "replay" },
          this.toggle, make("div", { class: "dr-seek" }, back, this.slider, on), this.speed),
        make("div", { class: "dr-sides" }, ...this.sides.map((side) => side.element)),
        legend,
        make("p", { class: "dr-small", text: this.data.note }),
      );
      this.label();
      this.show();
    }

    label() {
      this.toggle.textContent = this.playing ? "❚❚ Pause" : this.now >= this.end ? "↻ Replay" : "▶ Play";
      this.toggle.setAttribute("aria-pressed", String(this.playing));
    }

    play() {
      if (this.playing) return;
      if (this.now >= this.end) this.now = 0;
      this.playing = true;
      this.label();
      let last = performance.now();
      const frame = (moment) => {
        if (!this.playing) return;
        this.now = Math.min(this.end, this.now + ((moment - last) / 1000) * Number(this.speed.value));
        last = moment;
        if (this.now >= this.end) this.playing = false;
        this.show();
        if (this.playing) this.frame = requestAnimationFrame(frame);
        else this.label();
      };
      this.frame = requestAnimationFrame((moment) => {
        last = moment;
        frame(moment);
      });
    }

    pause() {
      this.playing = false;
      cancelAnimationFrame(this.frame);
      if (this.toggle) this.label();
    }

    step(by) {
      this.pause();
      const here = countUpTo(this.moments, this.now) - 1;
      this.seek(this.moments[Math.max(0, Math.min(this.moments.length - 1, here + by))]);
    }

    seek(moment) {
      this.now = moment;
      this.show();
      this.label();
    }

    show() {
      for (const side of this.sides) side.show(this.now, this.playing);
      this.slider.value = String(countUpTo(this.moments, this.now) - 1);
      const said = this.sides.map((side) => `${side.run.name} ${side.tokens} of ${side.run.tokens} tokens`).join(", ");
      this.slider.setAttribute("aria-valuetext", `${time(this.now)}: ${said}`);
    }
  }

  if (!customElements.get("denoising-replay")) customElements.define("denoising-replay", DenoisingReplay);

  // Marks a region on the page, and no other one.
  window.mineruMark = (key) => {
    for (const button of document.querySelectorAll(".md-region[data-region]")) {
      button.setAttribute("aria-pressed", String(button.dataset.region === key));
    }
  };
})();
