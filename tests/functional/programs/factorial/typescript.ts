const factorial = (n: bigint): bigint => (n < 2n ? 1n : n * factorial(n - 1n))
const text: string = factorial(30n).toString()
console.log(text)
console.log([...text].map(Number).reduce((a, b) => a + b))
