// The drawing paper: strokes by mouse, finger, pen or keyboard, black on white.

const PEN = 20; // pixels of the paper
const STEP = 8; // of an arrow key
const EXAMPLE = "M84 98C88 44 190 44 188 98C186 142 124 178 82 236L206 236"; // a 2

/** onChange is called after each change of the drawing. */
export class Paper {
  constructor(canvas, onChange) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.onChange = onChange;
    this.pen = { x: canvas.width / 2, y: canvas.height / 2, down: false };
    this.clear();
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.pen = { ...this.#place(event), down: true };
      this.#line(this.pen);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.pen.down || !canvas.hasPointerCapture(event.pointerId)) return;
      for (const each of event.getCoalescedEvents?.() ?? [event]) this.#line(this.#place(each));
      if (!event.getCoalescedEvents?.().length) this.#line(this.#place(event));
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (this.pen.down = false));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  get pixels() {
    return this.context.getImageData(0, 0, this.canvas.width, this.canvas.height);
  }

  clear() {
    this.empty = true;
    this.example = false;
    this.context.fillStyle = "#fff";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.onChange();
  }

  /** A digit, for as long as nobody has drawn one. */
  showExample() {
    this.#ink();
    this.context.stroke(new Path2D(EXAMPLE));
    this.empty = false;
    this.example = true;
  }

  /** A picture on the paper, whole, with white around it. */
  show(picture, width, height) {
    const { canvas, context } = this;
    const scale = Math.min(canvas.width / width, canvas.height / height);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, (canvas.width - width * scale) / 2, (canvas.height - height * scale) / 2, width * scale, height * scale);
    this.empty = this.example = false;
  }

  #ink() {
    const { context } = this;
    context.strokeStyle = "#000";
    context.lineWidth = PEN;
    context.lineCap = context.lineJoin = "round";
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * this.canvas.width,
      y: ((event.clientY - box.top) / box.height) * this.canvas.height,
    };
  }

  #line(to) {
    const { context, pen } = this;
    if (this.example) this.clear();
    this.#ink();
    context.beginPath();
    context.moveTo(pen.x, pen.y);
    context.lineTo(to.x, to.y);
    context.stroke();
    Object.assign(pen, { x: to.x, y: to.y });
    this.empty = false;
    this.onChange();
  }

  #key(event) {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (move) {
      const inside = (v, most) => Math.min(Math.max(v, PEN / 2), most - PEN / 2);
      const to = {
        x: inside(this.pen.x + STEP * move[0], this.canvas.width),
        y: inside(this.pen.y + STEP * move[1], this.canvas.height),
      };
      if (this.pen.down) this.#line(to);
      else Object.assign(this.pen, to);
    } else if (event.key === " ") {
      this.pen.down = !this.pen.down;
      if (this.pen.down) this.#line(this.pen);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.pen.down = false;
      this.clear();
    } else return;
    event.preventDefault();
  }
}
