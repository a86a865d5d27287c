class Rectangle {
  #width
  #height
  constructor(width, height) {
    this.#width = width
    this.#height = height
  }
  get name() { return 'rectangle' }
  toString() { return `${this.name} ${this.#width * this.#height}` }
}
class Square extends Rectangle {
  constructor(side) { super(side, side) }
  get name() { return 'square' }
}
const counter = (step, count = 0) => () => (count += step)

const ones = counter(1), tens = counter(10)
console.log(ones(), ones(), tens(), ones(), tens())
console.log(`${new Square(3)}\n${new Rectangle(2, 5)}`)
