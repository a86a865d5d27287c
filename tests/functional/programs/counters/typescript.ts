abstract class Shape {
  abstract readonly name: string
  abstract area(): number
  toString(): string { return `${this.name} ${this.area()}` }
}
class Rectangle extends Shape {
  readonly name: string = 'rectangle'
  constructor(private readonly width: number, private readonly height: number) { super() }
  area(): number { return this.width * this.height }
}
class Square extends Rectangle {
  override readonly name = 'square'
  constructor(side: number) { super(side, side) }
}
const counter = (step: number, count = 0): (() => number) => () => (count += step)

const ones = counter(1), tens = counter(10)
console.log(ones(), ones(), tens(), ones(), tens())
for (const shape of [new Square(3), new Rectangle(2, 5)] as Shape[]) console.log(String(shape))
