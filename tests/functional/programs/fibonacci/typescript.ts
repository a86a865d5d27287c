const known: Record<number, number> = { 0: 0, 1: 1 }
const fibonacci = (n: number): number => (known[n] ??= fibonacci(n - 1) + fibonacci(n - 2))

console.log(Array.from({ length: 11 }, (_, n: number) => fibonacci(n)).join(' '))
console.log(fibonacci(70))
